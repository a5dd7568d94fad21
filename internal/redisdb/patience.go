package redisdb

import (
	"context"
	"sync"
	"time"
)

// awayWait is the pause of Patiently between two tries.
const awayWait = 200 * time.Millisecond

// Patiently repeats a step until it gets a reply, as long as Redis is unreachable, for within from now. Zero means one
// try. After a try whose reply was lost, the step may have run, so it must be repeatable. The error is the last try's,
// or ctx's own if that ended first.
func Patiently(ctx context.Context, within time.Duration, step func(context.Context) error) error {
	enough := time.Now().Add(within)
	for {
		err := step(ctx)
		if !Away(err) || time.Until(enough) <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(awayWait, time.Until(enough))):
		}
	}
}

// telling returns the step, which calls tell with the error of the first try that will be repeated.
func telling(step func(context.Context) error, tell func(error)) func(context.Context) error {
	var once sync.Once
	return func(ctx context.Context) error {
		err := step(ctx)
		if Away(err) {
			once.Do(func() { tell(err) })
		}
		return err
	}
}
