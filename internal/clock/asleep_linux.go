package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// reading is what the system's clocks said when they were read last: a dozen questions come for each call, and two system calls for each would be a tenth of a
// dispatcher's work.
type reading struct {
	at     time.Time // just before, by the wall and the monotonic clock
	asleep time.Duration
}

var last atomic.Pointer[reading]

const (
	readAgain = 10 * time.Millisecond // a reading holds for so long by the monotonic clock,
	apart     = time.Millisecond      // and while the wall clock has gone by as much as that: it goes on in a suspended machine
)

func (r *reading) holds(now time.Time) bool {
	return holds(now.Sub(r.at), now.Round(0).Sub(r.at.Round(0)))
}

// holds says whether a reading holds that was made so long ago by the monotonic clock, and by the wall clock.
func holds(awake, whole time.Duration) bool {
	return awake >= 0 && awake < readAgain && (whole-awake).Abs() < apart
}

// Asleep returns how long this machine has been suspended since it was started, at the least: time that is missing from the monotonic
// reading of time.Now. It may be too little by as long as the process stood still while it asked, or by a millisecond. Zero where the system does not say.
func Asleep() time.Duration {
	now := time.Now() // before the clocks are read: a machine that is suspended in between is seen the next time
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
