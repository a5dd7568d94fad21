package main

import (
	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/producer"
)

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
