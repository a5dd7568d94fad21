package bucket

import (
	"context"
	_ "embed" // the scripts are files
	"fmt"

	"spillway/internal/redisdb"
)

var (
	//go:embed loss.lua
	lossLua string
	//go:embed recall.lua
	recallLua string
	//go:embed seed.lua
	seedLua string
)

var (
	recallScript = redisdb.NewScript(redisdb.NowLua, poolLua, lossLua, recallLua)
	seedScript   = redisdb.NewScript(redisdb.NowLua, poolLua, lossLua, seedLua)
)

// catchUp brings Redis and this process to the same knowledge of the long windows: after a loss Redis is told what is
// remembered, and a process that is new, or whose memory is of older books, looks at the lists once. What fails is tried
// again after the next answer.
func (p *Pacer) catchUp(ctx context.Context) {
	pl := p.plan.Load()
	if pl.long >= len(pl.windows) || !p.catching.TryLock() {
		return
	}
	defer p.catching.Unlock()
	p.mu.Lock()
	testimony, loss := p.known.testimony, p.known.books.loss
	p.mu.Unlock()
	if testimony != nil {
		if testimony.plan.grantsAs(pl) && p.testify(ctx, testimony, loss) != nil {
			return
		}
		p.mu.Lock()
		p.known.testimony = nil
		p.mu.Unlock()
	}
	p.mu.Lock()
	blank := p.known.memory == nil && p.known.books.root != 0
	p.mu.Unlock()
	if !blank {
		return
	}
	if m, err := p.recall(ctx, pl); err == nil {
		p.mu.Lock()
		p.known.memory = m
		p.mu.Unlock()
	}
}

// testify tells Redis what this process remembers from before a loss.
func (p *Pacer) testify(ctx context.Context, m *memory, loss int64) error {
	pl := m.plan
	dearest := m.books.dearest
	if dearest == 0 {
		dearest = pl.maxCost
	}
	args := []any{p.now(), loss, m.until(), m.books.root, pl.shape, pl.tooLate, pl.spacing, pl.tolerance, dearest, len(pl.windows)}
	for _, w := range pl.windows {
		args = append(args, w.n, w.ready)
	}
	for i := range m.past {
		args = append(args, m.told(i)...)
	}
	return seedScript.Run(ctx, p.client, append([]string{p.keys.Pace()}, p.lists(len(pl.windows))...), args...).Err()
}

// recall reads what Redis remembers. It returns nothing while Redis keeps other limits, or lacks what a loss took that nobody has noticed.
func (p *Pacer) recall(ctx context.Context, pl *plan) (*memory, error) {
	p.mu.Lock()
	keys, args := []string{p.keys.Pace()}, []any{p.now(), pl.shape, p.known.floor, p.known.root}
	p.mu.Unlock()
	keys = append(keys, p.lists(len(pl.windows))[pl.long:]...)
	for _, w := range pl.windows[pl.long:] {
		args = append(args, w.ready/pastParts)
	}
	v, err := recallScript.Run(ctx, p.client, keys, args...).Slice()
	if err != nil || len(v) == 0 {
		return nil, err
	}
	return recalled(pl, v)
}

// recalled reads recall.lua's answer. The units of the open cell are counted from its beginning on, as they may be given back.
func recalled(pl *plan, v []any) (*memory, error) {
	const head = 5
	broken := fmt.Errorf("recall.lua answered %d values that make no sense: is another version of the program using this Redis?", len(v))
	if len(v) < head {
		return nil, broken
	}
	b, err := booksOf(v[1:head])
	if err != nil {
		return nil, broken
	}
	m := &memory{plan: pl, books: b}
	if m.now, err = number(v[0]); err != nil {
		return nil, broken
	}
	n := make([]int64, len(v)-head)
	for i := range n {
		if n[i], err = number(v[head+i]); err != nil {
			return nil, broken
		}
	}
	for _, w := range pl.windows[pl.long:] {
		if len(n) == 0 || n[0] < 0 || int64(len(n)) <= 2*n[0] {
			return nil, broken
		}
		p := newPast(w)
		for i := range n[0] {
			p.parts = append(p.parts, part{from: n[2*i+1], edge: n[2*i+1], units: n[2*i+2]})
		}
		p.trim(m.books.units - m.books.before)
		m.past, n = append(m.past, p), n[2*n[0]+1:]
	}
	return m, nil
}
