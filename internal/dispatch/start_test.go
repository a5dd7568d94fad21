package dispatch

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// cutter loses one round trip. Those after it succeed.
type cutter struct {
	mu       sync.Mutex
	left     int  // how many round trips before it
	answered bool // Redis has run it: only the answer is lost
	done     bool
}

func (c *cutter) cuts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left--
	c.done = c.done || c.left < 0
	return c.left == -1
}

func (c *cutter) do(cmds []redis.Cmder, send func() error) error {
	if !c.cuts() {
		return send()
	}
	if c.answered {
		_ = send()
	}
	for _, cmd := range cmds {
		cmd.SetErr(io.EOF)
	}
	return io.EOF
}

// startWith starts a dispatcher that loses one of its round trips. It returns whether that happened before Start returned. Limits were set live before.
func startWith(t *testing.T, cut *cutter, p Params) (lost bool, err error) {
	t.Helper()
	r := setup(t, "leak: {limits: [100/s]}")
	p.DB, p.Gateways, p.Metrics, p.Log = r.db, r.cfg.Gateways, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	d, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := SetLimits(t.Context(), r.db.Client, r.cfg.Gateways[0], []job.Limit{{N: 5, Window: time.Second}}); err != nil {
		t.Fatal(err)
	}
	r.db.Client.AddHook(testkit.Around(cut.do))
	if err = d.Start(t.Context()); err == nil && d.units()[0].limits.Load() == 0 {
		t.Error("it has begun with the file's limits, not with those that were set live")
	}
	cut.mu.Lock()
	lost = cut.done
	cut.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	d.Stop(ctx)
	return lost, err
}

// A dispatcher starts although its connection is cut once, at any round trip, whether or not Redis ran the command.
func TestAStartOutlivesACutConnection(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{false, true} {
		for _, answered := range []bool{false, true} {
			lost, k := true, 0
			for ; lost; k++ {
				var err error
				if lost, err = startWith(t, &cutter{left: k, answered: answered}, Params{Patience: 10 * time.Second, AfterRestore: restored}); err != nil {
					t.Errorf("round trip %d lost (run: %v, after a restore: %v): %v", k+1, answered, restored, err)
				}
			}
			if k < 4 {
				t.Errorf("a start has %d round trips: this test loses none that matter", k)
			}
		}
	}
	if _, err := startWith(t, &cutter{}, Params{}); err == nil {
		t.Error("without patience the first cut ends the start")
	}
}
