package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
)

// pipelines counts those that pull more than one job, and how many they pull at most.
type pipelines struct{ n, most atomic.Int64 }

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.n.Add(1)
		p.most.Store(max(p.most.Load(), int64(len(cmds))))
		return next(ctx, cmds)
	}
}

// Slots that are due together are pulled for together, in order, also when Redis knows none of the scripts and when there are fewer jobs.
func TestSlotsThatAreDueTogetherArePulledForTogether(t *testing.T) {
	t.Parallel()
	r, count := setup(t), &pipelines{}
	r.c.AddHook(count)
	r.put(1, 12)
	r.allow(15)
	r.start()
	testkit.Eventually(t, 10*time.Second, "twelve deliveries", func() bool { return len(r.deliveries()) == 12 })
	slot := map[string]int64{}
	for _, d := range r.deliveries() {
		slot[d.JobID] = d.Slot
	}
	for i := 1; i < 12; i++ {
		if slot[fmt.Sprintf("j%d", i)] >= slot[fmt.Sprintf("j%d", i+1)] {
			t.Errorf("j%d has slot %d, the next job %d", i, slot[fmt.Sprintf("j%d", i)], slot[fmt.Sprintf("j%d", i+1)])
		}
	}
	if count.n.Load() == 0 || count.most.Load() < 8 {
		t.Errorf("%d pulls of more than one job, of %d at most", count.n.Load(), count.most.Load())
	}
	testkit.Eventually(t, 10*time.Second, "the slots without a job to come back", func() bool { return r.gate.given() == 3 })
	if n := r.gate.times(); n != 1 {
		t.Errorf("three slots came back in %d round trips: what was pulled with them waits so long", n)
	}
}

// No more jobs are pulled together than asynq has hands for.
func TestNoMoreIsPulledThanThereAreHands(t *testing.T) {
	t.Parallel()
	c := &gatedClient[int64]{most: 20}
	for _, is := range []struct{ handling, air, jobs, want int }{{0, 0, 0, mostPulls}, {10, 4, 2, 4}, {19, 0, 0, 1}, {25, 0, 0, 1}} {
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
