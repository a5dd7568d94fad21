package bucket

import (
	"math"
	"slices"
)

// pacerModel is the pacer in plain Go: what reserve.lua, release.lua and late.lua do, without their short cuts. It handles no loss.
type pacerModel struct {
	plan      *plan
	last, tat int64
	pools     []*pool
}

// pool is a window: pairs of an edge and the units that are ready again ready µs after it.
type pool struct {
	window
	pairs []pair
	units int64
}

type pair struct {
	edge, units int64
	mine        bool // added to by the reservation under way
}

func newPacerModel(pl *plan) *pacerModel {
	m := &pacerModel{plan: pl}
	for _, w := range pl.windows {
		m.pools = append(m.pools, &pool{window: w})
	}
	return m
}

func (m *pacerModel) reserve(now, lead, want, cost, allowed, spacing int64) (slots []int64, hint int64) {
	for range want {
		slot, ok := max(now+lead, m.last, m.tat-m.plan.tolerance), true
		taken := make([]int, len(m.pools))
		for i, p := range m.pools {
			var ready int64
			taken[i], ready, ok = p.ready(cost)
			if !ok { // its own permits, which are not ready within the horizon
				break
			}
			slot = max(slot, ready)
		}
		if !ok || slot-now > m.plan.horizon {
			if ok {
				hint = slot - now - m.plan.horizon
			}
			break
		}
		for i, p := range m.pools {
			p.take(taken[i], slot, cost, allowed)
		}
		m.last, m.tat = slot, max(m.tat, slot)+spacing*cost
		slots = append(slots, slot)
	}
	for _, p := range m.pools {
		for i := range p.pairs {
			p.pairs[i].mine = false
		}
	}
	return slots, hint
}

// ready returns how many pairs a call of this cost needs, and when the last of them is ready.
func (p *pool) ready(cost int64) (taken int, at int64, ok bool) {
	for units := p.units; units+cost > p.n; taken++ {
		if p.pairs[taken].mine {
			return 0, math.MaxInt64, false
		}
		at = max(at, p.pairs[taken].edge+p.window.ready)
		units -= p.pairs[taken].units
	}
	return taken, at, true
}

func (p *pool) take(taken int, slot, cost, allowed int64) {
	for _, gone := range p.pairs[:taken] {
		p.units -= gone.units
	}
	p.pairs = slices.Delete(p.pairs, 0, taken)
	p.units += cost
	if p.width == 0 {
		p.insert(pair{slot + allowed, cost, true})
		return
	}
	edge := p.part(slot)
	if n := len(p.pairs); n > 0 && p.pairs[n-1].edge == edge {
		p.pairs[n-1].units += cost
		p.pairs[n-1].mine = true
		return
	}
	p.pairs = append(p.pairs, pair{edge, cost, true})
}

// insert adds a pair behind those that count no later.
func (p *pool) insert(q pair) {
	to := 0
	for to < len(p.pairs) && p.pairs[to].edge <= q.edge {
		to++
	}
	p.pairs = slices.Insert(p.pairs, to, q)
}

func (p *pool) part(at int64) int64 { return (at + p.width - 1) / p.width * p.width }

// find returns the place of the slot's pair, the newest first. counted is the moment at which an exact window counts it.
func (p *pool) find(slot, counted, cost int64) int {
	edge := counted
	if p.width > 0 {
		edge = p.part(slot)
	}
	for i := len(p.pairs) - 1; i >= 0; i-- {
		q := p.pairs[i]
		if q.edge == edge && (q.units == cost || p.width > 0 && q.units > cost) {
			return i
		}
		if q.edge < edge {
			return -1
		}
	}
	return -1
}

func (p *pool) drop(i int, cost int64) {
	if p.pairs[i].units -= cost; p.pairs[i].units == 0 {
		p.pairs = slices.Delete(p.pairs, i, i+1)
	}
}

func (m *pacerModel) release(slot, counted, cost int64) {
	found := false
	for _, p := range m.pools {
		if i := p.find(slot, counted, cost); i >= 0 {
			p.drop(i, cost)
			p.units -= cost
			found = true
		}
	}
	if found && slot == m.last {
		m.tat -= m.plan.spacing * cost
	}
}

func (m *pacerModel) late(slot, counted, cost, written int64) {
	for _, p := range m.pools {
		i := p.find(slot, counted, cost)
		switch {
		case i < 0:
		case p.width == 0:
			p.drop(i, cost)
			p.insert(pair{edge: written, units: cost})
		case written > slot+m.plan.tooLate && p.part(written) > p.part(slot):
			p.drop(i, cost)
			for i < len(p.pairs) && p.pairs[i].edge < p.part(written) {
				i++
			}
			if i < len(p.pairs) {
				p.pairs[i].units += cost // the first part that ends late enough
				continue
			}
			p.pairs = append(p.pairs, pair{edge: p.part(written), units: cost})
		}
	}
}
