package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// crew is a dispatcher whose gateways are added and removed.
type crew struct {
	*rig
	d       *Dispatcher
	metrics *prometheus.Registry
}

// hire starts a dispatcher for the gateways at these indices.
func hire(r *rig, state string, at ...int) *crew {
	r.t.Helper()
	c := &crew{rig: r, metrics: prometheus.NewRegistry()}
	var err error
	c.d, err = New(Params{DB: r.db, Gateways: c.of(at...), Metrics: c.metrics, Log: slog.New(slog.DiscardHandler), State: state, Patience: patience})
	if err == nil {
		err = c.d.Start(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { stop(c.d) })
	return c
}

func (c *crew) of(at ...int) (all []config.Gateway) {
	for _, i := range at {
		all = append(all, c.cfg.Gateways[i])
	}
	return all
}

// be reloads the dispatcher with the gateways at these indices.
func (c *crew) be(at ...int) Reloaded {
	c.t.Helper()
	did, err := c.d.Reload(c.t.Context(), c.of(at...))
	if err != nil {
		c.t.Fatal(err)
	}
	return did
}

func (c *crew) eventually(what string, cond func() bool) {
	c.t.Helper()
	testkit.Eventually(c.t, 30*time.Second, what, cond)
}

// figures counts the metrics of the gateway at that index.
func (c *crew) figures(at int) (n int) {
	c.t.Helper()
	families, err := c.metrics.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "gateway" && l.GetValue() == c.cfg.Gateways[at].Name {
					n++
				}
			}
		}
	}
	return n
}

// A gateway is added while another one is called at its limit. Redis does not answer commands for the new one. The other is still called, and never above its limit.
func TestANewGatewayDoesNotDisturbTheOthers(t *testing.T) {
	t.Parallel()
	r, j := judged(t, "{limits: [50/s], jitter: 10ms}")
	other := r.cfg.Gateways[0]
	other.Name = testkit.Gateway(t)
	other.Leak.Limits = []job.Limit{{N: 200, Window: time.Second}}
	other.Request.URL = config.Secret(willing(t))
	r.cfg.Gateways = append(r.cfg.Gateways, other)
	r.put(0, 150)
	r.put(1, 40)
	c := hire(r, "", 0)
	c.eventually("calls at the limit", func() bool { return len(j.calls()) >= 60 })
	asked := &unanswered{of: other.Name, answer: make(chan struct{})}
	r.db.Client.AddHook(testkit.Around(asked.wait))
	did := make(chan Reloaded)
	go func() {
		got, err := c.d.Reload(t.Context(), c.of(0, 1))
		if err != nil {
			t.Error(err)
		}
		did <- got
	}()
	c.eventually("a question for the new gateway", func() bool { return asked.times.Load() > 0 })
	c.eventually("the jobs of the other one", func() bool { return r.standing(0).Done == 150 })
	close(asked.answer)
	if did := <-did; len(did.Added) != 1 || did.Added[0].Name != other.Name || len(did.Removed) != 0 || len(did.Gateways) != 2 {
		t.Errorf("the reload came to %+v", did)
	}
	r.more(0, 150, 50)
	c.eventually("the new gateway's jobs", func() bool { return r.standing(1).Done == 40 })
	c.eventually("the others", func() bool { return r.standing(0).Done == 200 })
	if most := j.most(time.Second, 0); most > 50 {
		t.Errorf("%d calls in a second, the limit is 50", most)
	}
}

// unanswered makes Redis commands for one gateway wait.
type unanswered struct {
	of     string
	answer chan struct{} // closes when Redis is to answer
	times  atomic.Int64
}

func (u *unanswered) wait(cmds []redis.Cmder, send func() error) error {
	for _, cmd := range cmds {
		if strings.Contains(fmt.Sprint(cmd.Args()...), u.of) {
			u.times.Add(1)
			<-u.answer
			break
		}
	}
	return send()
}

// willing returns the address of a gateway that accepts every call.
func willing(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// A gateway is removed while calls are in flight. They finish, no other call is made, and its jobs wait. When the gateway is added again, they are called.
func TestAGatewayThatGoesFinishesItsCallsAndKeepsItsJobs(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [1000/s], burst: 100, max_in_flight: 8}", quick)
	r.hang = make(chan struct{})
	r.put(0, 30)
	c := hire(r, "", 0, 1)
	c.eventually("eight calls under way", func() bool { return r.count() == 8 })
	if c.figures(0) == 0 {
		t.Fatal("no metric names the gateway")
	}
	if did := c.be(1); len(did.Removed) != 1 || did.Removed[0] != c.cfg.Gateways[0].Name || len(did.Gateways) != 1 {
		t.Errorf("the reload came to %+v", did)
	}
	r.release()
	c.eventually("the calls' end", func() bool { return r.standing(0).Done == 8 && c.figures(0) == 0 })
	if s := r.standing(0); r.count() != 8 || s.Queued != 22 || s.InFlight != 0 || len(s.Parked) != 0 {
		t.Errorf("%d calls, and the books say %+v", r.count(), s)
	}
	if c.figures(1) == 0 {
		t.Error("the other gateway's metrics are gone as well")
	}
	c.be(0, 1)
	c.eventually("the other jobs", func() bool { return r.standing(0).Done == 30 })
	if r.count() != 30 || c.figures(0) == 0 {
		t.Errorf("%d calls of 30 jobs, %d metrics", r.count(), c.figures(0))
	}
	r.put(1, 5)
	c.eventually("the jobs of the gateway that stayed", func() bool { return r.standing(1).Done == 5 })
}

// release lets the gateway answer.
func (r *rig) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.hang)
	r.hang = nil
}

// A gateway is added again while its earlier calls are still in flight. It continues at once, and its metrics stay.
func TestAGatewayMayComeBackBeforeItHasLeft(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [1000/s], burst: 100, max_in_flight: 8}", quick)
	r.hang = make(chan struct{})
	r.put(0, 30)
	c := hire(r, "", 0, 1)
	c.eventually("eight calls under way", func() bool { return r.count() == 8 })
	c.be(1)
	c.be(1, 0)
	r.release()
	c.eventually("all jobs", func() bool { return r.standing(0).Done == 30 })
	c.d.leaving.Wait()
	if r.count() != 30 || c.figures(0) == 0 {
		t.Errorf("%d calls of 30 jobs, %d metrics", r.count(), c.figures(0))
	}
}

// Two hundred gateways are added at once, each with a waiting job, and one with a limit that was set live. All are served, and the gateway that was there before
// is not delayed.
func TestManyGatewaysComeAndGoAtOnce(t *testing.T) {
	t.Parallel()
	const many = 200
	settings := make([]string, many+1)
	for i := range settings {
		settings[i] = quick
	}
	r := setup(t, settings...)
	all, door := make([]int, many+1), Door(r.db.Client, r.cfg, patience)
	for i := range all {
		all[i] = i
		name := r.cfg.Gateways[i].Name
		if _, err := door.Admit(t.Context(), name, []job.Job{{ID: "j0000", Gateway: name, Payload: []byte(`{}`), Cost: 1}}, admission.Park); err != nil {
			t.Fatal(err)
		}
	}
	live := []job.Limit{{N: 7, Window: time.Second}}
	if err := SetLimits(t.Context(), r.db.Client, r.cfg.Gateways[100], live); err != nil {
		t.Fatal(err)
	}
	c := hire(r, "", 0)
	c.eventually("the first gateway's job", func() bool { return r.standing(0).Done == 1 })
	c.be(all...)
	if u := c.d.byName()[c.cfg.Gateways[100].Name]; u.limitsNow() != fmt.Sprint(live) {
		t.Errorf("served with the limits %s, while %v are set live", u.limitsNow(), live)
	}
	c.eventually("every job", func() bool { return r.count() == many+1 })
	c.be(0)
	c.d.leaving.Wait()
	for _, at := range []int{1, 100, many} {
		if s := r.standing(at); s.Done != 1 || c.figures(at) != 0 {
			t.Errorf("gateway %d: %+v, %d metrics", at, s, c.figures(at))
		}
	}
}

// The data of a gateway that is added is checked as at a start: no call is made if it is older than what this machine has seen.
func TestANewGatewayWithOldDataIsNotCalled(t *testing.T) {
	t.Parallel()
	r := setup(t, quick, quick)
	state := t.TempDir()
	r.put(1, 5)
	c := hire(r, state, 0, 1)
	c.eventually("the jobs", func() bool { return r.standing(1).Done == 5 })
	c.eventually("a sign of life", func() bool { return c.d.units()[1].data.Memory().At > 0 })
	c.be(0)
	r.age(1, time.Minute)
	r.more(1, 5, 5)
	c.be(0, 1)
	c.eventually("the doubt", func() bool { return c.d.units()[1].data.Doubted() })
	if err := c.d.Ready(); err == nil || r.count() != 5 {
		t.Errorf("ready: %v, after %d calls", err, r.count())
	}
}

// If an added gateway can't be set up, the whole reload is refused and leaves nothing behind.
func TestANewGatewayThatCannotBeHadChangesNothing(t *testing.T) {
	t.Parallel()
	r := setup(t, quick, quick, quick)
	c := hire(r, "", 0)
	gateways := c.of(1, 2) // and the first one is gone
	gateways[1].Request.URL = "ftp://nowhere/"
	if _, err := c.d.Reload(t.Context(), gateways); err == nil || !strings.Contains(err.Error(), gateways[1].Name) {
		t.Errorf("%v, want a word on %s", err, gateways[1].Name)
	}
	r.put(0, 3)
	c.eventually("jobs of the gateway that was there", func() bool { return r.standing(0).Done == 3 })
	if len(c.d.units()) != 1 || c.figures(1) != 0 || c.figures(2) != 0 {
		t.Errorf("%d gateways served, %d and %d metrics of the others", len(c.d.units()), c.figures(1), c.figures(2))
	}
}

// Redis does not answer when a gateway is added. The gateway is served as soon as Redis answers.
func TestANewGatewayWaitsForRedis(t *testing.T) {
	t.Parallel()
	r := setup(t, quick, quick)
	c := hire(r, "", 0)
	r.put(1, 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what a Redis that does not answer comes to
	if _, err := c.d.Reload(ctx, c.of(0, 1)); err != nil {
		t.Fatal(err)
	}
	c.eventually("the jobs", func() bool { return r.standing(1).Done == 3 })
}

// A gateway whose line in the file moved keeps its connections.
func TestAGatewayWhoseLineMovedIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := setup(t, quick)
	c := hire(r, "", 0)
	before := c.d.units()[0].now()
	r.cfg.Gateways[0].At.Line += 7
	if did := c.be(0); c.d.units()[0].now() != before || did.Gateways[0].At.Line != r.cfg.Gateways[0].At.Line {
		t.Errorf("the gateway was set up again; its line is %d now", did.Gateways[0].At.Line)
	}
}

// A stop waits no longer than the longest time-out of the gateways at the start.
func TestANewGatewaysTimeoutIsBounded(t *testing.T) {
	t.Parallel()
	r := setup(t, quick, quick)
	r.cfg.Gateways[1].Request.Timeout = time.Hour
	c := hire(r, "", 0)
	did := c.be(0, 1)
	if got := did.Gateways[1].Request.Timeout; got != 20*time.Second || len(did.Kept) != 1 || !strings.Contains(did.Kept[0], "request.timeout") {
		t.Errorf("a time-out of %s, kept: %v", got, did.Kept)
	}
}
