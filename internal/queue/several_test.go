package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
)

// pulls counts the pulls of more than one job, and the most jobs that one asks for.
type pulls struct{ n, most atomic.Int64 }

func (p *pulls) DialHook(next redis.DialHook) redis.DialHook { return next }
func (p *pulls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) == 16 && args[2] == 8 { // dequeue.lua's
			if jobs, _ := args[13].(int); jobs > 1 {
				p.n.Add(1)
				p.most.Store(max(p.most.Load(), int64(jobs)))
			}
		}
		return next(ctx, cmd)
	}
}
func (p *pulls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Jobs for slots that are due together are pulled together and in order, even if Redis does not know the scripts, and if there are fewer jobs than slots.
func TestSlotsThatAreDueTogetherArePulledForTogether(t *testing.T) {
	t.Parallel()
	r, count := setup(t), &pulls{}
	r.c.AddHook(count)
	r.put(1, 12)
	r.allow(15)
	r.start()
	testkit.Eventually(t, 10*time.Second, "twelve deliveries", func() bool { return len(r.deliveries()) == 12 })
	slot := map[string]int64{}
	for _, d := range r.deliveries() {
		slot[d.JobID] = d.Slot.At
	}
	for i := 1; i < 12; i++ {
		if slot[fmt.Sprintf("j%d", i)] >= slot[fmt.Sprintf("j%d", i+1)] {
			t.Errorf("j%d has slot %d, the next job %d", i, slot[fmt.Sprintf("j%d", i)], slot[fmt.Sprintf("j%d", i+1)])
		}
	}
	if count.n.Load() == 0 || count.most.Load() < 8 {
		t.Errorf("%d pulls of more than one job, of %d at most", count.n.Load(), count.most.Load())
	}
	testkit.Eventually(t, 10*time.Second, "the slots without a job to come back", func() bool { return r.pacer.given() == 3 })
	if n := r.pacer.times(); n != 1 {
		t.Errorf("three slots came back in %d round trips: what was pulled with them waits so long", n)
	}
}

// No more jobs are pulled together than can be handled.
func TestNoMoreIsPulledThanCanBeHandled(t *testing.T) {
	t.Parallel()
	c := &source{most: 200}
	for _, is := range []struct{ handling, air, jobs, want int }{{0, 0, 0, mostAtOnce}, {190, 4, 2, 4}, {199, 0, 0, 1}, {205, 0, 0, 1}} {
		c.handling, c.air, c.jobs = is.handling, is.air, make([]pulled, is.jobs)
		if got := c.atOnce(); got != is.want {
			t.Errorf("with %d in hand, %d under way and %d waiting: %d, want %d", is.handling, is.air, is.jobs, got, is.want)
		}
	}
	c.wary = true
	if got := c.atOnce(); got != 1 {
		t.Errorf("after a failure: %d, want 1", got)
	}
}

// dequeue.lua leaves what it pulls in the same state as asynq's own dequeue does for one task after the other. A key that is not a task delays no other.
func TestSeveralArePulledAsOneIs(t *testing.T) {
	t.Parallel()
	alone, with := setup(t), setup(t)
	together := func(r *rig, n int) []activeTask {
		tasks, err := pull(t.Context(), r.c, newTaskKeys(r.gw), wanted{now: 1204_000_000, most: n})
		if err != nil {
			t.Fatal(err)
		}
		return tasks
	}
	single := func(r *rig) any {
		keys := []string{r.keys.Pending(), r.keys.Paused(), r.keys.Active(), r.keys.Lease()}
		v, err := dequeue.Run(t.Context(), r.c, keys, 1234, r.keys.TaskPrefix()).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		return v
	}
	var one []any
	for _, r := range []*rig{alone, with} {
		r.put(1, 3)
		r.c.Set(t.Context(), r.keys.Task("odd"), "no hash", 0)
		r.c.RPush(t.Context(), r.keys.Pending(), "odd")
		r.put(4, 5)
	}
	if v := together(with, 3); len(v) != 3 || v[0] != (activeTask{id: "odd"}) || v[1].message == "" || v[2].message == "" {
		t.Errorf("pulled %v, want nothing for what is not a task, and two messages", v)
	}
	alone.c.RPopLPush(t.Context(), alone.keys.Pending(), alone.keys.Active())
	for range 2 {
		one = append(one, single(alone))
	}
	for range 4 {
		if v := single(alone); v != nil {
			one = append(one, v)
		}
	}
	v := together(with, 4)
	if len(v) != 3 || len(one) != 5 {
		t.Errorf("pulled %d and %d more of five", len(v), len(one))
	}
	for i := range 5 {
		task := fmt.Sprintf("j%d~1", i+1)
		a, b := alone.c.HGetAll(t.Context(), alone.keys.Task(task)).Val(), with.c.HGetAll(t.Context(), with.keys.Task(task)).Val()
		if a["state"] != "active" || a["state"] != b["state"] || len(a) != len(b) {
			t.Errorf("%s is %v one by one, %v together", task, a, b)
		}
		if score := with.c.ZScore(t.Context(), with.keys.Lease(), task).Val(); score != 1234 {
			t.Errorf("%s has a lease until %v", task, score)
		}
	}
	a, b := alone.c.LRange(t.Context(), alone.keys.Active(), 0, -1).Val(), with.c.LRange(t.Context(), with.keys.Active(), 0, -1).Val()
	if !slices.Equal(a, b) {
		t.Errorf("active one by one %v, together %v", a, b)
	}
	with.put(6, 7)
	with.c.Set(t.Context(), with.keys.Paused(), 1, 0)
	if v := together(with, 4); len(v) != 0 {
		t.Errorf("pulled %v of a queue that is paused", v)
	}
}
