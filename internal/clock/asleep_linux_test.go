package clock

import (
	"testing"
	"time"
)

func TestAReadingOfTheClocksHoldsUntilTheWallClockGoesOnAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		awake, whole time.Duration
		holds        bool
	}{
		{0, 0, true},
		{9 * time.Millisecond, 9 * time.Millisecond, true},
		{9 * time.Millisecond, 9*time.Millisecond + 900*time.Microsecond, true},
		{time.Millisecond, 2 * time.Millisecond, false},       // suspended for a moment
		{time.Millisecond, 8 * time.Hour, false},              // for a night
		{time.Millisecond, -time.Second, false},               // the clock was set back
		{10 * time.Millisecond, 10 * time.Millisecond, false}, // old
		{-time.Nanosecond, -time.Nanosecond, false},           // another one was quicker
	} {
		if got := holds(c.awake, c.whole); got != c.holds {
			t.Errorf("after %s awake and %s in all: holds %t, want %t", c.awake, c.whole, got, c.holds)
		}
	}
}
