package dispatch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/admission"
	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/testkit"
	"spillway/internal/worker"
)

// schedule is what happens in one run.
type schedule struct {
	seed      uint64
	processes int
	limit     int64 // calls a second
	share     int   // of jobs that always get 500, in percent; -1: a single one
	forbidden int   // of jobs that always get 403, in percent; -1: a single one
	limited   int   // jobs that always get 429
	busy      int   // jobs that always get 503 with Retry-After
	troubles  []trouble
	arrivals  []arrival
	replays   []time.Duration // of all that is parked as exhausted
}

// arrival is jobs that are enqueued at a moment.
type arrival struct {
	at   time.Duration
	jobs int
}

func (s schedule) String() string {
	text := fmt.Sprintf("seed %d: %d processes, %d/s, %d %% always 500, %d %% always 403, %d always 429, %d always 503; -1 %% is one job", s.seed,
		s.processes, s.limit, s.share, s.forbidden, s.limited, s.busy)
	for _, t := range s.troubles {
		text += fmt.Sprintf("\n  %s to %s  %s", t.from, t.to, t.kind)
	}
	for _, a := range s.arrivals {
		text += fmt.Sprintf("\n  %s  %d jobs", a.at, a.jobs)
	}
	for _, r := range s.replays {
		text += fmt.Sprintf("\n  %s  exhausted jobs are replayed", r)
	}
	return text
}

func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// draw makes the schedule of a seed: troubles one after the other, and after each of them enough jobs that some wait for a while.
func draw(seed uint64) schedule {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := schedule{seed: seed, processes: 1 + rng.IntN(3), limit: one[int64](rng, 20, 20, 20, 50), share: one(rng, 0, -1, 5, 20, 60)}
	switch rng.IntN(4) {
	case 0:
		s.forbidden = one(rng, -1, 5, 20)
	case 1:
		s.limited = 1 + rng.IntN(3)
	case 2:
		s.busy = 1 + rng.IntN(3)
	}
	span := func(least, most int) time.Duration {
		return time.Duration(least*1000+rng.IntN((most-least)*1000)) * time.Millisecond
	}
	at := span(1, 10)
	s.arrivals = []arrival{{0, int(s.limit) * 10}}
	for range 1 + rng.IntN(3) {
		t := trouble{kind: one(rng, kinds...), from: at}
		t.to = at + one(rng, time.Second, 5*time.Second, 20*time.Second, 60*time.Second, 120*time.Second)
		if t.kind == flaky || t.kind == lossy {
			t.to = min(t.to, t.from+20*time.Second) // else good jobs may use up their attempts
		}
		s.troubles = append(s.troubles, t)
		s.arrivals = append(s.arrivals, arrival{t.from + span(0, 3), int(s.limit) * (8 + rng.IntN(8))})
		at = t.to + span(8, 25)
	}
	if rng.IntN(2) == 0 {
		s.replays = []time.Duration{at + span(0, 60)}
		s.arrivals = append(s.arrivals, arrival{s.replays[0], int(s.limit) * 10})
	}
	return s
}

// fates returns fates for n jobs.
func (s schedule) fates(rng *rand.Rand, n int) []fate {
	all := make([]fate, n)
	for i := range all {
		switch all[i] = good; {
		case rng.IntN(100) < s.share:
			all[i] = poisoned
		case rng.IntN(100) < s.forbidden:
			all[i] = forbidden
		case rng.IntN(100) < 2:
			all[i] = once
		}
	}
	return all
}

// some makes single jobs bad, among the first ones.
func (s schedule) some(rng *rand.Rand, all []fate) {
	for f, n := range map[fate]int{limited: s.limited, busy: s.busy, poisoned: max(-s.share, 0), forbidden: max(-s.forbidden, 0)} {
		for range n {
			all[rng.IntN(len(all))] = f
		}
	}
}

// trial is one run of a schedule.
type trial struct {
	t   *testing.T
	s   schedule
	v   *virtual
	cfg *config.Config
	gw  *endpoint
	all []*Dispatcher
	rng *rand.Rand
}

// try runs a schedule with the program, or a mutant of it, and returns what is wrong.
func try(t *testing.T, s schedule, m mutant) (wrong []string) {
	t.Helper()
	testkit.Redis(t)
	name := testkit.Gateway(t)
	bubble(t, func(t *testing.T) {
		r := &trial{t: t, s: s, v: newVirtual(t, name, m), gw: newEndpoint(s), rng: rand.New(rand.NewPCG(s.seed, 3))}
		text := fmt.Sprintf("redis: %s\ngateways:\n  %s:\n    request: {url: \"http://gateway.invalid/\", timeout: %s}\n    leak: {limits: [%d/s]}\n"+
			"    admission: {limits: [100000/s], burst: 100000}\n", testkit.Redis(t), name, patient, s.limit)
		var err error
		if r.cfg, err = config.Parse("x.yaml", []byte(text), config.Options{Secrets: true}); err != nil {
			t.Fatal(err)
		}
		r.start()
		r.play()
		left := r.finish()
		r.stop()
		wrong = r.judge(left)
		if left := r.v.unmade(); len(left) > 0 {
			t.Errorf("no script has the text %q", left)
		}
	})
	return wrong
}

func (r *trial) start() {
	for range r.s.processes {
		d, err := New(Params{DB: r.v.db, Gateways: r.cfg.Gateways, Metrics: prometheus.NewRegistry(),
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Patience: patience})
		if err != nil {
			r.t.Fatal(err)
		}
		r.connect(d.units()[0])
		if err := d.Start(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		r.all = append(r.all, d)
	}
}

// connect replaces the gateway's client with the endpoint.
func (r *trial) connect(u *unit) {
	s := *u.now()
	judge, err := table(s.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	parking := Store(u.calls, s.cfg)
	parking.TaskEnded = u.server.Ended
	how := u.working(&s, parking, judge)
	how.Sender = r.gw
	how.Backoff = func(attempt int) time.Duration {
		return min(s.cfg.Retry.First<<min(attempt-1, 20), s.cfg.Retry.Max) * 3 / 4
	}
	s.worker = worker.New(how)
	u.set.Store(&s)
}

func (r *trial) stop() {
	for _, d := range r.all {
		d.Stop(context.Background())
	}
}

// event is an action at a moment.
type event struct {
	at time.Duration
	do func()
}

// play runs the schedule to its end.
func (r *trial) play() {
	var all []event
	for _, a := range r.s.arrivals {
		all = append(all, event{a.at, func() { r.enqueue(r.s.fates(r.rng, a.jobs)) }})
	}
	pacer := r.all[0].units()[0].pacer
	for _, t := range r.s.troubles {
		if t.kind == paused {
			all = append(all, event{t.from, func() { r.must(pacer.Pause(r.t.Context(), "a test")) }},
				event{t.to, func() { r.must(pacer.Resume(r.t.Context())) }})
			continue
		}
		all = append(all, event{t.to, func() {}})
	}
	for _, at := range r.s.replays {
		all = append(all, event{at, r.replay})
	}
	slices.SortStableFunc(all, func(a, b event) int { return int(a.at - b.at) })
	for _, e := range all {
		<-time.After(time.Until(r.gw.began.Add(e.at)))
		e.do()
	}
}

func (r *trial) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// enqueue admits jobs with these fates.
func (r *trial) enqueue(fates []fate) {
	if len(r.gw.order) == 0 {
		r.s.some(r.rng, fates)
	}
	r.enqueueFor(time.Time{}, fates)
}

// enqueueFor admits jobs with these fates, scheduled for a moment; zero: for now.
func (r *trial) enqueueFor(at time.Time, fates []fate) {
	name := r.cfg.Gateways[0].Name
	jobs := make([]job.Job, len(fates))
	for i := range jobs {
		jobs[i] = job.Job{ID: fmt.Sprintf("j%04d", len(r.gw.order)+i), Gateway: name, Payload: []byte(`{}`), Cost: 1, At: at}
	}
	for i, j := range jobs {
		r.gw.accepted(j.ID, fates[i])
	}
	answers, err := Door(r.v.db.Client, r.cfg, patience).Admit(r.t.Context(), name, jobs, admission.Park)
	r.must(err)
	for i, a := range answers {
		if a.Outcome != job.Enqueued {
			r.t.Fatalf("%s was not taken in: %+v", jobs[i].ID, a)
		}
	}
}

// replay replays what is parked as exhausted.
func (r *trial) replay() {
	g := r.cfg.Gateways[0]
	c := deadletter.BulkRun{Store: Store(r.v.db.Client, g), Clock: clock.Real{}, Filter: deadletter.Filter{Reasons: []job.Reason{job.Exhausted}}}
	_, err := c.Replay(r.t.Context(), Books(r.v.db.Client, g), deadletter.Rules{Keys: true, KeyLifetime: g.Request.KeyLifetime, Now: time.Now()})
	r.must(err)
}

// finish waits until no job waits, but not longer than the bound, and returns the standing. It adds good jobs now and
// then: a gateway that fails with all remaining jobs looks as if it was down.
func (r *trial) finish() record.Standing {
	books := Books(r.v.db.Client, r.cfg.Gateways[0])
	end := time.Now().Add(r.bound())
	for n := 1; ; n++ {
		s, err := books.Look(r.t.Context())
		r.must(err)
		if s.Queued+s.InFlight+s.Retrying+s.Scheduled == 0 || time.Now().After(end) {
			return s
		}
		if n%20 == 0 && r.gw.waiting() == 0 {
			r.enqueue(slices.Repeat([]fate{good}, int(r.s.limit)*3))
		}
		<-time.After(time.Second)
	}
}

// bound returns within what time after the schedule's end all jobs must have ended: all attempts of all jobs at half of the limit, the longest
// back-offs, and the longest hold.
func (r *trial) bound() time.Duration {
	calls := 0
	for _, j := range r.gw.jobs {
		if calls++; j.fate.bad() || j.saved {
			calls += 2 * r.cfg.Gateways[0].Retry.Attempts
		}
	}
	return time.Duration(float64(calls)/float64(r.s.limit)*2*float64(time.Second)) + 5*time.Minute
}

// Good jobs never wait for bad ones: whatever happens, each is called as soon as its place in the queue, the limit, the troubles and circuit.max allow.
func TestNobodyWaitsLongerThanCanBeExplained(t *testing.T) {
	t.Parallel()
	seeds := []uint64{0, 2, 17} // their schedules are soon over
	for n := range uint64(testkit.Often(0, 100)) {
		if !slices.Contains(seeds, n) {
			seeds = append(seeds, n)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := draw(seed)
			if wrong := try(t, s, nil); len(wrong) > 0 {
				t.Errorf("%v\n%s", s, strings.Join(wrong, "\n"))
			}
		})
	}
}
