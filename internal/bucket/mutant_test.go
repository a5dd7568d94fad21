package bucket

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Each part of the proof is needed: without it, the check of TestLimitsHoldInEveryWindow finds windows above the limit.
func TestMutantsBreakTheLimit(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	base := trial{cfg: PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}, Jitter: 5 * time.Millisecond}, lasts: 6 * time.Second}
	late, lost, far, released, parts, odd := base, base, base, base, base, base
	late.late, late.lateMost = 0.1, 60_000
	lost.lose, lost.lasts = true, 20*time.Second
	far.line = 40_000
	released.drop, released.ask, released.cfg.Burst = 0.3, 1, 10
	parts.cfg.Limits, parts.cfg.Burst = []job.Limit{{N: 1100, Window: 106 * time.Second}}, 1100 // all at once, at the end of a part
	parts.lasts = 110 * time.Second
	odd.cfg.Limits, odd.lasts = []job.Limit{{N: 3, Window: 15 * time.Millisecond}}, 2*time.Second // 15 ms and 100 ppm are 15,001.5 µs
	for name, m := range map[string]struct {
		tr     trial
		mutate func(*Pacer)
		after  func(*Pacer)
		swap   swap
		forget bool
	}{
		"no jitter allowance":      {tr: base, mutate: shorten(5000)},
		"no allowance for epsilon": {tr: base, mutate: shorten(2000)},
		"no clock rate allowance":  {tr: base, mutate: shorten(100)},
		"readiness rounded down":   {tr: odd, mutate: shorten(1)},
		"late writes not reported": {tr: late, forget: true},
		"no floor":                 {tr: lost, mutate: func(p *Pacer) { p.known.floor, p.known.root = 0, 0 }},
		"time of answers alone":    {tr: far, mutate: func(p *Pacer) { p.bounds.known = false }, after: trustAnswers},
		"parts begin, not end":     {tr: parts, swap: swap{reserveText, []string{"math.ceil(at / width)", "math.floor(at / width)"}}},
		"release moves the last slot back": {tr: released, mutate: func(p *Pacer) { p.known.floor = 0 }, swap: swap{releaseText, []string{
			"if slot == last then ", "if slot == last then last = last - tonumber(ARGV[1]) * cost ",
			"{'tat', int(tat)}", "{'tat', int(tat), 's', int(last)}",
			"set[3], set[4]", "set[5], set[6]"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := m.tr
			if most := newWorld(t, testkit.Client(t), 7).run(tr).most(tr.cfg.Limits)[0]; most > tr.cfg.Limits[0].N {
				t.Errorf("%d calls in the worst window of %s, with nothing changed", most, tr.cfg.Limits[0])
			}
			tr.mutate, tr.after, tr.swap, tr.forget = m.mutate, m.after, m.swap, m.forget
			if most := newWorld(t, testkit.Client(t), 7).run(tr).most(tr.cfg.Limits)[0]; most <= tr.cfg.Limits[0].N {
				t.Errorf("the mutant lives: %d calls in the worst window of %s", most, tr.cfg.Limits[0])
			}
		})
	}
}

var (
	reserveText = []string{redisdb.NowLua, poolLua, aloneLua, reserveLua}
	releaseText = []string{redisdb.NowLua, poolLua, releaseLua}
)

// swap is a mutated script: the fragments that it is made of, and pairs of a text and its replacement.
type swap struct {
	fragments []string
	pairs     []string
}

// mutant returns the mutated text by the hash of the script that it replaces.
func (s swap) mutant(t testing.TB) map[string]string {
	if s.fragments == nil {
		return nil
	}
	text := redisdb.Compose(s.fragments...)
	hash := sha1.Sum([]byte(text)) //nolint:gosec // Redis's name of a script
	for i := 0; i < len(s.pairs); i += 2 {
		if n := strings.Count(text, s.pairs[i]); n != 1 {
			t.Fatalf("%q stands %d times in the script", s.pairs[i], n)
		}
		text = strings.Replace(text, s.pairs[i], s.pairs[i+1], 1)
	}
	return map[string]string{hex.EncodeToString(hash[:]): text}
}

// trustAnswers makes the process believe that Redis's clock shows, when an answer arrives, what the answer says.
func trustAnswers(p *Pacer) {
	p.bounds.hi, p.bounds.near.hi = p.bounds.lo, p.bounds.near.lo
}

// shorten makes permits ready µs earlier than they should be.
func shorten(by int64) func(*Pacer) {
	return func(p *Pacer) {
		pl := p.plan.Load()
		pl.windows[0].ready = newPlanned(pl.cfg).windows[0].ready - by
	}
}

func newPlanned(cfg PacerConfig) *plan {
	p, err := newPlan(cfg)
	if err != nil {
		panic(err)
	}
	return p
}

// lose is FLUSHALL for one gateway.
func (w *world) lose() {
	keys := append([]string{w.keys.Pace(), w.keys.Hold(), w.keys.Flight()}, w.keys.PaceWindow(1), w.keys.PaceWindow(2))
	if err := w.client.Del(context.Background(), keys...).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// shortWindow is a sliding window that forgets a part too early: it keeps P of them, not P + 1.
type shortWindow struct{ SlidingWindow }

func (s shortWindow) Lua() string {
	return strings.Replace(s.SlidingWindow.Lua(), "local part = (math.floor(b.now / b.p[i]) + 1) * b.p[i]", "local part = math.floor(b.now / b.p[i]) * b.p[i]", 1)
}

// A window in parts needs one more part than it is divided into: else the oldest calls of the oldest part are forgotten too early.
func TestAPartLessBreaksTheSlidingWindow(t *testing.T) {
	t.Parallel()
	client := testkit.Client(t)
	whole := SlidingWindow{Limits: []job.Limit{{N: 5, Window: 10 * time.Second}}, Precision: 10}
	for want, alg := range map[int64]Algorithm{5: whole, 10: shortWindow{whole}} {
		tk := newTaker(client, testkit.Gateway(t))
		var at []int64
		for _, after := range []int64{9_990_000, 19_000_000} {
			for range ask(t, tk, alg, epoch+after, 5, 1)[0] {
				at = append(at, epoch+after)
			}
		}
		if most := mostInWindow(at, nil, 10_000_000); most != want {
			t.Errorf("%T: %d calls within 10 s, want %d", alg, most, want)
		}
	}
}
