package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Asleep returns how long this machine has been suspended since it was started, at the least: time that is missing from the monotonic
// reading of time.Now. It may be too little by as long as the process stood still while it asked. Zero where the system does not say.
func Asleep() time.Duration {
	var whole, awake unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &whole) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil {
		return 0
	}
	return time.Duration(whole.Nano() - awake.Nano())
}
