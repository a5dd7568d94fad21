// Package clock lets a test decide what time it is.
package clock

import "time"

// Clock tells the time and waits. Real is the machine's; tests bring one of their own.
type Clock interface {
	// Now returns the present moment, with its monotonic reading.
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
