package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
)

func (r *rig) strays() (ids, payloads []string) {
	r.t.Helper()
	all, err := Strays(context.Background(), r.c, r.gw)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range all {
		ids, payloads = append(ids, s.TaskID), append(payloads, string(s.Payload))
	}
	return ids, payloads
}

// Foreign tasks that asynq put aside or lost are found, and are gone after Drop.
func TestForeignTasksThatNobodyLooksAtAreFound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := setup(t)
	r.foreign("to-archive", overdue, asynq.MaxRetry(0))
	r.foreign("to-retry", overdue)
	r.start()
	r.allow(2)
	testkit.Eventually(t, 5*time.Second, "asynq to put both aside", func() bool {
		return r.c.ZCard(ctx, r.keys.AsynqRetry()).Val() == 1 && r.c.ZCard(ctx, r.keys.AsynqArchive()).Val() == 1
	})
	for _, id := range []string{"no-lease", "dead-lease"} {
		r.c.HSet(ctx, r.keys.Task(id), "msg", "junk", "state", "active")
		r.c.LPush(ctx, r.keys.Active(), id)
	}
	r.c.ZAdd(ctx, r.keys.Lease(), redis.Z{Score: float64(time.Now().Add(-time.Minute).Unix()), Member: "dead-lease"})

	ids, payloads := r.strays()
	if want := []string{"dead-lease", "no-lease", "to-retry", "to-archive"}; !slices.Equal(ids, want) {
		t.Errorf("found %v, want %v", ids, want)
	}
	if want := []string{"junk", "junk", "hello", "hello"}; !slices.Equal(payloads, want) {
		t.Errorf("they hold %q, want %q", payloads, want)
	}
	for _, id := range ids {
		if err := Drop(ctx, r.c, r.gw, id); err != nil {
			t.Fatal(err)
		}
	}
	if ids, _ := r.strays(); len(ids) > 0 {
		t.Errorf("dropped, and still there: %v", ids)
	}
	if n := r.c.Exists(ctx, r.keys.Task("to-retry"), r.keys.Task("no-lease"), r.keys.Active(), r.keys.Lease(), r.keys.AsynqRetry(), r.keys.AsynqArchive()).Val(); n != 0 {
		t.Errorf("%d of asynq's keys are left", n)
	}
}

// A task in work, a waiting task, and every task of ours is not a stray, and Drop does not delete it.
func TestWhatIsLookedAfterIsNoStray(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := setup(t)
	r.foreign("waits")
	r.c.LPush(ctx, r.keys.Active(), "at-work", "j1~1")
	r.c.HSet(ctx, r.keys.Task("at-work"), "msg", "junk", "state", "active")
	r.c.ZAdd(ctx, r.keys.Lease(), redis.Z{Score: float64(time.Now().Add(30 * time.Second).Unix()), Member: "at-work"})
	r.c.ZAdd(ctx, r.keys.AsynqRetry(), redis.Z{Score: 1, Member: "j2~1"})
	if ids, _ := r.strays(); len(ids) > 0 {
		t.Errorf("strays: %v", ids)
	}
	for _, id := range []string{"waits", "at-work"} {
		if err := Drop(ctx, r.c, r.gw, id); err != nil {
			t.Fatal(err)
		}
		if r.c.Exists(ctx, r.keys.Task(id)).Val() != 1 {
			t.Errorf("%s was dropped", id)
		}
	}
	if r.c.LLen(ctx, r.keys.Active()).Val() != 2 {
		t.Error("one at work was dropped")
	}
}
