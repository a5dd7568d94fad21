package dispatch

import (
	"testing"
	"time"
)

// Each part that settles outcomes is needed: the judge finds a program without it.
func TestMutantsOfLookupsAreFoundOut(t *testing.T) {
	t.Parallel()
	const s = time.Second
	plain := func(after time.Duration, lag time.Duration, fates ...string) doubts {
		return doubts{seed: 1, teller: teller{perSecond: 20, timeout: 5 * s, how: "search", after: after}, lag: lag, processes: 2, jobs: 20, fates: fates}
	}
	busy := plain(30*s, 10*s, "cut-after-charge=share=50%", "cut-before-charge=share=50%")
	busy.jobs, busy.more = 600, "    circuit: off\n"
	for name, m := range map[string]struct {
		doubts
		mutant
	}{
		"one look-up is believed":               {plain(time.Second, 0, "cut-after-charge=job=*", "look-absent=job=*"), mutant{{"if absent > 1 and claimed >= from", "if claimed >= from"}}},
		"two look-ups are believed at any time": {plain(3*time.Minute, time.Minute, "cut-after-charge=job=*"), mutant{{"if absent > 1 and claimed >= from", "if absent > 1"}}},
		"look-ups take what they want":          {busy, mutant{{"if while_queued == '' or queued then", "if while_queued == '' then"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if wrong := m.play(t, nil); len(wrong) > 0 {
				t.Errorf("with nothing changed: %v", wrong)
			}
			if wrong := m.play(t, m.mutant); len(wrong) == 0 {
				t.Error("the mutant lives")
			} else {
				t.Log(wrong[0])
			}
		})
	}
}
