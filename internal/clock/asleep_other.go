//go:build !linux

package clock

import "time"

// Asleep returns zero: how long this machine has been suspended is known on Linux alone.
func Asleep() time.Duration { return 0 }
