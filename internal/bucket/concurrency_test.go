package bucket

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// unanswered counts commands that got no answer in time, as on a machine that stalls: their permits and leases may stay taken.
func unanswered(client redis.UniversalClient) *atomic.Int64 {
	n := &atomic.Int64{}
	client.AddHook(testkit.Around(func(_ []redis.Cmder, send func() error) error {
		err := send()
		if redisdb.Away(err) {
			n.Add(1)
		}
		return err
	}))
	return n
}

// Many goroutines do everything at once. Afterwards every slot that was not used has been given back, exactly once.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	client, gateway := testkit.Client(t), testkit.Gateway(t)
	lost := unanswered(client)
	keys := redisdb.NewKeys(gateway)
	cfg := PacerConfig{Gateway: gateway, Limits: []job.Limit{{N: 2000, Window: time.Second}}, MaxInFlight: 500, Burst: 50}
	fill(t, client, keys.Pending(), 100_000)
	p := newTestPacer(t, client, cfg)
	var used atomic.Int64
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 16 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s, err := pull(ctx, p, i, n)
				if err != nil {
					continue
				}
				switch {
				case n%7 == i%7:
					p.Empty(context.Background(), s)
				case n%5 == i%5:
					_ = p.Release(context.Background(), s)
				default:
					p.Ready(s, time.Now())
					if p.TooLate(s, time.Now()) {
						_ = p.Release(context.Background(), s)
						continue
					}
					used.Add(1)
					p.Written(s, time.Now())
					p.End(context.Background(), s)
				}
			}
		})
	}
	<-time.After(700 * time.Millisecond)
	testkit.Eventually(t, time.Minute, "calls to be made", func() bool { return used.Load() >= 20 })
	cancel()
	all.Wait()
	p.Close(context.Background())
	p.Close(context.Background())
	if _, err := p.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Next after Close: %v", err)
	}
	taken, _ := client.HGet(t.Context(), keys.Pace(), "n1").Int64()
	if taken < used.Load() || taken > used.Load() && lost.Load() == 0 {
		t.Errorf("%d permits are taken, %d slots were used", taken, used.Load())
	}
	if n := client.ZCard(t.Context(), keys.Flight()).Val(); n != 0 && lost.Load() == 0 {
		t.Errorf("%d leases are left", n)
	}
}

// pull gets a slot by Next or Take, sometimes with an impatient context.
func pull(ctx context.Context, p *Pacer, i, n int) (job.Slot, error) {
	if n%3 == 0 {
		short, cancel := context.WithTimeout(ctx, time.Duration(n%5)*time.Millisecond)
		defer cancel()
		ctx = short
	}
	if i%4 == 0 {
		return p.Take(ctx, 1, "")
	}
	return p.Next(ctx)
}

func TestIdleNextWakesAndLetsGo(t *testing.T) {
	t.Parallel()
	client, gateway := testkit.Client(t), testkit.Gateway(t)
	p := newTestPacer(t, client, PacerConfig{Gateway: gateway, Limits: []job.Limit{{N: 100, Window: time.Second}}})
	ctx, cancel := context.WithCancel(t.Context())
	slots, stopped := make(chan job.Slot), make(chan error)
	go func() {
		for {
			s, err := p.Next(ctx)
			if err != nil {
				stopped <- err
				return
			}
			client.RPop(context.Background(), redisdb.NewKeys(gateway).Pending())
			slots <- s
		}
	}()
	testkit.Eventually(t, 5*time.Second, "Next to have looked", func() bool { return p.asks.Load() > 0 })
	fill(t, client, redisdb.NewKeys(gateway).Pending(), 1)
	woken := time.Now()
	p.Wake()
	if s := <-slots; s.Zero() {
		t.Error("no slot")
	}
	if took := time.Since(woken); took > idlePoll/2 {
		t.Errorf("woken, Next took %s", took)
	}
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled, Next returned %v", err)
	}
}

// Without an answer from Redis there is no slot, and the caller does not wait beyond the end of its context.
func TestNoAnswerNoSlot(t *testing.T) {
	t.Parallel()
	server := testkit.Server(t)
	p := newTestPacer(t, server.Client(), PacerConfig{Gateway: "g", Limits: []job.Limit{{N: 100, Window: time.Second}}, MaxInFlight: 5})
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if s, err := p.Take(ctx, 1, ""); !errors.Is(err, context.DeadlineExceeded) || !s.Zero() {
		t.Errorf("got %v, %v", s, err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s to give up", took)
	}
	server.Continue()
	if _, err := p.Take(t.Context(), 1, ""); err != nil {
		t.Errorf("Redis is back: %v", err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	client, gateway := testkit.Client(t), testkit.Gateway(t)
	p, err := NewPacer(client, PacerConfig{Gateway: gateway, Limits: []job.Limit{{N: 5, Window: time.Second}}}, m)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Take(t.Context(), 2, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if g, r := p.meters.granted.Value(), p.meters.released.Value(); g != 1 || r != 1 {
		t.Errorf("granted %v, released %v", g, r)
	}
	faults, err := testutil.GatherAndLint(reg)
	if err != nil || len(faults) > 0 {
		t.Errorf("%v %v", faults, err)
	}
}

func TestPacerConfigCheck(t *testing.T) {
	t.Parallel()
	ok := job.Limit{N: 100, Window: time.Second}
	for want, cfg := range map[string]PacerConfig{
		"no usable gateway": {Limits: []job.Limit{ok}},
		"no limit":          {Gateway: "g"},
		"allows 0 calls":    {Gateway: "g", Limits: []job.Limit{{N: 0, Window: time.Second}}},
		"at most 8":         {Gateway: "g", Limits: []job.Limit{ok, ok, ok, ok, ok, ok, ok, ok, ok}},
		"above the limit":   {Gateway: "g", Limits: []job.Limit{ok}, Burst: 101},
		"negative":          {Gateway: "g", Limits: []job.Limit{ok}, Jitter: -1},
		"more than a year":  {Gateway: "g", Limits: []job.Limit{{N: 1, Window: 10000 * time.Hour}}},
	} {
		if _, err := NewPacer(testkit.Client(t), cfg, NewMetrics(nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
