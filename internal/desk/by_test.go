package desk

import (
	"testing"
	"time"

	"spillway/internal/roles"
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

// What people type is kept, and shown to those who decide: it is one line, and controls and reverses nothing.
func TestNamesAndReasonsAreOneLine(t *testing.T) {
	t.Parallel()
	by := ByOf(roles.Identity{Name: "ann"}, "bob\n\x1b[31m", "ticket 1\r\nlevel=ERROR \u202etxt.\u009b2J\x00")
	if by.Who != "ann" || by.Said != "bob  [31m" || by.Why != "ticket 1  level=ERROR  txt. 2J" {
		t.Errorf("%+q", by)
	}
	if by := ByOf(roles.Identity{}, " Jörg \u200b", "größer als 5 €"); by.Who != "Jörg" || by.Why != "größer als 5 €" {
		t.Errorf("%+q", by)
	}
}
