package dispatch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// At a gateway without idempotency keys, each call makes a payment of its own. A declined payment of an earlier call says nothing about that of a later call, which a search may not show yet.
func TestAnEarlierCallsRefusalSettlesNothing(t *testing.T) {
	t.Parallel()
	c := newCashier()
	shown := 0
	c.ask = func(w http.ResponseWriter, id string) bool {
		if shown++; shown > 2 {
			return false
		}
		fmt.Fprintf(w, `{"data":[{"id":"ref-0","reference":%q,"status":"declined"}]}`, id)
		return true
	}
	r := before(t, c, strings.Replace(asked, "retry: {attempts: 3}", "retry: {attempts: 3, first: 10ms}\nanswers: {rules: [{status: 402, then: retry}]}", 1))
	r.take("soft-1")
	r.serve()
	r.until("settled", func(s record.Standing) bool { return s.Done+s.Parked[job.Refused]+s.Parked[job.UnknownOutcome] == 1 })
	if rec := r.find("soft-1"); rec.State != job.Done || c.paid["soft-1"] != 1 {
		t.Errorf("it is %s %s: %s; charged %d times", rec.State, rec.Reason, rec.Error, c.paid["soft-1"])
	}
}

// A pending job whose payload can't be opened can't be looked up. This is shown like a failing look-up, and shows nothing of the payload.
func TestAPayloadThatCantBeOpenedIsShown(t *testing.T) {
	t.Parallel()
	c := newCashier()
	c.ask = func(w http.ResponseWriter, id string) bool {
		fmt.Fprintf(w, `{"data":[{"reference":%q,"status":"in process"}]}`, id)
		return true
	}
	r := before(t, c, strings.Replace(asked, "100ms, 100ms, 100ms", "2s, 1s, 1s", 1))
	r.take("lost-1")
	r.serve()
	r.until("pending", func(s record.Standing) bool { return s.Pending == 1 })
	if err := r.db.Client.HSet(t.Context(), redisdb.NewKeys(r.cfg.Gateways[0].Name).Job("lost-1"), record.Short("payload"), "\x00sp\x01"+`{"iban":"DE12"}`).Err(); err != nil {
		t.Fatal(err)
	}
	r.until("failing", func(record.Standing) bool { return !r.find("lost-1").LookFailing.IsZero() })
	rec := r.find("lost-1")
	if rec.State != job.Pending || !strings.Contains(rec.LastSeen, "payload") || strings.Contains(rec.LastSeen, "DE12") {
		t.Errorf("it is %s, and saw %q", rec.State, rec.LastSeen)
	}
}
