package worker_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
	"spillway/internal/testkit"
)

func boxOf(gateway string) *seal.Box {
	return seal.New(gateway, "k2025", []seal.Key{{ID: "k2025", Secret: bytes.Repeat([]byte{1}, seal.KeyBytes)}})
}

// store puts into a job's record a payload that was sealed for the job as.
func (r *rig) store(id, as string) {
	r.t.Helper()
	gw := testkit.GatewayOf(r.keys.Pending())
	stored, err := boxOf(gw).Seal(as, []byte(`{"n":1}`))
	if err == nil {
		err = r.c.HSet(r.t.Context(), redisdb.NewKeys(gw).Job(id), "p", stored).Err()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// If the encryption key is missing, the job is neither called nor parked, spends no attempt, and does not delay others.
func TestAJobWhosePayloadCantBeOpenedWaits(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(http.StatusOK, nil), true)
	r.accept(job.Job{ID: "a"})
	r.store("a", "a")
	s := r.deliver("a")
	rec := r.record("a")
	if rec.State != job.Retrying || rec.Spent != 0 || len(rec.History) != 0 || !strings.Contains(rec.Error, "k2025") || time.Until(rec.Due) > time.Minute {
		t.Errorf("record %+v", rec)
	}
	if len(r.sender.keys) != 0 || s.released != 1 || len(r.pacer.holds) != 0 {
		t.Errorf("%d calls, slot released %d times, %d holds", len(r.sender.keys), s.released, len(r.pacer.holds))
	}
	if n, err := testutil.GatherAndCount(r.reg, "spillway_unopened_payloads_total"); n != 1 || err != nil {
		t.Errorf("%d counters, %v", n, err)
	}
}

func TestAChangedPayloadIsParkedAndNeverCalled(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(http.StatusOK, nil), true)
	r.accept(job.Job{ID: "a"})
	gw := testkit.GatewayOf(r.keys.Pending())
	r.flaky.Books = ledger.New(r.c, ledger.Config{Gateway: gw, Encode: queue.NewEncoder(gw).Encode, Keys: true, KeyLifetime: time.Hour, Attempts: 2,
		Dedupe: time.Hour, Box: boxOf(gw)})
	r.store("a", "rich")
	r.deliver("a")
	rec := r.record("a")
	if rec.State != job.Parked || rec.Reason != job.Unreadable || !strings.Contains(rec.Error, "changed") || len(rec.History) != 0 {
		t.Errorf("record %+v", rec)
	}
	if len(r.sender.keys) != 0 {
		t.Error("it was called")
	}
}

// If sealed payloads are required, a plain payload without a sign that it was ever sealed waits: it may be from before encryption.
func TestAPlainPayloadWaitsWhereSealedOnesAreRequired(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(http.StatusOK, nil), true)
	r.accept(job.Job{ID: "a", Payload: []byte(`{"n":1}`)})
	r.kept.Box = boxOf(testkit.GatewayOf(r.keys.Pending())).Checking(func(p []byte) string { return string(p) }, true)
	r.flaky.Books = ledger.New(r.c, r.kept)
	rec := r.call("a", answered(http.StatusOK, nil))
	if rec.State != job.Retrying || rec.Spent != 0 || len(r.sender.keys) != 0 || !strings.Contains(rec.Error, "take require out") {
		t.Errorf("%s %s, %d attempts, %d calls, %q", rec.State, rec.Reason, rec.Spent, len(r.sender.keys), rec.Error)
	}
	r.kept.Box = nil
	r.flaky.Books = ledger.New(r.c, r.kept)
	if rec := r.call("a", answered(http.StatusOK, nil)); rec.State != job.Done || len(r.sender.keys) != 1 {
		t.Errorf("without require: %s %s, %q", rec.State, rec.Reason, rec.Error)
	}
}
