package bucket

import (
	"context"
	_ "embed" // the scripts are files
	"fmt"

	"github.com/redis/go-redis/v9"

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
	recallScript = redisdb.NewScript(redisdb.NowLua, recallLua)
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
		if testimony.plan == pl && p.testify(ctx, testimony, loss) != nil {
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

// recall reads what Redis remembers. It returns nothing while Redis keeps other limits.
func (p *Pacer) recall(ctx context.Context, pl *plan) (*memory, error) {
	keys, args := []string{p.keys.Pace()}, []any{p.now(), pl.shape}
	keys = append(keys, p.lists(len(pl.windows))[pl.long:]...)
	for _, w := range pl.windows[pl.long:] {
		args = append(args, w.ready/pastParts)
	}
	cmd := recallScript.Run(ctx, p.client, keys, args...)
	n, err := numbers(cmd)
	if err != nil || len(n) == 0 {
		return nil, err
	}
	return recalled(pl, n)
}

func numbers(cmd *redis.Cmd) ([]int64, error) {
	v, err := cmd.Slice()
	if err != nil {
		return nil, err
	}
	n := make([]int64, len(v))
	for i := range v {
		if n[i], err = number(v[i]); err != nil {
			return nil, fmt.Errorf("recall.lua answered %v at place %d: is another version of the program using this Redis?", v[i], i)
		}
	}
	return n, nil
}

// recalled reads recall.lua's answer. The units of the open cell are counted from its beginning on, as they may be given back.
func recalled(pl *plan, n []int64) (*memory, error) {
	const head = 8
	broken := fmt.Errorf("recall.lua answered with %d values: is another version of the program using this Redis?", len(n))
	if len(n) < head {
		return nil, broken
	}
	m := &memory{plan: pl, now: n[0], books: books{last: n[1], root: n[2], id: n[3], units: n[4], before: n[5], since: n[6], dearest: n[7]}}
	n = n[head:]
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
