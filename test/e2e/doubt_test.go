package e2e

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
)

// Three calls are charged and their answers are lost. While their jobs wait for a retry, somebody cancels the batch and discards the cancelled
// jobs. None of the three counts as not sent, and a person resolves them.
func TestACancelledBatchsChargesAreSettledAndNotDiscarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{Hang: 1}, "      timeout: 1s\n      key_lifetime: 24h\n    amount: {field: amount, currency: currency}\n"+
		"    leak: {limits: [100/s]}\n    retry: {attempts: 6, first: 1h, max: 2h}\n")
	w.dispatcher()
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("nov.ndjson", 3), "--batch", "nov", "-q")
	w.shown(t, 30*time.Second, "three answers to be lost", func() bool { return w.status().Retrying == 3 })
	cancelled := w.ok("dispatcher", "batch", "cancel", "nov", "--why", "wrong file", "--yes")
	if !strings.Contains(cancelled, "stripe: of these, 3 jobs (EUR 3.06) may have been charged, and wait as unknown_outcome") {
		t.Errorf("cancel says\n%s", cancelled)
	}
	if got := w.ok("dispatcher", "dlq", "discard", "--reason", "cancelled", "--why", "wrong file", "--yes"); !strings.HasPrefix(got, "no parked job is meant") {
		t.Errorf("of what was cancelled: %s", got)
	}
	if got := w.ok("dispatcher", "dlq", "discard", "--why", "wrong file", "--yes"); !strings.HasPrefix(got, "discarded 0 jobs, held back 3\n") {
		t.Errorf("of all: %s", got)
	}
	w.ok("dispatcher", "dlq", "resolve", "--done", "--id", "inv-00001", "--reference", "pi_1", "--why", "in the settlement file", "--yes")
	w.ok("dispatcher", "dlq", "resolve", "--done", "--batch", "nov", "--why", "in the settlement file", "--yes")
	export := w.ok("dispatcher", "batch", "nov", "--export", "-o", "json")
	if strings.Count(export, `"state":"done"`) != 3 || strings.Count(export, `"settled":{"as":"done"`) != 3 || !strings.Contains(export, `"reference":"pi_1"`) {
		t.Errorf("the export has\n%s", export)
	}
	if s := w.provider.Stats(); s.Charged != 3 || s.ChargedTwice != 0 {
		t.Errorf("%+v", s)
	}
	w.ok("dispatcher", "audit")
}

// A waiting job is parked by hand while a dispatcher runs. It is called only when somebody replays it.
func TestAJobIsParkedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n")
	w.dispatcher()
	w.ok("dispatcher", "pause", "-g", "stripe", "--why", "so that jobs wait")
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("a.ndjson", 3), "-q")
	if got := w.ok("dispatcher", "park", "inv-00002", "--why", "wrong customer"); !strings.HasPrefix(got, "would park ") {
		t.Errorf("off a terminal: %s", got)
	}
	w.ok("dispatcher", "park", "inv-00002", "--why", "wrong customer", "--yes")
	w.ok("dispatcher", "dlq", "discard", "--id", "inv-00003", "--why", "wrong customer", "--yes")
	w.ok("dispatcher", "resume", "-g", "stripe")
	w.shown(t, 30*time.Second, "the job that is left to be done", func() bool { return w.status().Done == 1 })
	if r := w.do("dispatcher", "park", "inv-00001", "--why", "too late", "--yes"); r.code != 4 {
		t.Errorf("a job that is done: %+v", r)
	}
	w.ok("dispatcher", "audit")
	w.ok("dispatcher", "dlq", "replay", "--id", "inv-00002", "--yes", "-q")
	w.emptied(t, 30*time.Second, 2)
	if s := w.strict(); s.Calls != 2 {
		t.Errorf("%d calls, want those of two jobs", s.Calls)
	}
}
