package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// A job's lane stays in its record. If jobs name their lanes, another lane makes it another payment; else the payload determines the lane.
func TestALaneIsPartOfTheJobWhereItNamesIt(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		b := setup(t, 10, func(c *ledger.Config) { c.OwnLanes = own })
		payload := []byte(`{"n":1}`)
		first := []job.Job{{ID: "a", Payload: payload, Lane: "one two"}, {ID: "b", Payload: payload, Batch: "three 4"}, {ID: "c", Payload: payload, Lane: "=3 x", Route: "r", Batch: "three 4", Cost: 2}}
		if got, w := b.accept("park", first...), []job.Admittance{job.Enqueued, job.Enqueued, job.Enqueued}; !slices.Equal(got, w) {
			t.Fatalf("got %v, want %v", got, w)
		}
		for _, j := range first {
			r := b.record(j.ID)
			want(t, "lane of "+j.ID, r.Job.Lane, j.Lane)
			want(t, "batch of "+j.ID, r.Job.Batch, j.Batch)
			want(t, "route of "+j.ID, r.Job.Route, j.Route)
		}
		other := job.Duplicate
		if own {
			other = job.Elsewhere
		}
		again := append(slices.Clone(first), job.Job{ID: "a", Payload: payload}, job.Job{ID: "b", Payload: payload, Lane: "x"}, job.Job{ID: "a", Payload: []byte(`{"n":2}`), Lane: "one two"})
		w := []job.Admittance{job.Duplicate, job.Duplicate, job.Duplicate, other, other, job.Conflict}
		if got := b.accept("park", again...); !slices.Equal(got, w) {
			t.Errorf("own %v: got %v, want %v", own, got, w)
		}
		for range first {
			id, generation := b.pull()
			a, what := b.open(id, generation, "w")
			want(t, "opening of "+id, what, job.OpenGo)
			want(t, "lane of "+id+"'s attempt", a.Job.Lane, map[string]string{"a": "one two", "c": "=3 x"}[id])
		}
	}
}

// Jobs of a class that are in lanes come back into the queue when the gateway has neither any more, even if the class's own line has been given up, or something
// else has overwritten or deleted the lane's record.
func TestJobsOfAClassComeOutOfTheirLanes(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]string{"whole": "cmsgpack.pack({0, '', {}, 'urgent:', 0, 2})", "damaged": `'\193'`, "gone": ""} {
		t.Run(name, func(t *testing.T) {
			b := classed(t, 100, 100)
			b.accept("park", of("urgent", "u", 3)...)
			line := b.keys.FlowLines("urgent", "", "")[1]
			b.must(b.c.Rename(b.ctx, b.keys.First("urgent"), line).Err())
			b.must(b.c.HSet(b.ctx, b.keys.Classes(), "#lanes", 0).Err())
			b.must(b.c.HSet(b.ctx, b.keys.Lanes(), "on", "urgent: ", "tasks", 3, "nurgent:", 3).Err())
			b.must(b.c.ZAdd(b.ctx, b.keys.Ready("urgent:"), redis.Z{}).Err())
			if record != "" {
				b.must(b.c.Eval(b.ctx, "return redis.call('SET', KEYS[1], "+record+")", []string{b.keys.Lane("")}).Err())
			}
			b.cfg.First = nil
			b.books = ledger.New(b.c, b.cfg)
			s, err := b.books.Sort(b.ctx)
			b.must(err)
			want(t, "moved", s.Unlaned, 3)
			want(t, "pending", fmt.Sprint(b.c.LRange(b.ctx, b.keys.Pending(), 0, -1).Val()), "[u2~1 u1~1 u0~1]")
			want(t, "classes left", fmt.Sprint(b.c.HKeys(b.ctx, b.keys.Classes()).Val()), "[#lanes]")
		})
	}
}
