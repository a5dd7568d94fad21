package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// reading is a cached reading of the system's clocks: each call needs a dozen readings, and two system calls
// for each would take a tenth of a dispatcher's time.
type reading struct {
	at     time.Time // just before, by the wall and the monotonic clock
	asleep time.Duration
}

var last atomic.Pointer[reading]

const (
	readAgain = 10 * time.Millisecond // a reading is valid for this long by the monotonic clock,
	apart     = time.Millisecond      // and while the wall clock has advanced by about as much: it goes on in a suspended machine
)

func (r *reading) holds(now time.Time) bool {
	return holds(now.Sub(r.at), now.Round(0).Sub(r.at.Round(0)))
}

// holds reports whether a reading of that age, by the monotonic and by the wall clock, is still valid.
func holds(awake, whole time.Duration) bool {
	return awake >= 0 && awake < readAgain && (whole-awake).Abs() < apart
}

// Asleep returns how long this machine has been suspended since it was started, at the least: that time is
// missing from the monotonic reading of time.Now. It may be too small by as long as the process was stopped
// during the reading, or by a millisecond. Zero if the system does not say.
func Asleep() time.Duration {
	now := time.Now() // before the clocks are read: a suspension in between is seen the next time
	before := last.Load()
	if before != nil && before.holds(now) {
		return before.asleep
	}
	r := &reading{at: now}
	for range 3 { // one of them was not interrupted
		r.asleep = max(r.asleep, ask())
	}
	if before != nil {
		r.asleep = max(r.asleep, before.asleep)
	}
	last.Store(r)
	return r.asleep
}

// ask reads both clocks.
func ask() time.Duration {
	var whole, awake unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &whole) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil {
		return 0
	}
	return time.Duration(whole.Nano() - awake.Nano())
}
