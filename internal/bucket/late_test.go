package bucket

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// One report of many late calls has the same result as a report for each.
func TestManyLateCallsAtOnceAreAsGoodAsOneByOne(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	seed := uint64(testkit.Often(1, 0))
	if seed == 0 { // another one each time under -long
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range testkit.Often(40, 150) {
		cfg := PacerConfig{Limits: []job.Limit{{N: 1000, Window: time.Second}, {N: 1_000_000, Window: time.Hour}}}
		if r.IntN(4) == 0 {
			cfg.Limits = cfg.Limits[:1]
		}
		n := 1 + r.IntN(400)
		edges, costs := make([]int64, n), make([]int64, n)
		for i := range n {
			edges[i], costs[i] = 1_700_000_000_000_000+int64(i)*1000-int64(r.IntN(2))*500, 1+r.Int64N(2)
		}
		slices.Sort(edges)
		var calls []lateCall
		for range 1 + r.IntN(40) {
			i := max(n-1-r.IntN(60), 0)
			if r.IntN(20) == 0 {
				i = r.IntN(n)
			}
			count := (edges[i] - 20_000 + r.Int64N(70_000)) | 1 // no call's edge: else one that is drawn twice could find another call's pair
			calls = append(calls, lateCall{slot: job.Slot{At: edges[i], Cost: costs[i]}, edge: edges[i], count: count})
		}
		var left [2][][]string
		for way := range left {
			p := latePacer(t, cfg, edges, costs)
			if way == 0 {
				p.reportAll(calls)
			} else {
				for _, c := range calls {
					p.reportAll([]lateCall{c})
				}
			}
			for k := range p.plan.Load().windows {
				left[way] = append(left[way], p.pairs(t, k+1))
			}
		}
		for k := range left[0] {
			if !slices.Equal(left[0][k], left[1][k]) {
				t.Fatalf("window %d of %v: at once\n%v\none by one\n%v", k+1, cfg.Limits, left[0][k], left[1][k])
			}
		}
	}
}

// latePacer is a pacer whose windows have these pairs.
func latePacer(t *testing.T, cfg PacerConfig, edges, costs []int64) *Pacer {
	t.Helper()
	cfg.Gateway = testkit.Gateway(t)
	p, err := NewPacer(testkit.Client(t), cfg, NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	p.within = unhurried
	ctx, pl := context.Background(), p.plan.Load()
	p.client.HSet(ctx, p.keys.Pace(), "g", pl.shape)
	for k, w := range pl.windows {
		var values []any
		for i := range edges {
			edge := edges[i]
			if w.width > 0 {
				edge = (edge + w.width - 1) / w.width * w.width
			}
			if last := len(values) - 2; w.width > 0 && last >= 0 && values[last] == edge {
				values[last+1] = values[last+1].(int64) + costs[i]
				continue
			}
			values = append(values, edge, costs[i])
		}
		p.client.RPush(ctx, p.keys.PaceWindow(k+1), values...)
	}
	return p
}

func (p *Pacer) reportAll(calls []lateCall) {
	all := slices.Clone(calls)
	for i := range all {
		all[i].plan, all[i].since = p.plan.Load(), p.clock.Now()
	}
	p.reportLate(all)
}

// pairs returns the contents of a window's list; pairs with the same edge have no order.
func (p *Pacer) pairs(t *testing.T, k int) []string {
	t.Helper()
	v := p.client.LRange(context.Background(), p.keys.PaceWindow(k), 0, -1).Val()
	pairs, last := []string{}, int64(0)
	for i := 0; i < len(v); i += 2 {
		edge, err := strconv.ParseInt(v[i], 10, 64)
		if err != nil || edge < last {
			t.Fatalf("window %d is out of order: %v", k, v)
		}
		last = edge
		pairs = append(pairs, v[i]+" "+v[i+1])
	}
	slices.Sort(pairs)
	return pairs
}

// Calls that are late at about the same time go in one report, and all of them arrive.
func TestLateCallsOfAMomentGoTogether(t *testing.T) {
	t.Parallel()
	const n = 150
	edges, costs := make([]int64, n), make([]int64, n)
	for i := range n {
		edges[i], costs[i] = 1_700_000_000_000_000+int64(i)*1000, 1
	}
	p := latePacer(t, PacerConfig{Limits: []job.Limit{{N: 1000, Window: time.Second}}}, edges, costs)
	for i := range n {
		p.tellLater(wasLate(p, job.Slot{At: edges[i], Cost: 1}, edges[i]+500_000))
	}
	p.Close(t.Context())
	for i, pair := range p.pairs(t, 1) {
		if want := strconv.FormatInt(edges[i]+500_000-p.plan.Load().epsilon, 10) + " 1"; pair != want {
			t.Fatalf("pair %d is %s, want %s", i, pair, want)
		}
	}
	if len(p.late.later) != 0 {
		t.Errorf("%d calls still wait", len(p.late.later))
	}
}

// A late call opens a sub-bucket before the previous one is full. What is in the newer one is found behind the older one.
func TestAPermitIsFoundBehindAnOlderSubBucket(t *testing.T) {
	t.Parallel()
	cfg := PacerConfig{Limits: []job.Limit{{N: 1_000_000, Window: time.Hour}}}
	older := int64(1_700_000_000_000_000)
	p := latePacer(t, cfg, []int64{older}, []int64{1})
	width := p.plan.Load().windows[0].width
	p.client.Del(t.Context(), p.keys.PaceWindow(1))
	older = older / width * width
	p.client.RPush(t.Context(), p.keys.PaceWindow(1), older+width, 2, older, 1)
	late := wasLate(p, job.Slot{At: older + 1000, Cost: 1}, older+width+3000)
	if counted, err := p.reportOnce([]lateCall{late}, answerWithin); err != nil || !counted[0] {
		t.Errorf("its permit is lost, %v", err)
	}
	if got, want := p.client.LRange(t.Context(), p.keys.PaceWindow(1), 0, -1).Val(), fmt.Sprint([]int64{older + width, 1, older, 1, older + 2*width, 1}); fmt.Sprint(got) != want {
		t.Errorf("the window is %v, want %v", got, want)
	}
}
