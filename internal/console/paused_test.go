package console

import (
	"testing"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// The page of a gateway names a batch that stopped itself, with the reason and the commands.
func TestABatchThatStoppedItselfIsShown(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	if holds, err := dispatch.Books(r.db.Client, r.g).SendAhead(t.Context(), "2026-11", 1); err != nil || !holds {
		t.Fatal(holds, err)
	}
	r.put(2, `{"amount":500,"currency":"EUR"}`)
	_, page := r.get("/gateways/" + r.g.Name)
	wants(t, page, "its batch waits until its first job is done")
	lacks(t, page, "has stopped itself")
	r.parkOne("j0000", job.Refused, "HTTP 400: 4242")
	_, page = r.get("/gateways/" + r.g.Name)
	wants(t, page, "Batch 2026-11 has stopped itself", "its first job is parked as refused", "dispatcher dlq list --batch 2026-11", "dispatcher batch resume 2026-11 --why TEXT")
}

// The pages about jobs of a paused batch say how to resume it. They do not offer to discard or replay these jobs.
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
