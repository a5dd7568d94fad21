// Package clock lets tests control the time.
package clock

import (
	"context"
	"time"
)

// Clock tells the time and waits. Real is the machine's; tests have their own.
type Clock interface {
	// Now returns the current time, with its monotonic reading.
	Now() time.Time
	// After returns a channel that receives once d has passed. Zero or less fires at once.
	After(d time.Duration) <-chan time.Time
}

// Real is the machine's clock.
type Real struct{}

// Now returns time.Now.
func (Real) Now() time.Time { return time.Now() }

// After returns time.After.
func (Real) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Wait waits until d has passed, by the machine's clock. It returns ctx.Err() as soon as ctx ends.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
