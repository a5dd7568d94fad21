package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// counter counts the round trips of a client, those of them for single jobs, and the scripts for single jobs.
type counter struct {
	keys              redisdb.Keys
	mu                sync.Mutex
	all, own, scripts int
}

func (c *counter) count(cmds []redis.Cmder, send func() error) error {
	c.mu.Lock()
	scripts := 0
	for _, cmd := range cmds {
		if c.forAJob(cmd) {
			scripts++
		}
	}
	c.all++
	c.own += min(scripts, 1)
	c.scripts += scripts
	c.mu.Unlock()
	return send()
}

func (c *counter) forAJob(cmd redis.Cmder) bool {
	first := ""
	if a := cmd.Args(); len(a) > 3 && cmd.Name() == "evalsha" {
		first, _ = a[3].(string)
	}
	return strings.HasPrefix(first, c.keys.JobPrefix()) || first == c.keys.Active() || first == c.keys.Pending() && len(cmd.Args()) == 15
}

// A job costs three scripts at most: for its dequeue, the opening of its attempt, and its outcome with the end of its task. Jobs in flight at the same time
// share round trips.
func TestAJobCostsThreeScriptsAtMost(t *testing.T) {
	gateway := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(gateway.Close)
	g := config.DefaultGateway()
	g.Name, g.Request.URL = testkit.Gateway(t), config.Secret(gateway.URL)
	g.Leak.Limits = []job.Limit{{N: 2000, Window: time.Second}}
	g.Admission.Limits, g.Admission.Burst = g.Leak.Limits, 10_000
	db, err := redisdb.Open(t.Context(), testkit.Redis(t), redisdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	const jobs = 1000
	all := make([]job.Job, jobs)
	for i := range all {
		all[i] = job.Job{ID: fmt.Sprint("j", i)}
	}
	door := Door(db.Client, &config.Config{Gateways: []config.Gateway{g}}, 0)
	if _, err := door.Admit(t.Context(), g.Name, all, admission.Park); err != nil {
		t.Fatal(err)
	}
	count := &counter{keys: redisdb.NewKeys(g.Name)}
	db.Client.AddHook(testkit.Around(count.count))
	d, err := New(Params{DB: db, Gateways: []config.Gateway{g}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	books := Books(testkit.Client(t), g)
	testkit.Eventually(t, 20*time.Second, "all jobs to be done", func() bool {
		s, err := books.Look(context.Background())
		return err == nil && s.Done == jobs
	})
	d.Stop(context.Background())
	t.Logf("%.2f scripts a job in %.2f round trips, and %.2f round trips with the share of slots, late reports, pulses and heartbeats",
		float64(count.scripts)/jobs, float64(count.own)/jobs, float64(count.all)/jobs)
	if count.scripts > jobs*31/10 {
		t.Errorf("%d scripts for %d jobs, want 3 each at most", count.scripts, jobs)
	}
}
