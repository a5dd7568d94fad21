package bucket

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// stale is how old an answer may be, in µs, before Hear looks again.
const stale = 400_000

// Report has Redis hear, in the background, what this process knows of the slots that were given out, and learns what is new. A state that
// begins from nothing asks for it on HoldChannel: whoever knows of an older one objects by this.
func (p *Pacer) Report() {
	p.background(func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
		defer cancel()
		g, err := p.reserve(ctx, wish{cost: 1})
		if err == nil && g.state == stateReshape {
			err = p.reshape(ctx)
		}
		if err == nil {
			p.catchUp(ctx)
		}
	})
}

// Hear keeps pacers on one Redis up to date, in one round trip, that have not asked it for a while: the less a process has missed when
// Redis loses its memory, the less is charged for what it doesn't know. Call it once or twice a second. It writes nothing; who finds
// that Redis knows less than he does reports.
func Hear(ctx context.Context, c redis.UniversalClient, all []*Pacer) error {
	var asked []*Pacer
	for _, p := range all {
		if p.missesNews() {
			asked = append(asked, p)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	sent := make([]int64, len(asked))
	answers := make([]*redis.SliceCmd, len(asked))
	_, _ = c.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each has its own error
		for i, p := range asked {
			sent[i] = p.local(p.clock.Now())
			answers[i] = pipe.HMGet(ctx, p.keys.Pace(), "s", "o", "u", "w")
		}
		return nil
	})
	var first error
	for i, p := range asked {
		if err := answers[i].Err(); err != nil {
			first = cmp.Or(first, err)
			continue
		}
		p.heard(answers[i].Val(), sent[i])
	}
	return first
}

// missesNews: a pacer without a window that is charged after a loss remembers nothing, and one that never asked has nothing to miss.
func (p *Pacer) missesNews() bool {
	pl := p.plan.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	return pl.long < len(pl.windows) && p.known.at > 0 && p.bounds.notAfter(p.local(p.clock.Now()))-p.known.at > stale
}

// heard takes in how the books stood, at the earliest, when they were asked for.
func (p *Pacer) heard(v []any, sent int64) {
	b, err := booksOf(v)
	if err != nil {
		return // the next reservation says what is wrong
	}
	p.mu.Lock()
	lost := b.root != p.known.root || b.last < p.known.floor
	if !lost {
		p.known.floor = b.last
		p.known.read(b, p.bounds.earliest(sent))
	}
	behind := lost || p.known.testimony != nil || p.known.memory == nil && b.root != 0
	p.mu.Unlock()
	if behind {
		p.Report()
	}
}
