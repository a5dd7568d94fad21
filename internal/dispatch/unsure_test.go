package dispatch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// byURL keeps the first letter of the id in each call's URL, and knows nothing when it is asked.
type byURL struct{ till }

func (g *byURL) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order.WriteString(r.URL.Query().Get("id")[:1])
}

// After a confirmed restore, jobs that may have been called since the snapshot are parked for a person, or asked about, unless a living key covers their call. They take no slots:
// good jobs behind a crowd of them are called within seconds.
func TestJobsOfBeforeARestoreTakeNoSlots(t *testing.T) {
	t.Parallel()
	const before, good = 2000, 20
	for name, tc := range map[string]struct{ request, settings string }{
		"without keys":           {`{url: "URL/?id={id}", idempotency_header: ""}`, ""},
		"keys that are over":     {`{url: "URL/?id={id}", idempotency_prefix: "", key_lifetime: 5m}`, ""},
		"classes":                {`{url: "URL/?id={id}", idempotency_header: ""}`, "\n" + classes},
		"lanes":                  {`{url: "URL/?id={id}", idempotency_header: ""}`, "\nlanes: {key: payload.m, limits: [50/s]}"},
		"asked about by look-up": {`{url: "URL/?id={id}", idempotency_header: ""}`, "\nlookup: {url: \"/look?id={id}\", schedule: [1h], matches: {id: \"{id}\"}, answers: [{status: 200, then: done}]}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &byURL{}
			virtually(t, g, tc.request, "leak: {limits: [50/s], jitter: 1ms}\nadmission: {limits: [10000/s], burst: 10000}"+tc.settings, func(t *testing.T, r *rig) {
				jobs := func(name string, n int) (all []job.Job) {
					for i := range n {
						all = append(all, job.Job{ID: fmt.Sprintf("%s%04d", name, i), Payload: []byte(`{"m":"one"}`)})
					}
					return all
				}
				r.serve().Stop(t.Context()) // it begins the data
				r.admit(jobs("b", before)...)
				<-time.After(time.Second)
				now := time.Now()
				mark := fmt.Sprintf("%d-%d", now.Add(-time.Hour).UnixMicro(), now.UnixMicro())
				if err := r.db.Client.HSet(t.Context(), redisdb.NewKeys(r.cfg.Gateways[0].Name).Alive(), "marks", mark).Err(); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second)
				r.admit(jobs("g", good)...)
				r.serve()
				begun := time.Now()
				testkit.Eventually(t, 2*time.Minute, "the good jobs to be called", func() bool { return strings.Count(g.called(), "g") == good })
				if took := time.Since(begun); took > 3*time.Second {
					t.Errorf("the good jobs were called after %v: those of before the restore took the slots", took)
				}
				testkit.Eventually(t, 2*time.Minute, "the others to be parked or pending", func() bool {
					s := r.standing(0)
					return s.Done == good && s.Parked[job.UnknownOutcome]+s.Pending == before
				})
				if n := strings.Count(g.called(), "b"); n > 0 {
					t.Errorf("%d jobs of before the restore were called", n)
				}
				if rec := r.found("b0999"); !rec.Unsure || !strings.Contains(rec.Error, "no living idempotency key") {
					t.Errorf("one is %s %s: %q, unsure %v", rec.State, rec.Reason, rec.Error, rec.Unsure)
				}
				r.clean()
			})
		})
	}
}
