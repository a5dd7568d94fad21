package dispatch

import (
	"testing"

	"spillway/internal/double"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// A job whose first key is declined goes on with the next one, and its worker dies before or after the write of either call. It is never charged twice, and the next
// key is only taken where the decline was written down.
func TestNewKeysByCrashes(t *testing.T) {
	t.Parallel()
	table, err := double.Load("stripe/v1") // it saves declines, so the first key can't be charged any more
	if err != nil {
		t.Fatal(err)
	}
	like := configured(t, table)
	like.Answers.Rules = append([]job.Rule{{Status: 402, Then: job.VerdictNewKey}}, like.Answers.Rules...)
	client := testkit.Client(t)
	r := rows(t, "decline done unknown unknown done")[0]
	for _, how := range allCrashes {
		t.Run(how.String(), func(t *testing.T) {
			l := newCell(t, client, table, like, r, how)
			l.try("inv-1")
			rec, want := l.record("inv-1"), int64(2)
			if how.call == 1 {
				want = 1
			}
			if rec.KeyGeneration != want {
				t.Errorf("key %d, want %d\n%s", rec.KeyGeneration, want, l.story(rec))
			}
		})
	}
}
