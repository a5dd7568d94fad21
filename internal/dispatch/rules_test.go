package dispatch

import (
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Redis's clock is set back after a call that may have charged. What a preview says of the key is what the script decides when the job is pulled again.
func TestAPreviewJudgesAKeyAsTheScriptsDo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		alive map[string]time.Duration // fields of the data's age, as times from now on; back is a length
		held  bool
	}{
		"never set back":             {nil, false},
		"by a step of two hours":     {map[string]time.Duration{"back": 2 * time.Hour}, true},
		"by less than the key lives": {map[string]time.Duration{"back": 10 * time.Minute}, false},
		"no sign of life since then": {map[string]time.Duration{"at": 2 * time.Hour}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, "leak: {limits: [100/s]}\nreplay: manual")
			g, c := r.cfg.Gateways[0], r.db.Client
			g.Request.KeyLifetime = time.Hour
			kept := bookkeeping(c, g)
			kept.Age = func() ledger.Age { return ledger.Age{Version: "7"} }
			keys, books := redisdb.NewKeys(g.Name), ledger.New(c, kept)
			now, err := c.Time(t.Context()).Result()
			if err == nil {
				err = c.HSet(t.Context(), keys.Alive(), "v", "7", "at", now.UnixMicro(), "line", "a").Err()
			}
			if err != nil {
				t.Fatal(err)
			}
			r.putBatch("b", 1)
			open := func() (job.Attempt, job.Opening) {
				t.Helper()
				id, generation, _ := job.ParseTaskID(testkit.Pop(t, c, keys.Lines()))
				a, opening, err := books.Open(t.Context(), id, generation, "w1", time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				return a, opening
			}
			a, opening := open()
			if opening != job.OpenGo {
				t.Fatalf("opened: %s", opening)
			}
			lost := job.Ending{Called: true, Spent: true, Unsure: true, Verdict: job.VerdictUnknown, Error: "timed out", At: time.UnixMicro(1)}
			if err := deadletter.New(c, g.Name).Park(t.Context(), a, lost, job.UnknownOutcome); err != nil {
				t.Fatal(err)
			}
			for field, by := range tc.alive {
				value := by.Microseconds()
				if field == "at" {
					value += now.UnixMicro()
				}
				if err := c.HSet(t.Context(), keys.Alive(), field, value).Err(); err != nil {
					t.Fatal(err)
				}
			}
			rec, _, err := books.Find(t.Context(), a.Job.ID)
			if err != nil {
				t.Fatal(err)
			}
			rules, err := Rules(t.Context(), c, g)
			if err != nil {
				t.Fatal(err)
			}
			change, why := rules.Key(rec)
			if held := why != ""; held != tc.held {
				t.Errorf("the preview says %q, %q", change, why)
			}
			if _, _, err := books.Readmit(t.Context(), []job.Return{{ID: rec.Job.ID, Generation: rec.Generation, Reason: rec.Reason, Key: job.KeepKey}}); err != nil {
				t.Fatal(err)
			}
			if _, opening := open(); (opening == job.OpenUnknown) != tc.held {
				t.Errorf("the script says %s", opening)
			}
		})
	}
}
