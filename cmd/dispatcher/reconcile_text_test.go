package main

import (
	"testing"

	"spillway/internal/desk"
	"spillway/internal/job"
)

// The text has the right form for one job and for several.
func TestWhatWasSettledIsSaidInGoodEnglish(t *testing.T) {
	t.Parallel()
	one, two := job.Totals{Jobs: 1}, job.Totals{Jobs: 2}
	for want, got := range map[string]string{
		"1 job was resolved as done\n2 jobs were resolved as not done, to go in again with the next key": settledText(desk.Settled{Done: one, NotDone: two}, false),
		"2 jobs were resolved as done\n1 job was resolved as not done, to go in again with the next key": settledText(desk.Settled{Done: two, NotDone: one}, false),
		"1 job would be resolved as done": settledText(desk.Settled{Done: one}, true),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
