package ledger_test

import (
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// Something else writes to the record of a pending job. Other jobs are still asked about. The job itself goes on, or is parked with an error that says what to look at.
func TestADamagedPendingJobIsAskedForOrPutAside(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for _, field := range []string{"generation", "key_generation", "spent", "accepted_at", "cost", "first_call_at", "call_ended_at", "asked", "absent", "ask_failed", "ask_failing", "ask_owner",
		"accepted_by_gateway", "absent_key", "failures", "money", "pieces", "history", "calls", "replays", "outages_met", "last_outage"} {
		for name, value := range map[string]string{"words": "x y", "nothing": "", "a fraction": "1.5", "huge": "1e300", "below zero": "-7"} {
			t.Run(field+" is "+name, func(t *testing.T) {
				t.Parallel()
				b, store := asks(t, func(c *ledger.Config) { c.Keys = false })
				b.accept("park", job.Job{ID: "hurt", Cost: 1}, job.Job{ID: "whole"})
				b.inDoubt(store)
				b.pass(time.Microsecond)
				b.inDoubt(store)
				b.must(b.c.HSet(b.ctx, b.keys.Job("hurt"), record.Short(field), value).Err())
				seen := map[string]int{}
				for range 12 {
					b.pass(time.Minute)
					l, _, ok, err := b.books.ClaimLook(b.ctx, ledger.Claim{Owner: "o", For: 30 * time.Second})
					if err != nil {
						t.Logf("claim: %v", err)
					}
					if !ok {
						continue
					}
					seen[l.Job.ID]++
					came, err := b.books.EndLook(b.ctx, l, ledger.LookEnd{Finding: absent(time.Minute), At: time.UnixMicro(b.now), Next: time.Second, Least: time.Second})
					t.Logf("%s: %s, %v", l.Job.ID, came, err)
				}
				if r := b.record("whole"); r.State != job.Queued {
					t.Errorf("the other one is %s after %d look-ups", r.State, seen["whole"])
				}
				if r := b.record("hurt"); r.State == job.Pending {
					t.Errorf("it is still pending, asked for %d times", seen["hurt"])
				}
			})
		}
	}
}
