package main

import (
	"context"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
)

// pipe puts chunks before a door, in order. Where the door answers later, as one does that parks what has no room, the next chunk is on its way before the
// one before is answered.
type pipe struct {
	door  door
	tally *tally
	last  *sent // on its way; nil: none is
}

// sent is a chunk on its way.
type sent struct {
	chunk
	passage *admission.Passage
	begun   time.Time
}

// put puts a chunk before the door, waits for the answers to the one before, and counts them.
func (p *pipe) put(ctx context.Context, c chunk) error {
	begun := time.Now()
	next := &sent{c, p.door.Begin(ctx, c.gateway, c.jobs, p.tally.opt.mode), begun}
	err := p.wait(ctx)
	p.last = next
	select {
	case <-p.over():
	default:
		if err == nil {
			return nil
		}
	}
	return also(err, p.wait(ctx))
}

// over closes when the chunk on its way has been answered. Nil where none is.
func (p *pipe) over() <-chan struct{} {
	if p.last == nil {
		return nil
	}
	return p.last.passage.Over()
}

// wait waits for the answers to the chunk on its way, and counts them.
func (p *pipe) wait(ctx context.Context) error {
	s := p.last
	if s == nil {
		return nil
	}
	p.last = nil
	answers, err := s.passage.Wait()
	p.tally.traces.Accepted(ctx, s.jobs[:min(len(s.jobs), len(answers))], func(i int) job.Admittance { return answers[i].Outcome }, s.begun, time.Now())
	return p.tally.take(s.chunk, answers, err)
}
