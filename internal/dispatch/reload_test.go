package dispatch

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// strict is a provider that records when each call arrived.
type strict struct {
	t *testing.T
	p *provider.Provider
}

// judged makes a gateway whose calls go to a strict provider.
func judged(t *testing.T, leak string) (*rig, *strict) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j := &strict{t, provider.New(provider.Config{})}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- j.p.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-served })
	r := &rig{t: t}
	text := fmt.Sprintf("redis: %s\ngateways:\n  %s:\n    request: {url: \"http://%s/\", timeout: 20s}\n    leak: %s\n    admission: {limits: [100000/s]}\n",
		testkit.Redis(t), testkit.Gateway(t), ln.Addr(), leak)
	r.parse(text)
	if r.db, err = Open(t.Context(), r.cfg, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	return r, j
}

func (r *rig) parse(text string) {
	r.t.Helper()
	var err error
	if r.cfg, err = config.Parse("x.yaml", []byte(text), config.Options{Secrets: true}); err != nil {
		r.t.Fatal(err)
	}
}

// calls returns when all calls arrived, in µs since 1970, in order.
func (j *strict) calls() []int64 {
	var at []int64
	for _, c := range j.p.Calls() {
		at = append(at, c.At)
	}
	slices.Sort(at)
	return at
}

// most returns the most calls in any window of this length, of those that arrived at from or later.
func (j *strict) most(window time.Duration, from int64) int {
	at, first, most := j.calls(), 0, 0
	at = slices.DeleteFunc(at, func(us int64) bool { return us < from })
	for i := range at {
		for at[i]-at[first] >= window.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// reload makes a dispatcher take over other limits.
func (r *rig) reload(d *Dispatcher, leak func(*config.Leak)) {
	r.t.Helper()
	g := r.cfg.Gateways[0]
	leak(&g.Leak)
	if out, err := d.Reload(r.t.Context(), []config.Gateway{g}); err != nil || len(out.Kept) > 0 {
		r.t.Fatalf("%v, kept: %v", err, out.Kept)
	}
}

// Two dispatchers read a file with lower limits, one after the other. Until both have read it, the gateway's calls are within the higher limits, and
// from then on within the lower ones.
func TestLimitsOfAReloadedFileHold(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]job.Limit{
		"other number": {N: 20, Window: time.Second},
		"other window": {N: 8, Window: 400 * time.Millisecond}, // one window is waited for whenever the other process had its turn
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, j := judged(t, "{limits: [50/s], jitter: 10ms}")
			lower := func(l *config.Leak) { l.Limits = []job.Limit{to} }
			one, two, mixed := r.serve(), r.serve(), 25
			if to.Window != time.Second {
				mixed = 8
			}
			r.put(0, 2000)
			seen := func(n int) func() bool { return func() bool { return len(j.calls()) >= n } }
			testkit.Eventually(t, 30*time.Second, "calls at the old limit", seen(60))
			r.reload(one, lower)
			testkit.Eventually(t, 30*time.Second, "calls at both limits", seen(60+mixed))
			r.reload(two, lower)
			from := time.Now().UnixMicro()
			testkit.Eventually(t, 30*time.Second, "calls at the new limit", seen(len(j.calls())+40))
			if most := j.most(time.Second, 0); most > 50 {
				t.Errorf("%d calls in a second, neither file allows more than 50", most)
			}
			if most := j.most(to.Window, from); most > int(to.N) {
				t.Errorf("%d calls within %s after both had read the file, which allows %d", most, to.Window, to.N)
			}
		})
	}
}

// The file is changed and reloaded while limits are set live. The live limits hold until they are reset, and then the limits of the new file.
func TestLimitsSetLiveWinOverAReloadedFile(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [50/s]}")
	d := r.serve()
	u := d.units()[0]
	holds := func(n int64) func() bool {
		return func() bool {
			u.pacing.Lock()
			defer u.pacing.Unlock()
			return u.kept.Limits[0].N == n
		}
	}
	set := func(to ...job.Limit) {
		if err := SetLimits(t.Context(), r.db.Client, r.cfg.Gateways[0], to); err != nil {
			t.Fatal(err)
		}
	}
	set(job.Limit{N: 30, Window: time.Second})
	testkit.Eventually(t, 10*time.Second, "the limit set live", holds(30))
	r.reload(d, func(l *config.Leak) { l.Limits = []job.Limit{{N: 20, Window: time.Second}} })
	if !holds(30)() {
		t.Error("the file's limit took the place of the one set live")
	}
	set()
	testkit.Eventually(t, 10*time.Second, "the new file's limit", holds(20))
}

// A reload that can't be applied is refused as a whole: the gateways before the faulty one keep their old settings, too.
func TestAReloadIsTakenOverAsAWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	r := setup(t, quick, quick)
	d := r.serve()
	first, second := r.cfg.Gateways[0], r.cfg.Gateways[1]
	first.Leak.Limits = []job.Limit{{N: 7, Window: time.Second}}
	second.Request.URL = "ftp://nowhere/"
	if _, err := d.Reload(t.Context(), []config.Gateway{first, second}); err == nil || !strings.Contains(err.Error(), second.Name) {
		t.Errorf("%v, want a word on %s", err, second.Name)
	}
	if n := d.units()[0].kept.Limits[0].N; n != 100 {
		t.Errorf("the first gateway keeps %d/s although nothing was taken over", n)
	}
}

// A stop waits for calls at most as long as the time-out at the start. A reload does not apply a longer time-out, and says so.
func TestALongerTimeoutWaitsForARestart(t *testing.T) {
	t.Parallel()
	r := setup(t, quick)
	d := r.serve()
	g := r.cfg.Gateways[0]
	g.Request.Timeout, g.Retry.Attempts = time.Minute, 3
	out, err := d.Reload(t.Context(), []config.Gateway{g})
	if err != nil || len(out.Kept) != 1 || !strings.Contains(out.Kept[0], "request.timeout") {
		t.Fatalf("%v, kept: %v", err, out.Kept)
	}
	if g := out.Gateways[0]; g.Request.Timeout != 20*time.Second || g.Retry.Attempts != 3 {
		t.Errorf("in force: a time-out of %s and %d attempts", g.Request.Timeout, g.Retry.Attempts)
	}
}

// A process has room for as many concurrent calls as its first file needed. A reload warns of a limit that needs many more, but not of one that is twice as high.
func TestManyMoreCallsAtOnceWaitForARestart(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [1/s]}")
	d := r.serve()
	g := r.cfg.Gateways[0]
	for n, told := range map[int64]bool{2: false, 1000: true} {
		g.Leak.Limits = []job.Limit{{N: n, Window: time.Second}}
		out, err := d.Reload(t.Context(), []config.Gateway{g})
		if err != nil || (len(out.Kept) > 0) != told || told && !strings.Contains(out.Kept[0], "more than 20 calls") {
			t.Errorf("%d/s: %v, kept: %v", n, err, out.Kept)
		}
	}
}

// If Redis is away during a reload, secrets apply at once, and limits when it is back.
func TestAReloadWithoutRedisIsMadeUpFor(t *testing.T) {
	t.Parallel()
	r := setup(t, quick)
	d := r.serve()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what a Redis that does not answer comes to
	g := r.cfg.Gateways[0]
	g.Leak.Limits, g.Retry.Attempts = []job.Limit{{N: 7, Window: time.Second}}, 3
	if _, err := d.Reload(ctx, []config.Gateway{g}); err != nil {
		t.Fatal(err)
	}
	if n := d.units()[0].now().cfg.Retry.Attempts; n != 3 {
		t.Errorf("%d attempts", n)
	}
	testkit.Eventually(t, 10*time.Second, "the new limit", func() bool {
		u := d.units()[0]
		u.pacing.Lock()
		defer u.pacing.Unlock()
		return u.kept.Limits[0].N == 7
	})
}
