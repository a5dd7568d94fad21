package dispatch

import (
	"testing"
	"time"
)

// Each part that keeps limits through upsets is needed: the judge finds a program without it.
func TestMutantsAreUpset(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	busy := upsets{file: "40/1s", processes: 2, far: ms, then: 5 * s}
	with := func(base upsets, all ...upset) upsets {
		base.all = all
		return base
	}
	late := with(busy, upset{at: 3 * s, kind: leaves})
	late.late = 40
	alone := upsets{file: "4/1s 24/30s", processes: 1, far: ms, then: 40 * s}
	forgotten := with(alone, upset{at: 4900 * ms, kind: allLeave, on: 1, length: 2 * s}, upset{at: 5 * s, kind: failsOver, length: s, tail: 1900 * ms})
	for name, m := range map[string]struct {
		upsets
		mutant
	}{
		"calls count at their slots, however late": {late, mutant{
			{"if pace[1] ~= ARGV[1] or #slots == 0 then return counted end", "for i = 1, #counted do counted[i] = 1 end if true then return counted end"}, {"and slot + allowance or", "and slot or"},
		}},
		"what is counted too late comes to count at its slot": {late, mutant{{"{written[n], v[i + 1]}", "{math.min(written[n], slots[n]), v[i + 1]}"}}},
		"another run of Redis means nothing":                  {forgotten, mutant{{"run ~= pace[8]", "false"}}},
		"what was lost is not charged":                        {forgotten, mutant{{"    loss_charge(KEYS[9 + k], mark, missing, younger)", "missing = 0; loss_charge(KEYS[9 + k], mark, missing, younger)"}}},
		"no window passes after a loss": {with(busy, upset{at: 4 * s, kind: flushes}, upset{at: 7 * s, kind: flushes}),
			mutant{{"quiet = math.max(quiet, mark + ", "quiet = math.max(quiet, 0 * mark + 0 * "}}},
		"a clock that is set ahead means nothing": {with(busy, upset{at: 4 * s, kind: leaps, tail: 500 * ms}), mutant{{"if jump > 0 then", "if false then"}}},
		"a clock that is set back moves nothing":  {with(busy, upset{at: 4 * s, kind: leaps, tail: -time.Minute}, upset{at: 20 * s, kind: pauses, length: s}), mutant{{"newest) - back", "newest)"}}},
		"nobody minds a pause":                    {with(busy, upset{at: 4 * s, kind: pauses, length: 6 * s}), mutant{{"hold[5] == '1'", "false"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if wrong := tryUpsets(t, m.upsets, nil); len(wrong) > 0 {
				t.Errorf("with nothing changed: %v", wrong)
			}
			if wrong := tryUpsets(t, m.upsets, m.mutant); len(wrong) == 0 {
				t.Error("the mutant lives")
			} else {
				t.Log(wrong[0])
			}
		})
	}
}
