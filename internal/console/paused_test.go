package console

import (
	"testing"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// What a paused batch needs is to be resumed. Nobody is told to throw its jobs away, or to replay what would only be parked again.
func TestAPausedBatchIsToBeResumed(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(2, `{"amount":500,"currency":"EUR"}`)
	books := dispatch.Books(r.db.Client, r.g)
	if err := books.PauseBatch(t.Context(), "2026-11", "kim", "looking into it", func(ledger.Shelved) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{jobLink(r.g.Name, "j0000"), "/gateways/" + r.g.Name + "?reason=paused"} {
		status, page := r.get(path)
		if status != 200 {
			t.Fatalf("%s: %d", path, status)
		}
		wants(t, page, "paused", "its batch is paused: looking into it")
		lacks(t, page, "Replay…", "Discard…", "Replay or discard it", "cancelled</span>")
	}
	_, page := r.get(jobLink(r.g.Name, "j0000"))
	wants(t, page, "Its batch is paused.", "dispatcher batch resume 2026-11 --why TEXT")
	_, preview := r.get("/gateways/" + r.g.Name + "/clear?do=replay")
	wants(t, preview, "Would be held back: 2 jobs. its batch is paused: &#34;dispatcher batch resume&#34; takes it in again.")
	lacks(t, preview, "Replay: 2 jobs")
	if got := r.record("j0001"); got.Reason != job.Paused {
		t.Errorf("j0001 is %s %s", got.State, got.Reason)
	}
}
