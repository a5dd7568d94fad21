package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/audit"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// till is a gateway that records the order of its calls, as the first letters of the job ids.
type till struct {
	mu    sync.Mutex
	order strings.Builder
}

func (g *till) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order.WriteString(r.Header.Get("Idempotency-Key")[:1])
}

func (g *till) called() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.order.String()
}

const classes = "priority: {classes: [urgent, normal, batch], default: normal, floors: {batch: 10%}}"

// classJobs returns n jobs of a class, whose ids begin with a letter.
func classJobs(class, letter string, n int) (jobs []job.Job) {
	for i := range n {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("%s%04d", letter, i), Priority: class})
	}
	return jobs
}

// clean fails the test if the books are not in order.
func (r *rig) clean() {
	r.t.Helper()
	g := r.cfg.Gateways[0]
	a, err := audit.New(r.db.Client, g.Name, Books(r.db.Client, g)).Audit(r.t.Context(), audit.Params{Most: 10})
	if err != nil {
		r.t.Fatal(err)
	}
	if a.Faults.Total > 0 {
		r.t.Errorf("audit: %+v", a.Faults)
	}
}

// An urgent job is called before many jobs that came earlier, even if these have used up the room at admission. A class with a floor gets its share.
func TestUrgentJobsGoFirst(t *testing.T) {
	t.Parallel()
	g := &till{}
	virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, "leak: {limits: [100/s], jitter: 1ms}\nadmission: {limits: [1/h], burst: 300}\n"+classes, func(t *testing.T, r *rig) {
		r.admit(classJobs("batch", "b", 200)...)
		r.admit(classJobs("", "n", 130)...)
		if s := r.standing(0); s.Queued != 150+75 || s.Parked[job.Rejected] != 50+55 { // half of the room, and half of what was left
			t.Fatalf("%d queued, %d rejected", s.Queued, s.Parked[job.Rejected])
		}
		for _, said := range r.admit(classJobs("urgent", "u", 20)...) {
			if said != string(job.Enqueued) {
				t.Fatalf("an urgent job: %s", said)
			}
		}
		r.clean()
		r.serve()
		testkit.Eventually(t, 20*time.Second, "some calls", func() bool { return len(g.called()) >= 125 })
		order := g.called()
		if first := order[:30]; strings.Count(first, "u") != 20 { // with what their floor gives the batch
			t.Errorf("the first calls were %s", first)
		}
		if n := strings.Count(order[:120], "b"); n < 8 || n > 16 {
			t.Errorf("of 120 calls %d were batch jobs, with a floor of 10 %%: %s", n, order[:120])
		}
		r.clean()
		r.admit(classJobs("urgent", "v", 1)...)
		at := len(g.called())
		testkit.Eventually(t, 10*time.Second, "the lone urgent job", func() bool { return strings.Contains(g.called(), "v") })
		if place := strings.Index(g.called(), "v") - at; place > 60 { // those that were pulled, and what went out meanwhile
			t.Errorf("a lone urgent job was called after %d others", place)
		}
	})
}

// A reload removes a class whose jobs wait for room or are in hand. These jobs enter the line of that class later, so the dispatcher looks there again soon, and not only after a minute.
func TestJobsOfAClassThatIsGoneWaitForSecondsOnly(t *testing.T) {
	t.Parallel()
	r := routed(t, &till{}, `{url: URL/, idempotency_prefix: ""}`, "leak: {limits: [400/s], jitter: 1ms}\n"+classes)
	with := r.cfg.Gateways[0]
	without, fewer := with, with
	without.Priority = nil
	fewer.Priority = &config.Priority{Classes: with.Priority.Classes[1:], Default: with.Priority.Default}
	d := r.serve()
	for i, to := range []struct {
		g     config.Gateway
		sheds bool
	}{{with, false}, {fewer, true}} {
		if _, err := d.Reload(t.Context(), []config.Gateway{to.g}); err != nil {
			t.Fatal(err)
		}
		now := d.byName()[with.Name].now()
		if now.sheds != to.sheds {
			t.Errorf("%d: sheds is %v", i, now.sheds)
		}
	}
	for _, c := range []struct {
		was, is config.Gateway
		sheds   bool
	}{{with, without, true}, {without, with, false}, {fewer, with, false}, {without, without, false}} {
		if got := sheds(c.was, c.is); got != c.sheds {
			t.Errorf("from %v to %v: %v", c.was.Priority, c.is.Priority, got)
		}
	}
	now := time.Now()
	for _, c := range []struct {
		s      set
		others bool
		want   time.Duration
	}{{set{began: now}, false, sortEvery}, {set{began: now}, true, sortSoon}, {set{began: now, sheds: true}, false, sortSoon}, {set{began: now.Add(-sortEvery), sheds: true}, false, sortEvery}} {
		if got := c.s.sortAgain(c.others, now); got != c.want {
			t.Errorf("%+v, %v: looked again in %s", c.s, c.others, got)
		}
	}
}

// A reload that adds or removes classes loses no job and doubles none.
func TestClassesComeAndGoWithAReload(t *testing.T) {
	t.Parallel()
	g := &till{}
	r := routed(t, g, `{url: URL/, idempotency_prefix: ""}`, "leak: {limits: [400/s], jitter: 1ms}\n"+classes)
	with := r.cfg.Gateways[0]
	without := with
	without.Priority = nil
	r.cfg.Gateways[0] = without
	r.admit(classJobs("", "o", 150)...)
	d := r.serve()
	reload := func(to config.Gateway) {
		t.Helper()
		r.cfg.Gateways[0] = to
		if _, err := d.Reload(context.Background(), []config.Gateway{to}); err != nil {
			t.Fatal(err)
		}
	}
	reload(with)
	r.admit(slices.Concat(classJobs("batch", "b", 150), classJobs("urgent", "u", 50))...)
	reload(without)
	r.admit(classJobs("", "n", 50)...)
	testkit.Eventually(t, 20*time.Second, "all to be done", func() bool { return r.standing(0).Done == 400 })
	if order := g.called(); len(order) != 400 {
		t.Errorf("%d calls", len(order))
	}
	r.clean()
}
