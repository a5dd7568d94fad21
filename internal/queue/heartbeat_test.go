package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// sets counts commands that go by themselves and change asynq's sets of servers and workers, and pipelines that do; it fails those, if it is told to.
type sets struct {
	alone, together atomic.Int64
	fail            atomic.Bool
}

func (s *sets) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *sets) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a := cmd.Args(); cmd.Name() == "zadd" && (a[1] == allServers || a[1] == allWorkers) {
			s.alone.Add(1)
		}
		return next(ctx, cmd)
	}
}
func (s *sets) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if cmd.Args()[1] == allServers {
				s.together.Add(1)
				if s.fail.Load() {
					cmd.SetErr(errors.New("ERR full"))
				}
			}
		}
		return err
	}
}

// A heartbeat of asynq's goes in one round trip, and says what it says without that: the monitor sees the server, and no more when it has stopped.
func TestAHeartbeatIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	r, count := setup(t), &sets{}
	r.c = testkit.Server(t).Client()
	r.srv = NewServer(r.c, r.srv.cfg)
	r.c.AddHook(count)
	i := asynq.NewInspectorFromRedisClient(r.c)
	servers := func() int {
		all, err := i.Servers()
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	r.start()
	r.put(1, 1)
	r.allow(1) // an asynq server begins with the first job
	testkit.Eventually(t, 20*time.Second, "the server to be seen", func() bool { return servers() == 1 && count.together.Load() > 0 })
	if n := r.c.ZCard(t.Context(), allWorkers).Val(); n != 1 || count.alone.Load() > 0 {
		t.Errorf("%d workers' keys are listed, and %d parts went alone", n, count.alone.Load())
	}
	count.fail.Store(true)
	c := r.srv.consumer
	c.ZAdd(t.Context(), allServers, redis.Z{Member: "x"})
	if err := c.EvalSha(t.Context(), "00", []string{allServers + ":{x}", allWorkers + ":{x}"}).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Errorf("asynq does not hear that its script is not known: %v", err)
	}
	sha := r.c.ScriptLoad(t.Context(), "return 'OK'").Val()
	c.ZAdd(t.Context(), allServers, redis.Z{Member: "x"})
	if err := c.EvalSha(t.Context(), sha, []string{allServers + ":{x}", allWorkers + ":{x}"}).Err(); err == nil {
		t.Error("a part that failed is not heard of")
	}
}

// A server that begins removes what killed ones have left in asynq's sets, and nothing of those that may live.
func TestAServerRemovesWhatKilledOnesLeft(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.c = testkit.Server(t).Client()
	r.srv = NewServer(r.c, r.srv.cfg)
	now := time.Now()
	for _, set := range []string{allServers, allWorkers} {
		for name, ran := range map[string]time.Duration{"dead": 2 * time.Hour, "silent": time.Minute} {
			r.c.ZAdd(t.Context(), set, redis.Z{Member: name, Score: float64(now.Add(-ran).Unix())})
		}
	}
	r.start()
	r.put(1, 1)
	r.allow(1)
	testkit.Eventually(t, 20*time.Second, "the dead to be removed", func() bool {
		for _, set := range []string{allServers, allWorkers} {
			left := r.c.ZRange(t.Context(), set, 0, -1).Val()
			if len(left) != 2 || left[0] != "silent" {
				return false
			}
		}
		return true
	})
}

const leaseLength = 30 * time.Second

// Leases are dated, renewed and judged by Redis's clock, however far a dispatcher's own is from it.
func TestLeasesGoByRedisClock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, clock := testkit.SkewedServer(t)
	clock.Step(-time.Hour)
	r := setup(t)
	r.c = server.Client()
	r.srv = NewServer(r.c, r.srv.cfg)
	ends := func(task, what string) {
		t.Helper()
		now, err := r.c.Time(ctx).Result()
		end := r.c.ZScore(ctx, r.keys.Lease(), task).Val()
		if left := time.Unix(int64(end), 0).Sub(now); err != nil || left > leaseLength || left < leaseLength/2 {
			t.Errorf("the lease of a task that was %s has %s left by Redis's clock (%v), want %s", what, left, err, leaseLength)
		}
	}
	r.put(1, 1)
	if _, err := r.srv.src.pull(make([]job.Slot, 1)); err != nil {
		t.Fatal(err)
	}
	ends("j1~1", "pulled")
	r.c.ZAdd(ctx, r.keys.Lease(), redis.Z{Score: 1, Member: "j1~1"})
	member := redis.Z{Score: float64(time.Now().Add(leaseLength).Unix()), Member: r.srv.mark + "j1~1"}
	r.srv.consumer.ZAddXX(ctx, r.keys.Lease(), member, redis.Z{Score: member.Score, Member: r.srv.mark + "over"})
	testkit.Eventually(t, 5*time.Second, "the lease to be renewed", func() bool { return r.c.ZScore(ctx, r.keys.Lease(), "j1~1").Val() > 1 })
	ends("j1~1", "extended")
	if n := r.c.ZCard(ctx, r.keys.Lease()).Val(); n != 1 {
		t.Errorf("%d tasks have leases, and one is in hand", n)
	}

	r.c.HSet(ctx, r.keys.Task("at-work"), "msg", "junk", "state", "active")
	r.c.LPush(ctx, r.keys.Active(), "at-work")
	now := r.c.Time(ctx).Val()
	r.c.ZAdd(ctx, r.keys.Lease(), redis.Z{Score: float64(now.Add(leaseLength).Unix()), Member: "at-work"})
	if ids, _ := r.strays(); len(ids) > 0 {
		t.Errorf("strays: %v, and a worker has the task", ids)
	}
	if err := Drop(ctx, r.c, r.gw, "at-work"); err != nil || r.c.LLen(ctx, r.keys.Active()).Val() != 2 {
		t.Errorf("a task that a worker has is dropped: %v", err)
	}
}
