package main

import (
	"context"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/tracing"
)

const openBytes = 16 << 20 // of all the chunks that are not full yet, over all gateways

// chunk is jobs of one gateway, in the order of the file.
type chunk struct {
	gateway string
	jobs    []job.Job
	from    []origin
	bytes   int
	// prepared is what the door has made of the jobs already; nil where the door can't do that ahead.
	prepared *admission.Prepared
}

// liner is a door that does part of its work ahead, and lets one chunk come on the heels of another.
type liner interface {
	Prepare(gateway string, jobs []job.Job) *admission.Prepared
	Line() *admission.Line
}

func (c *chunk) prepare(d door) {
	if p, ok := d.(liner); ok {
		c.prepared = p.Prepare(c.gateway, c.jobs)
	}
}

// admit puts the chunk before the door. end waits for the answers, and tells the traces of its jobs.
func (c *chunk) admit(ctx context.Context, d door, line *admission.Line, mode admission.Mode, traces *tracing.Tracer) (end func() ([]admission.Answer, error)) {
	begun := time.Now()
	wait := c.offer(ctx, d, line, mode)
	return func() ([]admission.Answer, error) {
		answers, err := wait()
		traces.Accepted(ctx, c.jobs[:min(len(c.jobs), len(answers))], func(i int) job.Admittance { return answers[i].Outcome }, begun, time.Now())
		return answers, err
	}
}

func (c *chunk) offer(ctx context.Context, d door, line *admission.Line, mode admission.Mode) (end func() ([]admission.Answer, error)) {
	if line != nil {
		return line.Begin(ctx, c.prepared, mode)
	}
	answers, err := d.Admit(ctx, c.gateway, c.jobs, mode)
	return func() ([]admission.Answer, error) { return answers, err }
}

// origin is where a job came from.
type origin struct {
	number int
	raw    []byte
}

// chunks are those that are not full yet, in the order in which they were begun.
type chunks struct {
	open  []chunk
	bytes int
}

// add adds a line's job and returns the chunks that are ready now.
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

// all returns the chunks there are and begins anew.
func (c *chunks) all() []chunk {
	ready := c.open
	c.open, c.bytes = nil, 0
	return ready
}
