package desk

import (
	"testing"
	"time"
)

// A time in the console's form is in UTC, in whatever zone the server is.
func TestATimeToBeThroughByIsInUTC(t *testing.T) {
	t.Parallel()
	there := time.Date(2026, 11, 24, 12, 0, 0, 0, time.FixedZone("CET", 3600))
	by, err := ParseBy("2026-11-30 18:00", there)
	if want := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC); err != nil || !by.Equal(want) {
		t.Errorf("%v, %v, want %v", by, err, want)
	}
}
