package dispatch

import (
	"testing"

	"spillway/internal/testkit"
)

var (
	calledFirst  = edit{"pull_turn(ARGV[4] == '1' or turn == '1')", "pull_turn(false)"}
	anyAhead     = edit{"(ARGV[4] == '1' or turn == '1')", "(turn == '1')"}
	forgivenEver = edit{"FORGIVEN = 16, 600, 2", "FORGIVEN = 16, 600, 1000000"}
	neverDoubted = edit{"(tonumber(v.again) or 0) < DOUBTED", "false"}
	believedEver = edit{"if kind ~= 'fail' and level == 0 then", "if kind ~= 'fail' then"}
)

// Each part that keeps good jobs from waiting is needed: without it, some schedule shows that they wait. seed is the first seed to
// try.
func TestMutantsLetGoodJobsWait(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		mutant
		seed uint64
	}{
		"called before goes first, for ever":     {mutant{calledFirst, forgivenEver, neverDoubted, believedEver}, 0}, // as it was once
		"called before goes first":               {mutant{calledFirst}, 5},
		"anybody is sent ahead":                  {mutant{anyAhead}, 23},
		"all outages are forgiven":               {mutant{forgivenEver}, 2},
		"holds in vain teach nothing":            {mutant{neverDoubted}, 0},
		"what one job is told is always for all": {mutant{believedEver}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range uint64(testkit.Often(20, 100)) {
				if wrong := try(t, draw(m.seed+i), m.mutant); len(wrong) > 0 {
					t.Logf("seed %d: %s", m.seed+i, wrong[0])
					return
				}
			}
			t.Error("the mutant lives")
		})
	}
}
