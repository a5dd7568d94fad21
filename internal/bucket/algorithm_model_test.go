package bucket

import (
	"math/big"
	"slices"

	"spillway/internal/job"
)

// model keeps an Algorithm in plain Go, without Redis and without Lua's numbers: the slow and obvious way. It keeps
// the same promises about the clock and about changes of limits and algorithm.
type model struct {
	alg          Algorithm // as of the last change; nil = none yet
	last, offset int64
	kept         kept
}

// kept is the state of one algorithm at one moment.
type kept interface {
	// load returns the state at now. old is what was kept at last under the limits before: nil = nothing, another
	// type = another algorithm.
	load(old kept, alg Algorithm, last, now int64) kept
	room(cost int64) bool
	take(cost int64)
	retry(cost int64) int64
	reset() int64
	remaining() []int64
}

func newKept(alg Algorithm) kept {
	switch alg.(type) {
	case FixedWindow:
		return &fixedModel{}
	case SlidingWindow:
		return &slidingModel{}
	case SlidingLog:
		return &logModel{}
	}
	return &levelModel{}
}

// take does what testdata/take.lua does.
func (m *model) take(alg Algorithm, now, n, cost int64) ([]int64, error) {
	k := newKept(alg)
	last, offset, moved := m.last, m.offset, false
	at := now + offset
	if moved = at < last-2_000_000; moved {
		offset, at = last-now, last
	}
	lag := max(last-at, 0)
	k = k.load(m.kept, alg, last, max(at, last))
	taken := int64(0)
	for taken < n && k.room(cost) {
		k.take(cost)
		taken++
	}
	out := []int64{taken, later(k.retry(cost), lag), later(k.reset(), lag)}
	if taken > 0 || moved {
		m.alg, m.kept, m.last, m.offset = alg, k, max(at, last), offset
	}
	return append(out, k.remaining()...), nil
}

func later(wait, lag int64) int64 {
	if wait > 0 {
		return wait + lag
	}
	return wait
}

func big64(x int64) *big.Int { return big.NewInt(x) }

func mul(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

// ceilDiv rounds up, also for negative a.
func ceilDiv(a *big.Int, b int64) *big.Int {
	q, r := new(big.Int).DivMod(a, big64(b), new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big64(1))
	}
	return q
}

// levelModel is token bucket and leaky bucket.
type levelModel struct {
	unit []units
	used []*big.Int
}

func levelsOf(alg Algorithm) []units {
	switch a := alg.(type) {
	case TokenBucket:
		return a.units()
	case LeakyBucket:
		var all []units
		for _, l := range a.Limits {
			t := (l.Window.Microseconds()-1)/l.N + 1
			all = append(all, units{r: 1, c: t, cap: t * a.Burst})
		}
		return all
	}
	panic("no level")
}

func (m *levelModel) load(old kept, alg Algorithm, last, now int64) kept {
	unit := levelsOf(alg)
	m = &levelModel{unit: unit}
	before, same := old.(*levelModel)
	for i, u := range unit {
		used := new(big.Int)
		switch {
		case old != nil && !same:
			used.SetInt64(u.cap)
		case same && slices.Equal(before.unit, unit):
			used.Set(before.used[i])
		case same:
			used = before.highest(u)
		}
		used.Sub(used, mul(big64(now-last), big64(u.r)))
		if used.Sign() < 0 {
			used.SetInt64(0)
		}
		m.used = append(m.used, used)
	}
	return m
}

// highest is the most tokens that any limit has in use, in the units of u.
func (m *levelModel) highest(u units) *big.Int {
	most := new(big.Int)
	for j, in := range m.used {
		from := m.unit[j].c
		tokens, rest := new(big.Int).QuoRem(in, big64(from), new(big.Int))
		part := mul(rest, big64(u.c))
		if part.Cmp(big64(1<<52)) >= 0 {
			part = mul(big64(u.c), big64(from)) // a started token counts whole
		}
		here := new(big.Int).Add(mul(tokens, big64(u.c)), ceilDiv(part, from))
		if here.Cmp(big64(u.cap)) > 0 {
			here.SetInt64(u.cap)
		}
		if here.Cmp(most) > 0 {
			most = here
		}
	}
	return most
}

// over returns how many units of limit i are missing for the cost.
func (m *levelModel) over(i int, cost int64) *big.Int {
	need := new(big.Int).Add(m.used[i], mul(big64(cost), big64(m.unit[i].c)))
	return need.Sub(need, big64(m.unit[i].cap))
}

func (m *levelModel) room(cost int64) bool {
	for i := range m.unit {
		if m.over(i, cost).Sign() > 0 {
			return false
		}
	}
	return true
}

func (m *levelModel) take(cost int64) {
	for i, u := range m.unit {
		m.used[i].Add(m.used[i], mul(big64(cost), big64(u.c)))
		if m.used[i].Sign() < 0 {
			m.used[i].SetInt64(0)
		}
	}
}

func (m *levelModel) retry(cost int64) int64 {
	wait := int64(0)
	for i, u := range m.unit {
		if cost > u.cap/u.c {
			return -1
		}
		wait = max(wait, ceilDiv(m.over(i, cost), u.r).Int64())
	}
	return wait
}

func (m *levelModel) reset() int64 {
	wait := int64(0)
	for i, u := range m.unit {
		wait = max(wait, ceilDiv(m.used[i], u.r).Int64())
	}
	return wait
}

func (m *levelModel) remaining() (left []int64) {
	for i, u := range m.unit {
		left = append(left, new(big.Int).Quo(new(big.Int).Sub(big64(u.cap), m.used[i]), big64(u.c)).Int64())
	}
	return left
}

// charge is what was taken at one time; until is when it stops counting, for a window of length zero.
type charge struct{ at, cost int64 }

// windowsModel is what the window algorithms share: for each limit the charges that count, and when each stops counting.
type windowsModel struct {
	now     int64
	limits  []job.Limit
	charges [][]charge
	ends    func(i int, c charge) int64
}

func (m *windowsModel) used(i int) (sum int64) {
	for _, c := range m.charges[i] {
		sum += c.cost
	}
	return sum
}

func (m *windowsModel) room(cost int64) bool {
	for i, l := range m.limits {
		if m.used(i)+cost > l.N {
			return false
		}
	}
	return true
}

func (m *windowsModel) take(cost int64) {
	for i := range m.limits {
		m.charges[i] = append(m.charges[i], charge{m.now, cost})
	}
}

func (m *windowsModel) retry(cost int64) int64 {
	wait := int64(0)
	for i, l := range m.limits {
		if cost > l.N {
			return -1
		}
		over := m.used(i) + cost - l.N
		for _, c := range m.charges[i] {
			if over > 0 {
				wait = max(wait, m.ends(i, c)-m.now)
			}
			over -= c.cost
		}
	}
	return wait
}

func (m *windowsModel) reset() int64 {
	wait := int64(0)
	for i, all := range m.charges {
		for _, c := range all {
			wait = max(wait, m.ends(i, c)-m.now)
		}
	}
	return wait
}

func (m *windowsModel) remaining() (left []int64) {
	for i, l := range m.limits {
		left = append(left, max(l.N-m.used(i), 0))
	}
	return left
}

// expire drops what no longer counts.
func (m *windowsModel) expire() {
	for i := range m.charges {
		m.charges[i] = slices.DeleteFunc(m.charges[i], func(c charge) bool { return m.ends(i, c) <= m.now })
	}
}

func micro(l job.Limit) int64 { return l.Window.Microseconds() }

type fixedModel struct{ windowsModel }

func (*fixedModel) load(old kept, alg Algorithm, last, now int64) kept {
	m := &fixedModel{windowsModel{now: now, limits: alg.(FixedWindow).Limits}}
	m.ends = func(i int, c charge) int64 { w := micro(m.limits[i]); return (c.at/w + 1) * w }
	before, same := old.(*fixedModel)
	for _, l := range m.limits {
		n := int64(0)
		switch {
		case same:
			n = before.taken(l)
		case old != nil:
			n = l.N
		}
		m.charges = append(m.charges, []charge{{last, n}})
		if n == 0 {
			m.charges[len(m.charges)-1] = nil
		}
	}
	m.expire()
	return m
}

// taken is the count of the window of that length, or else the highest count.
func (m *fixedModel) taken(l job.Limit) (most int64) {
	for i, have := range m.limits {
		if have.Window == l.Window {
			return m.used(i)
		}
		most = max(most, m.used(i))
	}
	return most
}

// slidingModel counts everything at the end of its part.
type slidingModel struct {
	windowsModel
	parts int64
}

func (*slidingModel) load(old kept, alg Algorithm, last, now int64) kept {
	a := alg.(SlidingWindow)
	m := &slidingModel{windowsModel{now: now, limits: a.Limits}, a.Precision}
	m.ends = func(i int, c charge) int64 { return c.at + micro(m.limits[i]) }
	before, same := old.(*slidingModel)
	for _, l := range m.limits {
		var all []charge
		switch {
		case same:
			all = slices.Clone(before.serving(l))
		case old != nil:
			all = []charge{{last, l.N}}
		}
		m.charges = append(m.charges, all)
	}
	m.expire()
	return m
}

// serving returns what was kept for a window of that length, or else for the next longer one, or else for the longest.
func (m *slidingModel) serving(l job.Limit) []charge {
	best := 0
	for i, have := range m.limits {
		w, b := have.Window, m.limits[best].Window
		if b < l.Window && w > b || w >= l.Window && w < b {
			best = i
		}
	}
	return m.charges[best]
}

func (m *slidingModel) take(cost int64) {
	for i, l := range m.limits {
		part := (micro(l) + m.parts - 1) / m.parts
		at := m.now - m.now%part + part
		if n := len(m.charges[i]); n > 0 {
			at = max(at, m.charges[i][n-1].at)
		}
		m.charges[i] = append(m.charges[i], charge{at, cost})
	}
}

// logModel is one log for all limits.
type logModel struct {
	windowsModel
}

func (*logModel) load(old kept, alg Algorithm, last, now int64) kept {
	m := &logModel{windowsModel{now: now, limits: alg.(SlidingLog).Limits}}
	m.ends = func(i int, c charge) int64 { return c.at + micro(m.limits[i]) }
	before, same := old.(*logModel)
	for _, l := range m.limits {
		var all []charge
		switch {
		case same:
			all = slices.Clone(before.longest())
		case old != nil:
			all = []charge{{last, l.N}}
		}
		m.charges = append(m.charges, all)
	}
	if old != nil && !same { // one entry for all
		most := int64(0)
		for _, l := range m.limits {
			most = max(most, l.N)
		}
		for i := range m.charges {
			m.charges[i] = []charge{{last, most}}
		}
	}
	m.expire()
	return m
}

// longest is what the longest window holds.
func (m *logModel) longest() []charge {
	return slices.MaxFunc(m.charges, func(a, b []charge) int { return len(a) - len(b) })
}
