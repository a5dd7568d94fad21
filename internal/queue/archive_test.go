package queue

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
)

// asynq trims its archive, so no task of ours may get there, neither by errors of the handler, however many, nor by the expired lease of a
// killed worker. An error puts the task into asynq's retry set and spends none of its retries. The ledger's sweep recovers such tasks.
func TestNoTaskOfOursIsEverArchived(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := setup(t)
	inspector := asynq.NewInspectorFromRedisClient(r.c)
	if err := Announce(ctx, r.c, r.gw); err != nil {
		t.Fatal(err)
	}
	r.fail.Store(true)
	r.put(1, 2)
	// The second task was pulled by a worker that died. asynq leaves it to the sweep.
	r.c.LRem(ctx, r.keys.Pending(), 0, "j2~1")
	r.c.LPush(ctx, r.keys.Active(), "j2~1")
	r.c.HSet(ctx, r.keys.Task("j2~1"), "state", "active")
	r.c.ZAdd(ctx, r.keys.Lease(), redis.Z{Score: float64(time.Now().Add(-time.Minute).Unix()), Member: "j2~1"})
	r.start()
	const errors = 30 // asynq's own default is 25 retries
	for i := 1; i <= errors; i++ {
		r.allow(1)
		testkit.Eventually(t, 5*time.Second, "the task in asynq's retry set", func() bool {
			return len(r.deliveries()) == i && r.c.ZScore(ctx, r.keys.AsynqRetry(), "j1~1").Err() == nil
		})
		if i < errors {
			if err := inspector.RunTask(r.gw, "j1~1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for task, want := range map[string]asynq.TaskState{"j1~1": asynq.TaskStateRetry, "j2~1": asynq.TaskStateActive} {
		info, err := inspector.GetTaskInfo(r.gw, task)
		if err != nil {
			t.Fatal(err)
		}
		if info.State != want || info.Retried != 0 {
			t.Errorf("%s is in state %v after %d of %d retries (%s)", task, info.State, info.Retried, info.MaxRetry, info.LastErr)
		}
	}
	q, err := inspector.GetQueueInfo(r.gw)
	if err != nil {
		t.Fatal(err)
	}
	if q.Archived != 0 || q.Completed != 0 || q.Scheduled != 0 || q.Retry != 1 || q.Active != 1 {
		t.Errorf("archived %d, completed %d, scheduled %d, retry %d, active %d; want one in retry, one active and none elsewhere", q.Archived, q.Completed, q.Scheduled, q.Retry, q.Active)
	}
}
