package ledger_test

import (
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// A job's route stays in its record. Offered again with another route, it is another payment, and the first one stands.
func TestARouteIsPartOfTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 2, nil)
	payload := []byte(`{"n":1}`)
	first := []job.Job{{ID: "a", Payload: payload, Route: "refund"}, {ID: "b", Payload: payload, Batch: "one two"}, {ID: "c", Payload: payload, Route: "void", Batch: "one two", Cost: 2}}
	if got, w := b.accept("park", first...), []job.Admittance{job.Enqueued, job.Enqueued, job.ParkedNow}; !slices.Equal(got, w) {
		t.Fatalf("got %v, want %v", got, w)
	}
	for _, j := range first {
		r := b.record(j.ID)
		want(t, "route of "+j.ID, r.Job.Route, j.Route)
		want(t, "batch of "+j.ID, r.Job.Batch, j.Batch)
	}
	again := append(slices.Clone(first), job.Job{ID: "a", Payload: payload}, job.Job{ID: "b", Payload: payload, Route: "refund"},
		job.Job{ID: "a", Payload: payload, Route: "void"}, job.Job{ID: "a", Payload: []byte(`{"n":2}`), Route: "refund"},
		job.Job{ID: "d", Payload: payload, Route: "void"}, job.Job{ID: "d", Payload: payload})
	w := []job.Admittance{job.Duplicate, job.Duplicate, job.Duplicate, job.Elsewhere, job.Elsewhere, job.Elsewhere, job.Conflict, job.ParkedNow, job.Elsewhere}
	if got := b.accept("park", again...); !slices.Equal(got, w) {
		t.Errorf("got %v, want %v", got, w)
	}
}

// An attempt knows its route, and the digest of what a call is made of is that of its route. If the digest of one route changes, only the jobs of that route stop.
func TestAnAttemptHasItsRoute(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, func(c *ledger.Config) {
		c.Sent, c.RouteSent = "own", map[string]string{"refund": "r1", "re-fund": "r2"}
	})
	b.accept("park", job.Job{ID: "a"}, job.Job{ID: "b", Route: "refund"}, job.Job{ID: "c", Route: "re-fund"}, job.Job{ID: "d", Route: "gone"})
	digests := map[string]string{"a": "own", "b": "r1", "c": "r2", "d": ""}
	open := func(wanted map[string]job.Opening) {
		t.Helper()
		pulled := map[string]int64{}
		for range digests {
			id, generation := b.pull()
			pulled[id] = generation
		}
		for id, generation := range pulled {
			a, what := b.open(id, generation, "w")
			want(t, "opening of "+id, what, wanted[id])
			if what != job.OpenGo {
				continue
			}
			want(t, "route of "+id, a.Job.Route, map[string]string{"b": "refund", "c": "re-fund", "d": "gone"}[id])
			want(t, "digest of "+id, b.c.HGet(b.ctx, b.keys.Job(id), "sd").Val(), digests[id])
			b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Verdict: job.VerdictUnknown, Unsure: true, At: time.Now()}, 0))
		}
		want(t, "jobs pulled", len(pulled), len(digests))
	}
	open(map[string]job.Opening{"a": job.OpenGo, "b": job.OpenGo, "c": job.OpenGo, "d": job.OpenGo})
	b.cfg.RouteSent = map[string]string{"refund": "r1", "re-fund": "other"}
	b.books = ledger.New(b.c, b.cfg)
	open(map[string]job.Opening{"a": job.OpenGo, "b": job.OpenGo, "c": job.OpenDiffers, "d": job.OpenGo})
}
