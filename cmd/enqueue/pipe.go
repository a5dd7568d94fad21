package main

import (
	"context"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
)

// pipe submits chunks to a door, in order. If the door answers later, as it does when it parks jobs that find
// no room, the next chunk is sent before the previous one is answered.
type pipe struct {
	door  door
	tally *tally
	last  *sent // in flight; nil: none
}

// sent is a chunk in flight.
type sent struct {
	chunk
	passage *admission.Passage
	begun   time.Time
}

// put submits a chunk, waits for the answers to the previous one, and counts them.
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

// over returns a channel that closes when the chunk in flight has been answered. It is nil if no chunk is in
// flight.
func (p *pipe) over() <-chan struct{} {
	if p.last == nil {
		return nil
	}
	return p.last.passage.Over()
}

// wait waits for the answers to the chunk in flight, and counts them.
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
