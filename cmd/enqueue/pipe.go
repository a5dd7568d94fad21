package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
)

// door admits chunks of jobs, as admission.Line does. If Begin returns an answered passage, its answers are
// counted before the next chunk begins.
type door interface {
	Begin(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) *admission.Passage
}

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

// take counts the answers of a chunk. err is why it has fewer answers than jobs; nil if it has all.
func (t *tally) take(c chunk, answers []admission.Answer, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var full *admission.Answer
	for i, a := range answers {
		if a.Outcome == job.Full {
			full = &answers[i]
			continue
		}
		if countErr := t.count(a, c.from[i]); countErr != nil {
			return errors.Join(err, countErr)
		}
	}
	t.progress.Set(t.in.read.Load())
	if err == nil && full != nil {
		if t.full == nil { // two chunks may get this error
			t.full = noRoom(c.gateway, full)
		}
		err = t.full
	}
	return err
}

// count counts one answer.
func (t *tally) count(a admission.Answer, from origin) error {
	t.rows.answered(from.number, a)
	switch a.Outcome {
	case job.Enqueued:
		t.enqueued++
	case job.ParkedNow:
		t.parked++
	case job.Duplicate:
		t.duplicate++
		if a.KnownAt != "" {
			if t.elsewhere == nil {
				t.elsewhere = map[string]int64{}
			}
			t.elsewhere[a.KnownAt]++
		}
	default:
		if a.Err == nil {
			return nil // no answer: counted as failed
		}
		t.conflicts++
		t.fault(from.number, a.Err.Error())
		return t.rejects.add(from.raw, nil)
	}
	return nil
}

// noRoom returns the error for jobs that found no room, with --on-full fail.
func noRoom(gateway string, full *admission.Answer) error {
	if full.Room != nil && full.Room.Parked.Bounds() {
		reached, key := full.Room.Parked.Reached()
		return &job.Error{
			Code:    job.CodeInvalid,
			Message: fmt.Sprintf("gateway %s has no room for all of them, and %s: stopped", gateway, reached),
			Hint: fmt.Sprintf("replay, resolve or discard parked jobs (see: dispatcher dlq stats -g %s), let them go in, or raise %s; then run the same again (%s)",
				gateway, key, safeAgain),
		}
	}
	when, retry := "wait for room", full.RetryAfter
	if retry > 0 {
		when = fmt.Sprintf("there may be room in %s", cli.Short(max(retry, time.Second).Round(time.Second)))
	}
	return &job.Error{
		Code:    job.CodeInvalid,
		Message: fmt.Sprintf("gateway %s has no room for all of them: stopped", gateway),
		Hint:    when + ", then run the same again (" + safeAgain + "), or use --on-full park or wait",
	}
}

const openBytes = 16 << 20 // limit on all incomplete chunks together, over all gateways

// chunk holds jobs of one gateway, in file order.
type chunk struct {
	gateway string
	jobs    []job.Job
	from    []origin
	bytes   int
}

// origin is where a job came from in the input.
type origin struct {
	number int
	raw    []byte
}

// chunks holds the incomplete chunks, oldest first.
type chunks struct {
	open  []chunk
	bytes int
}

// add adds a line's job and returns the chunks that are now ready.
func (c *chunks) add(l producer.Line) []chunk {
	i := c.find(l.Job.Gateway)
	ch := &c.open[i]
	ch.jobs = append(ch.jobs, l.Job)
	ch.from = append(ch.from, origin{l.Number, l.Raw})
	ch.bytes += len(l.Raw)
	c.bytes += len(l.Raw)
	if len(ch.jobs) >= admission.ChunkJobs || ch.bytes >= admission.ChunkBytes {
		ready := *ch
		c.bytes -= ready.bytes
		c.open = append(c.open[:i], c.open[i+1:]...)
		return []chunk{ready}
	}
	if c.bytes >= openBytes {
		return c.all()
	}
	return nil
}

func (c *chunks) find(gateway string) int {
	for i := range c.open {
		if c.open[i].gateway == gateway {
			return i
		}
	}
	c.open = append(c.open, chunk{gateway: gateway, jobs: make([]job.Job, 0, admission.ChunkJobs), from: make([]origin, 0, admission.ChunkJobs)})
	return len(c.open) - 1
}

// all returns every chunk and starts over.
func (c *chunks) all() []chunk {
	ready := c.open
	c.open, c.bytes = nil, 0
	return ready
}

// opened is an open door.
type opened struct {
	door
	close     func()
	replacing *desk.Replacement // nil unless payloads are replaced
	canary    *canaryDoor       // nil unless only the first jobs of the batch go ahead
}

// openDoor connects to Redis and opens the door of every gateway; a dry run gets a door that admits nothing. It
// fails for a Redis that would lose jobs, and calls warn for one that may.
func openDoor(ctx context.Context, src jobSource, warn func(format string, args ...any)) (*opened, error) {
	if src.opt.dryRun && !src.opt.replace {
		return &opened{door: noDoor{}, close: func() {}}, nil
	}
	db, err := dispatch.OpenTelling(ctx, src.cfg, src.opt.patience, func(err error) {
		if !src.opt.Quiet {
			warn("waiting for Redis, for %s at most: %v", src.opt.patience, err)
		}
	})
	if err != nil {
		return nil, err
	}
	findings, err := dispatch.Inspect(ctx, db, src.opt.patience)
	if err == nil {
		err = dispatch.Known(ctx, db, src.cfg.Gateways, src.opt.patience)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, f := range findings {
		if f.Severity == redisdb.Warn {
			warn("warning: %s; %s", f.Message, f.Hint)
		}
	}
	if src.opt.replace {
		return openReplacement(ctx, src, db)
	}
	line := dispatch.Door(db.Client, src.cfg, src.opt.patience).Line()
	d := &opened{door: line, close: func() {
		line.Close()
		_ = db.Close()
	}}
	if src.opt.canary > 0 {
		d.canary = &canaryDoor{door: line, src: src, client: db.Client, books: map[string]*ledger.Books{}}
		d.door = d.canary
	}
	return d, nil
}

// noDoor is the door of a dry run. It gives no answers.
type noDoor struct{}

// Begin implements door.
func (noDoor) Begin(_ context.Context, _ string, jobs []job.Job, _ admission.Mode) *admission.Passage {
	return admission.Answered(make([]admission.Answer, len(jobs)), nil)
}
