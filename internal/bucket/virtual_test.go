package bucket

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"pgregory.net/rapid"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// world is a gateway in virtual time: workers that take slots from a real Redis whose scripts are told the time.
type world struct {
	t       testing.TB
	client  redis.UniversalClient
	keys    redisdb.Keys
	now     int64 // µs
	spacing int64 // of the last reservation, µs
	rng     *rand.Rand
	line    int64             // see trial
	swaps   map[string]string // texts of mutated scripts, by the hash of what they stand for
}

const epoch = int64(1_800_000_000_000_000)

func newWorld(t testing.TB, client redis.UniversalClient, seed uint64) *world {
	return &world{t: t, client: client, now: epoch, rng: rand.New(rand.NewPCG(seed, 1)), keys: redisdb.NewKeys(testkit.Gateway(t))}
}

// pacer returns one more process's pacer. Its gateway is the world's.
func (w *world) pacer(cfg PacerConfig) *Pacer {
	cfg.Gateway = testkit.GatewayOf(w.keys.Pace())
	cfg.NowMicros = func() int64 { return w.now }
	p := newTestPacer(w.t, w.client, cfg)
	p.client = noRetry{line{w.client, w}}
	p.clock = w
	p.began = w.Now()
	return p
}

// line is the way to Redis: answers take time, and scripts may be replaced by mutants.
type line struct {
	redis.UniversalClient
	w *world
}

func (l line) Process(ctx context.Context, cmd redis.Cmder) error {
	if args := cmd.Args(); args[0] == "evalsha" {
		if text, ok := l.w.swaps[args[1].(string)]; ok {
			args[0], args[1] = "eval", text
		}
	}
	err := l.UniversalClient.Process(ctx, cmd)
	if l.w.line > 0 {
		l.w.now += l.w.rng.Int64N(l.w.line)
	}
	return err
}

// Now is local time: it runs with Redis's.
func (w *world) Now() time.Time { return time.UnixMicro(w.now) }

// After is never waited for in virtual time.
func (w *world) After(time.Duration) <-chan time.Time { return nil }

// reserve asks as Next and Take do, without their waiting.
func (w *world) reserve(p *Pacer, want wish) grant {
	w.t.Helper()
	k := p.known
	w.spacing = k.spacing(p.plan.Load(), p.earliest())
	g, err := p.reserve(context.Background(), want)
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// overdue is a write that is still to come, at another moment than Redis counts it.
type overdue struct {
	p  *Pacer
	s  job.Slot
	at int64
}

// wasLate is a call of p's that was written at a moment.
func wasLate(p *Pacer, s job.Slot, at int64) lateCall {
	return p.moved(p.plan.Load(), s, at)
}

// reportOverdue reports the writes that have happened by now, those of each pacer together, whether they count too early or too late.
func (w *world) reportOverdue(late []overdue) []overdue {
	told := map[*Pacer][]lateCall{}
	late = slices.DeleteFunc(late, func(o overdue) bool {
		if o.at > w.now {
			return false
		}
		if off := o.p.late.edge(o.s) - o.at; max(off, -off) > o.p.plan.Load().epsilon {
			told[o.p] = append(told[o.p], wasLate(o.p, o.s, o.at))
		}
		return true
	})
	for p, calls := range told {
		p.reportLate(calls)
	}
	return late
}

// trial is one simulated run.
type trial struct {
	cfg      PacerConfig
	lasts    time.Duration
	cost     func(*rand.Rand) int64
	ask      int64   // slots asked for at a time, at most; 0: 16
	late     float64 // share of calls written late
	lateMost int64   // by at most so much, µs
	drop     float64 // share of slots released
	// waste is how many permits costs leave unused on average: the next job needs more than are ready.
	waste int64
	// forget keeps late writes from being reported, as a mutant would.
	forget bool
	lose   bool         // Redis forgets everything now and then
	line   int64        // answers take at most this long, µs; above 0, no process knows the time exactly
	swap   swap         // a change of a script
	mutate func(*Pacer) // before every reservation
	after  func(*Pacer) // and after it
}

// ran is what the gateway saw.
type ran struct {
	arrived, cost []int64
	slot          []int64
	overdue       []overdue
	latest        int64 // sum of reported lateness
}

// run drives several processes that take turns at random. Each call arrives at write + D + jitter; jitter is random or
// at its extremes.
func (w *world) run(tr trial) ran {
	w.swaps = tr.swap.mutant(w.t)
	processes := []*Pacer{w.pacer(tr.cfg), w.pacer(tr.cfg), w.pacer(tr.cfg)}
	var out ran
	jitter := tr.cfg.Jitter.Microseconds()
	for end := w.now + tr.lasts.Microseconds(); w.now < end; {
		p := processes[w.rng.IntN(len(processes))]
		cost := int64(1)
		if tr.cost != nil {
			cost = tr.cost(w.rng)
		}
		out.overdue = w.reportOverdue(out.overdue)
		if tr.lose && w.rng.IntN(500) == 0 && allHaveHeard(processes) {
			w.lose()
		}
		if tr.mutate != nil {
			tr.mutate(p)
		}
		w.line = tr.line
		if tr.late > 0 && !tr.forget {
			p.late.lateness = readiness{mean: []float64{0, 30_000, 1e6}[w.rng.IntN(3)]} // Redis counts what it reserves now so much later
		}
		g := w.reserve(p, wish{want: 1 + w.rng.Int64N(cmp.Or(tr.ask, p.plan.Load().batch)), cost: cost, lead: w.rng.Int64N(2000) % p.plan.Load().horizon})
		if tr.after != nil {
			tr.after(p)
		}
		for _, s := range g.slots {
			w.send(tr, p, s, &out, jitter)
		}
		w.now += w.pause(g)
	}
	return out
}

// allHaveHeard reports whether each process has heard of a slot: one that has not can't know that Redis lost one.
func allHaveHeard(processes []*Pacer) bool {
	return !slices.ContainsFunc(processes, func(p *Pacer) bool { return p.known.floor == 0 })
}

func (w *world) pause(g grant) int64 {
	if len(g.slots) > 0 {
		return 1 + w.rng.Int64N(500)
	}
	return max(g.hint.Microseconds(), 1)
}

// extreme returns nothing, all, or something between: an adversary would make the first call late and the last one quick.
func (w *world) extreme(most int64) int64 {
	switch w.rng.IntN(3) {
	case 0:
		return 0
	case 1:
		return most
	}
	return w.rng.Int64N(most + 1)
}

func (w *world) send(tr trial, p *Pacer, s job.Slot, out *ran, jitter int64) {
	if w.rng.Float64() < tr.drop {
		if err := p.Release(context.Background(), s); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	at := s.At + w.extreme(p.plan.Load().epsilon)
	if tr.line > 0 {
		w.sendByOwnClock(p, s, out, jitter)
		return
	}
	late := w.rng.Float64() < tr.late
	if late {
		at = s.At + w.rng.Int64N(min(tr.lateMost, p.plan.Load().tooLate)+1)
		out.latest += at - s.At
	}
	if !tr.forget && (late || p.late.edge(s) > s.At) {
		out.overdue = append(out.overdue, overdue{p, s, at})
	}
	w.arrive(s, at, out, jitter)
}

// sendByOwnClock writes when the process believes the slot to be due, and reports what it then believes to be late.
func (w *world) sendByOwnClock(p *Pacer, s job.Slot, out *ran, jitter int64) {
	began := p.began.UnixMicro()
	at := max(began+p.bounds.notBefore(s.At, p.local(w.Now())), w.now)
	if wrote := p.bounds.notAfter(at - began); wrote > s.At+p.plan.Load().epsilon {
		out.overdue = append(out.overdue, overdue{p, s, wrote})
		out.latest += wrote - s.At
	}
	w.arrive(s, at, out, jitter)
}

func (w *world) arrive(s job.Slot, at int64, out *ran, jitter int64) {
	out.arrived = append(out.arrived, at+30_000+w.extreme(jitter))
	out.cost = append(out.cost, s.Cost)
	out.slot = append(out.slot, s.At)
}

// most returns the worst count in any window of each limit, by a clock that is 100 ppm slow.
func (r ran) most(limits []job.Limit) []int64 {
	var out []int64
	for _, l := range limits {
		out = append(out, mostInWindow(r.arrived, r.cost, (l.Window.Microseconds()*10001+9999)/10000))
	}
	return out
}

// use returns units per second over whole cycles of the slowest pool. It leaves out the first cycle, because a pool that starts full
// goes faster.
func (r ran) use(p *plan) float64 {
	slowest := slices.MinFunc(p.windows, func(a, b window) int { return cmp.Compare(a.rate(0), b.rate(0)) })
	cycle := slowest.ready + slowest.width
	whole := (r.slot[len(r.slot)-1]-r.slot[0])/cycle - 1
	var sum int64
	for i, at := range r.slot {
		if at >= r.slot[0]+cycle && at < r.slot[0]+cycle*(whole+1) {
			sum += r.cost[i]
		}
	}
	return float64(sum) / float64(whole*cycle) * 1e6
}

// rate is units per second by the formula: N / (W(1+rho) + J + w + mean lateness).
func (w window) rate(meanLate float64) float64 {
	return float64(w.n) / (float64(w.ready+w.width) + meanLate) * 1e6
}

var limitSets = map[string]trial{
	"100/s":            {cfg: PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}}, lasts: 30 * time.Second},
	"3/s":              {cfg: PacerConfig{Limits: []job.Limit{{N: 3, Window: time.Second}}}, lasts: 200 * time.Second},
	"40/s and 200/10s": {cfg: PacerConfig{Limits: []job.Limit{{N: 200, Window: 10 * time.Second}, {N: 40, Window: time.Second}}}, lasts: 101 * time.Second},
	"1000/s":           {cfg: PacerConfig{Limits: []job.Limit{{N: 1000, Window: time.Second}}}, lasts: 6 * time.Second},
	"1/10ms":           {cfg: PacerConfig{Limits: []job.Limit{{N: 1, Window: 10 * time.Millisecond}}}, lasts: 10 * time.Second},
	"costs":            {cfg: PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}}, lasts: 60 * time.Second, cost: func(r *rand.Rand) int64 { return 1 + r.Int64N(7) }, waste: 3},
	"burst of 10":      {cfg: PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}, Burst: 10}, lasts: 30 * time.Second},
	"in parts":         {cfg: PacerConfig{Limits: []job.Limit{{N: 2000, Window: 10 * time.Second}}}, lasts: 42 * time.Second},
	"released":         {cfg: PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}}, lasts: 30 * time.Second, drop: 0.05},
	"late":             {cfg: PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}}, lasts: 30 * time.Second, late: 0.1, lateMost: 60_000},
	"late in parts":    {cfg: PacerConfig{Limits: []job.Limit{{N: 2000, Window: 10 * time.Second}}}, lasts: 31 * time.Second, late: 0.1, lateMost: 250_000},
}

// everyday is how long some of them last without -long.
var everyday = map[string]time.Duration{"100/s": 12 * time.Second, "burst of 10": 12 * time.Second, "released": 12 * time.Second,
	"late": 12 * time.Second, "1000/s": 3 * time.Second, "in parts": 31 * time.Second}

// No rolling window at the gateway holds more than a limit allows, and the rate is what the formula says.
func TestLimitsHoldInEveryWindow(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, tr := range limitSets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr.cfg.Jitter = 5 * time.Millisecond
			if short := everyday[name]; short > 0 {
				tr.lasts = time.Duration(testkit.Often(int(short), int(tr.lasts)))
			}
			w := newWorld(t, testkit.Client(t), 7)
			got := w.run(tr)
			for i, most := range got.most(tr.cfg.Limits) {
				if most > tr.cfg.Limits[i].N {
					t.Errorf("%d units in a window of %s", most, tr.cfg.Limits[i])
				}
			}
			pl, _ := newPlan(PacerConfig{Gateway: "g", Limits: tr.cfg.Limits, Jitter: tr.cfg.Jitter, Burst: tr.cfg.Burst})
			rate, want := got.use(pl), math.Inf(1)
			for _, win := range pl.windows {
				win.n -= tr.waste
				want = min(want, win.rate(float64(got.latest)/float64(len(got.arrived))))
			}
			t.Logf("%d calls, %v in the worst windows, %.3f/s, formula %.3f/s", len(got.arrived), got.most(tr.cfg.Limits), rate, want)
			if rate < want*0.995 {
				t.Errorf("%.3f units a second, want at least %.3f less 0.5 %%", rate, want)
			}
		})
	}
}

// The same holds for limits, jitter, bursts, costs and troubles of any kind.
func TestAnyLimitsHold(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.Custom(func(t *rapid.T) job.Limit {
			window := rapid.SampledFrom([]time.Duration{10, 50, 400, 1000, 12_000}).Draw(t, "window") * time.Millisecond
			return job.Limit{N: rapid.Int64Range(2, 1500).Draw(t, "N"), Window: window}
		})
		tr := trial{
			lasts:    time.Duration(rapid.IntRange(100, 600).Draw(rt, "ms")) * time.Millisecond,
			late:     rapid.Float64Range(0, 0.3).Draw(rt, "late"),
			lateMost: 250_000,
			drop:     rapid.Float64Range(0, 0.2).Draw(rt, "released"),
			lose:     rapid.Bool().Draw(rt, "lose"),
			cost:     func(r *rand.Rand) int64 { return 1 + r.Int64N(2) },
		}
		tr.cfg.Limits = rapid.SliceOfN(limit, 1, 3).Draw(rt, "limits")
		tr.cfg.Burst = rapid.Int64Range(0, 2).Draw(rt, "burst")
		tr.cfg.Jitter = time.Duration(rapid.IntRange(0, 8000).Draw(rt, "jitter")) * time.Microsecond
		got := newWorld(t, client, rapid.Uint64().Draw(rt, "seed")).run(tr)
		for i, most := range got.most(tr.cfg.Limits) {
			if most > tr.cfg.Limits[i].N {
				rt.Fatalf("%d units in a window of %s", most, tr.cfg.Limits[i])
			}
		}
	})
}
