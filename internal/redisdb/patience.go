package redisdb

import (
	"context"
	"sync"
	"time"
)

// awayWait is how long Patiently waits between two tries.
const awayWait = 200 * time.Millisecond

// Patiently does a step until it gets an answer, for as long as Redis may be away: within from now. Zero means one try. After a try whose
// answer was lost the step may have run, so it must be one that may be repeated. The error is the last try's; ctx's own when that ended first.
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

// telling is a step that tells, the first time, what will have it done again.
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
