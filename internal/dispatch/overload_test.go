package dispatch

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// The view of a gateway names a process that is too slow for it, and since when. It no longer does soon after the process last reported it.
func TestAnOverloadedProcessIsSeen(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [100/s]}", "leak: {limits: [100/s]}")
	d, err := New(Params{DB: r.db, Gateways: r.cfg.Gateways, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	var slow atomic.Bool
	d.tooSlow = func(time.Time) (int64, bool) { return 40, slow.Load() }
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Stop(t.Context()) })
	seen := func(at int) Glance {
		v, err := Look(t.Context(), r.db.Client, r.cfg.Gateways[at])
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	slowOne := func() (v Glance) {
		t.Helper()
		testkit.Eventually(t, 20*time.Second, "the process to be seen as too slow", func() bool { v = seen(0); return len(v.Slow) == 1 })
		return v
	}
	begun := seen(0)
	if len(begun.Slow) > 0 {
		t.Errorf("it is not too slow: %+v", begun.Slow)
	}
	slow.Store(true)
	for at := range r.cfg.Gateways {
		testkit.Eventually(t, 20*time.Second, "the process to be seen as too slow", func() bool { return len(seen(at).Slow) == 1 })
	}
	host, _ := os.Hostname()
	first := slowOne()
	s := first.Slow[0]
	if s.Process != fmt.Sprintf("%s.%d", host, os.Getpid()) || s.Slots != 40 || s.Since.Before(begun.Now.Add(-time.Second)) || s.Since.After(first.Now) {
		t.Errorf("%+v, looked at %v", s, first.Now)
	}
	key := redisdb.NewKeys(r.cfg.Gateways[0].Name).Slow()
	said := r.db.Client.HGet(t.Context(), key, s.Process).Val()
	testkit.Eventually(t, 20*time.Second, "it to say so again", func() bool { return r.db.Client.HGet(t.Context(), key, s.Process).Val() != said })
	const longer = 6 * time.Second
	var later Glance
	testkit.Eventually(t, 20*time.Second, "some reports more", func() bool { later = slowOne(); return later.Now.Sub(first.Now) > longer })
	if since := later.Slow[0].Since; since.Sub(s.Since).Abs() > longer/2 { // on a busy machine, a report is a while on its way
		t.Errorf("since %v, and before since %v", since, s.Since)
	}
	if left := r.db.Client.PTTL(t.Context(), key).Val(); left <= 0 || left > time.Minute {
		t.Errorf("the key goes in %v", left)
	}
	slow.Store(false)
	testkit.Eventually(t, 30*time.Second, "it to be seen no more", func() bool { return len(seen(0).Slow) == 0 })
	if took := seen(0).Now.Sub(first.Now); took < 8*time.Second {
		t.Errorf("it was seen for %v after it had said so", took)
	}
}
