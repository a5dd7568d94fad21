package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// exhaust parks n jobs of the gateway at that index as exhausted, and makes them due for an automatic replay.
func (r *rig) exhaust(at, n int) {
	r.t.Helper()
	g, ctx := r.cfg.Gateways[at], r.t.Context()
	books, store, keys := Books(r.db.Client, g), deadletter.New(r.db.Client, g.Name), redisdb.NewKeys(g.Name)
	r.put(at, n)
	for range n {
		task, err := r.db.Client.RPop(ctx, keys.Pending()).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		id, generation, _ := job.ParseTaskID(task)
		a, _, err := books.Open(ctx, id, generation, "me", time.Minute)
		if err != nil {
			r.t.Fatal(err)
		}
		e := job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: time.Now(), Error: "HTTP 500"}
		if err := store.Park(ctx, a, e, job.Exhausted); err != nil {
			r.t.Fatal(err)
		}
		if err := r.db.Client.ZAdd(ctx, keys.Again(), redis.Z{Score: 1, Member: id}).Err(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// While the gateway is paused, exhausted jobs stay parked. When it is resumed, two dispatchers replay them, and each is called once. A gateway
// whose configuration does not ask for this keeps them parked.
func TestExhaustedJobsGoInByThemselvesWhenTheGatewayIsWell(t *testing.T) {
	t.Parallel()
	const n = 30
	r := setup(t, "leak: {limits: [1000/s]}\nreplay: {rejected: auto, exhausted: after-recovery}", "leak: {limits: [1000/s]}")
	pacer, err := Pacer(r.db.Client, r.cfg.Gateways[0], bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := pacer.Pause(t.Context(), "an outage"); err != nil {
		t.Fatal(err)
	}
	r.exhaust(0, n)
	r.exhaust(1, 1)
	first := r.serve()
	r.serve()
	for _, u := range first.units()[:1] { // while it is paused, this replays nothing
		if err := u.recoverOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.standing(0); s.Parked[job.Exhausted] != n {
		t.Fatalf("while it is paused: %+v", s)
	}
	if err := pacer.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, "all to be done", func() bool { return r.standing(0).Done == n })
	if r.count() != n {
		t.Errorf("%d calls, want %d", r.count(), n)
	}
	for i := range n {
		rec, _, err := Books(r.db.Client, r.cfg.Gateways[0]).Find(t.Context(), fmt.Sprintf("j%04d", i))
		if err != nil || rec.Replays != 1 {
			t.Errorf("job %d: %d replays, %v", i, rec.Replays, err)
		}
	}
	if s := r.standing(1); s.Parked[job.Exhausted] != 1 {
		t.Errorf("where nobody asked for it: %+v", s)
	}
}
