package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// endIt ends a task as the scripts do that end it together with its attempt.
func (r *rig) endIt(taskID string) {
	r.t.Helper()
	end := r.keys.TaskEnd(taskID, time.Now())
	const script = `redis.call('LREM', KEYS[1], 0, ARGV[1]) redis.call('ZREM', KEYS[2], ARGV[1]) return redis.call('DEL', KEYS[3])`
	if n, err := r.c.Eval(context.Background(), script, end.Keys[:3], taskID).Int(); err != nil || n != 1 {
		r.t.Errorf("end of task %s: %d, %v", taskID, n, err)
	}
}

// asynq does nothing with a task that a script has ended, whether its handler returns an error or not.
func TestATaskThatHasEndedIsNotEndedAgain(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]bool{"well": false, "with an error": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, log := setup(t), &testkit.Log{}
			r.srv = NewServer(r.c, ServerConfig{Gateway: r.gw, Concurrency: 20, Pacer: r.pacer, Grace: 5 * time.Second,
				Log: slog.New(slog.NewTextHandler(log, nil)), Handle: func(ctx context.Context, d job.Delivery) error {
					r.endIt(d.TaskID)
					r.srv.Ended(d.TaskID)
					return r.handle(ctx, d)
				}})
			r.fail.Store(fail)
			r.put(1, 3)
			r.allow(3)
			r.srv.Start()
			testkit.Eventually(t, 10*time.Second, "three deliveries", func() bool { return len(r.deliveries()) == 3 })
			r.srv.Stop(context.Background())
			if got := log.String(); got != "" {
				t.Errorf("asynq complains:\n%s", got)
			}
			left := r.c.Keys(context.Background(), fmt.Sprintf("asynq:{%s}:*", r.gw)).Val()
			for _, key := range left {
				if strings.Contains(key, ":t:") || strings.HasSuffix(key, "retry") || strings.HasSuffix(key, "active") || strings.HasSuffix(key, "lease") {
					t.Errorf("%s is left", key)
				}
			}
			if n := len(r.srv.src.ended.tasks); n != 0 {
				t.Errorf("%d tasks are still remembered as ended", n)
			}
		})
	}
}

// An ended task that asynq never asks about is forgotten after a while.
func TestAnEndThatNobodyAsksForIsForgotten(t *testing.T) {
	t.Parallel()
	var e ended
	begun := time.Now()
	e.add("a~1", begun)
	e.add("b~1", begun.Add(endedStays/2))
	e.add("c~1", begun.Add(endedStays+time.Second))
	if e.take("a~1") || !e.take("b~1") || !e.take("c~1") || e.take("c~1") || e.take(7) {
		t.Error("want b and c remembered, once each")
	}
}
