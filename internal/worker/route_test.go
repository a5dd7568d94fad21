package worker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"spillway/internal/job"
	"spillway/internal/outcome"
	"spillway/internal/testkit"
	"spillway/internal/worker"
)

// A job is called and its answer is judged as its route says.
func TestAJobTakesItsRoute(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(http.StatusOK, nil), true)
	other := &sender{answer: answered(http.StatusTeapot, nil)}
	table, err := outcome.Profile("default")
	if err == nil {
		table, err = table.With([]job.Rule{{Status: http.StatusTeapot, Then: job.VerdictDone}})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.made.Routes = map[string]worker.Route{"refund": {Sender: other, Judge: table}}
	r.w = worker.New(r.made)
	r.accept(job.Job{ID: "a"})
	r.accept(job.Job{ID: "b", Route: "refund"})
	for _, id := range []string{"a", "b"} {
		r.deliver(id)
		if rec := r.record(id); rec.State != job.Done {
			t.Errorf("%s: %s, %s", id, rec.State, rec.Error)
		}
	}
	if len(r.sender.keys) != 1 || len(other.keys) != 1 || r.sender.keys[0] != "a" || other.keys[0] != "b" {
		t.Errorf("own calls %v, of the route %v", r.sender.keys, other.keys)
	}
}

// A job whose route is not in the configuration waits for a process that knows the route, and is then called.
func TestAJobOfAnUnknownRouteWaits(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(http.StatusOK, nil), true)
	r.accept(job.Job{ID: "a", Route: "refund"})
	s := r.deliver("a")
	rec := r.record("a")
	if rec.State != job.Retrying || rec.Spent != 0 || len(rec.History) != 0 || !strings.Contains(rec.Error, `no route "refund"`) || time.Until(rec.Due) > time.Minute || !rec.FirstCall.IsZero() {
		t.Errorf("record %+v", rec)
	}
	if len(r.sender.keys) != 0 || s.released != 1 {
		t.Errorf("%d calls, slot released %d times", len(r.sender.keys), s.released)
	}
	const counted = `# HELP spillway_unrouted_total Times that a job was put aside uncalled, since its route is not in the configuration here.
# TYPE spillway_unrouted_total counter
`
	if err := testutil.GatherAndCompare(r.reg, strings.NewReader(counted+`spillway_unrouted_total{gateway="`+testkit.GatewayOf(r.keys.Pending())+"\"} 1\n"), "spillway_unrouted_total"); err != nil {
		t.Error(err)
	}
}
