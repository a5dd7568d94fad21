package chaos

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

var perSecond = map[int][]provider.Limit{
	50:  {{N: 50, Window: time.Second}},
	100: {{N: 100, Window: time.Second}},
}

const roomy = "admission: {limits: [1000000/s], burst: 1000000}\nretry: {attempts: 8, first: 200ms, max: 1s}\n"

// stripe is a gateway with keys, at 100/s.
func stripe(p provider.Config) spec {
	p.Limits = perSecond[100]
	return spec{name: "stripe", provider: p, rest: "leak: {limits: [100/s], jitter: 10ms}\n" + roomy}
}

// reckon checks everything that must hold after every story, and returns what the provider saw.
func (w *world) reckon(g *gateway, ids []string, keyless bool) provider.Stats {
	w.t.Helper()
	list, err := w.entries(g, ids)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, fault := range books(list, keyless, false, nil) {
		if i < 20 {
			w.t.Error(fault)
		}
	}
	s := g.Stats()
	if s.ChargedTwice+s.TooMany+s.Over > 0 {
		w.t.Errorf("%d jobs charged twice, %d answers 429, %d calls above the limit; fullest windows %v", s.ChargedTwice, s.TooMany, s.Over, s.MaxInWindow)
	}
	if n, err := w.db.Keys(w.t.Context(), fmt.Sprintf("spillway:{%s}:job:*", g.name)).Result(); err != nil || len(n) != len(ids) {
		w.t.Errorf("%d records for %d jobs, %v", len(n), len(ids), err)
	}
	return s
}

// during disturbs something at intervals until a number of jobs is charged.
func (w *world) during(g *gateway, charged int, every time.Duration, disturb func()) {
	w.t.Helper()
	next := time.Now().Add(every)
	ok := testkit.Within(3*time.Minute, 10*time.Millisecond, func() bool {
		if time.Now().After(next) {
			disturb()
			next = time.Now().Add(every)
		}
		return g.Stats().Charged >= charged
	})
	if !ok {
		w.t.Errorf("%d jobs charged after 3 minutes, want %d", g.Stats().Charged, charged)
	}
}

func (w *world) reach(g *gateway, calls int) {
	w.t.Helper()
	testkit.Eventually(w.t, 20*time.Second, fmt.Sprint(calls, " calls"), func() bool { return g.Stats().Calls >= calls })
}

// lost is the smallest number of answers that are lost: so few that the circuit does not open.
const lost = 4

func (w *world) loseAnswers(g *gateway) {
	w.t.Helper()
	g.line.LoseAnswers(true)
	testkit.Eventually(w.t, 20*time.Second, fmt.Sprint(lost, " lost answers"), func() bool { return g.line.Lost() >= lost })
	g.line.LoseAnswers(false)
}

// rate returns the calls per second in the middle 80 % of the calls.
func (g *gateway) rate() float64 {
	calls := g.Calls()
	calls = calls[len(calls)/10 : len(calls)*9/10]
	return float64(len(calls)-1) / (time.Duration(calls[len(calls)-1].At-calls[0].At) * time.Microsecond).Seconds()
}

func TestConnectionsToRedisCutEverySecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), stripe(provider.Config{Service: 20 * time.Millisecond}))
	g := w.gateways[0]
	jobs := w.enqueue(g, "cut", 500)
	w.dispatcher()
	w.dispatcher()
	w.during(g, len(jobs), time.Second, w.line.Cut)
	by := w.settle(3 * time.Minute)
	if s := by[g.name]; s.Done != len(jobs) {
		t.Errorf("done %d of %d, parked %v", s.Done, len(jobs), s.Parked)
	}
	s := w.reckon(g, jobs, false)
	t.Logf("%d calls for %d jobs, fullest window %v", s.Calls, len(jobs), s.MaxInWindow)
}

func TestRedisHalfOpenForFiveSeconds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), stripe(provider.Config{Service: 20 * time.Millisecond}))
	g := w.gateways[0]
	jobs := w.enqueue(g, "halfopen", 500)
	w.dispatcher()
	w.dispatcher()
	w.reach(g, 100)
	w.line.Freeze()
	<-time.After(5 * time.Second)
	w.line.Thaw()
	thawed := time.Now()
	by := w.settle(3 * time.Minute)
	if s := by[g.name]; s.Done != len(jobs) {
		t.Errorf("done %d of %d, parked %v", s.Done, len(jobs), s.Parked)
	}
	s := w.reckon(g, jobs, false)
	calls := g.Calls()
	first := slices.IndexFunc(calls, func(c provider.CallLine) bool { return time.UnixMicro(c.At).After(thawed) })
	if first < 0 {
		t.Fatal("no call after the thaw")
	}
	t.Logf("%d calls for %d jobs, fullest window %v; the first call %v after the thaw, the last one after %v", s.Calls, len(jobs), s.MaxInWindow,
		time.UnixMicro(calls[first].At).Sub(thawed), time.UnixMicro(calls[len(calls)-1].At).Sub(thawed))
}

func TestAGatewayHalfOpenIsCalledAgainWithTheSameKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), stripe(provider.Config{Service: 20 * time.Millisecond}))
	g := w.gateways[0]
	jobs := w.enqueue(g, "frozen", 400)
	w.dispatcher()
	w.dispatcher()
	w.reach(g, 100)
	g.line.Freeze()
	<-time.After(3 * time.Second)
	g.line.Thaw()
	by := w.settle(3 * time.Minute)
	if s := by[g.name]; s.Done != len(jobs) {
		t.Errorf("done %d of %d, parked %v", s.Done, len(jobs), s.Parked)
	}
	s := w.reckon(g, jobs, false)
	if s.Charged != len(jobs) {
		t.Errorf("charged %d of %d", s.Charged, len(jobs))
	}
	t.Logf("%d calls for %d jobs, %d of them repeated, fullest window %v", s.Calls, len(jobs), s.Replayed, s.MaxInWindow)
}

func TestAnswersThatAreLostAreAskedForAgainWithTheSameKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), stripe(provider.Config{Service: 20 * time.Millisecond}))
	g := w.gateways[0]
	jobs := w.enqueue(g, "lost", 400)
	w.dispatcher()
	w.dispatcher()
	w.reach(g, 100)
	w.loseAnswers(g)
	by := w.settle(3 * time.Minute)
	if s := by[g.name]; s.Done != len(jobs) {
		t.Errorf("done %d of %d, parked %v", s.Done, len(jobs), s.Parked)
	}
	s := w.reckon(g, jobs, false)
	if s.Charged != len(jobs) || s.Replayed < lost {
		t.Errorf("charged %d of %d, %d calls repeated; at least %d answers were lost", s.Charged, len(jobs), s.Replayed, lost)
	}
	t.Logf("%d calls for %d jobs, %d of them repeated, fullest window %v", s.Calls, len(jobs), s.Replayed, s.MaxInWindow)
}

// TestWithoutKeysNothingLostIsAskedForAgain has both at once: calls that never arrived, and answers that were lost.
func TestWithoutKeysNothingLostIsAskedForAgain(t *testing.T) {
	t.Parallel()
	keyless := spec{name: "adyen", provider: provider.Config{Limits: perSecond[50], Service: 20 * time.Millisecond, NoKeys: true},
		request: `idempotency_header: ""`, rest: "leak: {limits: [50/s], jitter: 10ms}\n" + roomy}
	w := newWorld(t, t.TempDir(), keyless)
	g := w.gateways[0]
	jobs := w.enqueue(g, "nokeys", 300)
	w.dispatcher()
	w.dispatcher()
	w.reach(g, 50)
	w.loseAnswers(g)
	w.reach(g, 100)
	g.line.Freeze()
	<-time.After(3 * time.Second)
	g.line.Thaw()
	s := w.settle(3 * time.Minute)[g.name]
	seen := w.reckon(g, jobs, true)
	unknown := s.Parked["unknown_outcome"]
	if s.Done+unknown != len(jobs) || unknown <= lost {
		t.Errorf("done %d, parked %v of %d jobs: want all lost ones, and nothing else, parked as unknown_outcome", s.Done, s.Parked, len(jobs))
	}
	if seen.Calls > len(jobs) {
		t.Errorf("%d calls for %d jobs: some was called twice", seen.Calls, len(jobs))
	}
	t.Logf("%d calls, %d charged, %d done, %d parked as unknown_outcome, fullest window %v", seen.Calls, seen.Charged, s.Done, unknown, seen.MaxInWindow)
}

// TestAFarGatewayHasMoreCallsUnderWay has a gateway 200 ms away in each direction. The rate stays the same, so more calls are under way.
func TestAFarGatewayHasMoreCallsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), stripe(provider.Config{Service: 20 * time.Millisecond}))
	g := w.gateways[0]
	g.line.Delay(200 * time.Millisecond)
	jobs := w.enqueue(g, "slow", 600)
	w.dispatcher()
	w.dispatcher()
	most, open := int64(0), redisdb.NewKeys(g.name).Open()
	testkit.Within(3*time.Minute, 20*time.Millisecond, func() bool {
		most = max(most, w.db.ZCard(t.Context(), open).Val())
		return w.waiting(g) == 0
	})
	by := w.settle(3 * time.Minute)
	if s := by[g.name]; s.Done != len(jobs) {
		t.Errorf("done %d of %d, parked %v", s.Done, len(jobs), s.Parked)
	}
	s := w.reckon(g, jobs, false)
	if most < 15 { // a busy machine has part of the rate; a dispatcher with a fixed number of workers, ten say, would reach 10
		t.Errorf("%d calls were under way at most; want about 42", most)
	}
	t.Logf("%d calls at %.1f/s, %d under way at most, fullest window %v", s.Calls, g.rate(), most, s.MaxInWindow)
}

// TestCallsThatAreLateToASlowGatewayKeepTheLimit stops a dispatcher for a moment again and again, while answers take
// longer than the limit's window. The pacer must know that a call was sent late before its answer is there.
func TestCallsThatAreLateToASlowGatewayKeepTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir(), stripe(provider.Config{Service: 1500 * time.Millisecond}))
	g := w.gateways[0]
	jobs := w.enqueue(g, "late", 500)
	r := w.dispatcher()
	w.dispatcher()
	w.reach(g, 1)
	w.during(g, len(jobs), 250*time.Millisecond, func() {
		r.signal(syscall.SIGSTOP)
		<-time.After(100 * time.Millisecond)
		r.signal(syscall.SIGCONT)
	})
	w.settle(3 * time.Minute)
	s := w.reckon(g, jobs, false)
	t.Logf("%d calls for %d jobs, fullest window %v, %d under way at most", s.Calls, len(jobs), s.MaxInWindow, s.MaxInFlight)
}
