package deadletter

import (
	"context"
	"fmt"
	"strings"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/record"
)

// Canary is the state of the jobs that a replay sent ahead.
type Canary struct {
	Sent    int
	Done    int
	Waiting int      // not finished yet
	Later   int      // scheduled for later: they show nothing
	Failed  []string // id and result of each that was parked again or waits for a back-off
}

// canary is the jobs being sent ahead.
type canary struct {
	size int // how many go first; 0 means none
	sent []due
	over bool
}

// goal returns how many jobs to collect for the next offer; at most most are sent at once.
func (c *canary) goal(most int) int {
	if c.over {
		return most
	}
	return min(c.size-len(c.sent), most)
}

// took records a job that was sent.
func (c *canary) took(d due) {
	if !c.over {
		c.sent = append(c.sent, d)
	}
}

// canaryPoll is how often the jobs sent ahead are checked.
const canaryPoll = 100 * time.Millisecond

// follow waits until the jobs sent ahead are finished, once all of them or, at the end, as many as there are
// were sent. It returns a Halt if one of them failed, or if none could show anything.
func (c *running) follow(ctx context.Context, atEnd bool) error {
	a := &c.canary
	if a.over || len(a.sent) == 0 || (len(a.sent) < a.size && !atEnd) {
		return nil
	}
	a.over = true
	for {
		now, err := c.lookAtCanary(ctx)
		if err != nil {
			return err
		}
		if c.Canaries != nil {
			c.Canaries(now)
		}
		if now.Waiting == 0 {
			return now.verdict()
		}
		if c.Progress != nil {
			c.Progress(c.done)
		}
		if err := c.watch(ctx); err != nil {
			return err
		}
		c.wait(ctx, canaryPoll)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (c *running) lookAtCanary(ctx context.Context) (Canary, error) {
	sent := c.canary.sent
	seen := Canary{Sent: len(sent)}
	ids := make([]string, len(sent))
	for i, d := range sent {
		ids[i] = d.rec.Job.ID
	}
	for from := 0; from < len(ids); from += page {
		records, err := c.Store.records(ctx, ids[from:min(from+page, len(ids))], record.Listed())
		if err != nil {
			return seen, err
		}
		for _, r := range records {
			seen.add(r)
		}
	}
	return seen, nil
}

// add counts a job by its record. A missing record means that the job was done or discarded.
func (c *Canary) add(r job.Record) {
	switch {
	case r.State == job.Done || r.State == "":
		c.Done++
	case r.State == job.Scheduled:
		c.Later++
	case r.State == job.Parked:
		c.fail(r, "was parked again as "+string(r.Reason))
	case r.State == job.Discarded:
		c.fail(r, "was discarded meanwhile")
	case r.State == job.Retrying || r.Spent > 0:
		c.fail(r, "has to be tried again")
	default:
		c.Waiting++
	}
}

// fail records what happened, without the answer's text, which may contain personal data.
func (c *Canary) fail(r job.Record, what string) {
	if r.Status > 0 {
		what += fmt.Sprintf(" (HTTP %d)", r.Status)
	}
	c.Failed = append(c.Failed, r.Job.ID+" "+what)
}

// mostNamed is the most failed jobs that an error names.
const mostNamed = 5

func (c Canary) verdict() error {
	switch {
	case len(c.Failed) > 0:
		named := strings.Join(c.Failed[:min(len(c.Failed), mostNamed)], ", ")
		if more := len(c.Failed) - mostNamed; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		return &Halt{Why: fmt.Sprintf("%d of the %d sent ahead failed: %s", len(c.Failed), c.Sent, named), Canary: &c}
	case c.Done == 0:
		return &Halt{Why: fmt.Sprintf("the time of all %d sent ahead is still to come: they can't show whether the gateway is well", c.Sent), Canary: &c}
	}
	return nil
}

// pace spreads cost evenly over time.
type pace struct {
	clock clock.Clock
	rate  float64   // units of cost a second; 0 means no bound
	next  time.Time // when the next job may go
}

const (
	// paceTick is the shortest wait: at a high rate several jobs go together, because one script each would be
	// expensive.
	paceTick = 10 * time.Millisecond
	// paceSlack is how much delay is made up for, so that a late timer costs no throughput.
	paceSlack = 50 * time.Millisecond
)

// change sets the rate. A wait for the old rate is shortened to the new one's.
func (p *pace) change(rate float64) {
	if rate == p.rate {
		return
	}
	p.rate = rate
	if first := p.clock.Now().Add(p.span(1)); p.next.After(first) {
		p.next = first
	}
}

// span returns how long so much cost takes at the rate.
func (p *pace) span(cost int64) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return time.Duration(min(float64(cost)/p.rate*float64(time.Second), float64(longest)))
}

// longest keeps a tiny rate from overflowing.
const longest = 1000 * 24 * time.Hour

// room returns how many of the jobs may go now; if none, how long to wait.
func (p *pace) room(jobs []due) (n int, wait time.Duration) {
	if p.rate == 0 {
		return len(jobs), 0
	}
	now := p.clock.Now()
	switch {
	case p.next.IsZero():
		p.next = now
	case p.next.Before(now.Add(-paceSlack)):
		p.next = now.Add(-paceSlack)
	}
	next := p.next
	for n < len(jobs) && !next.After(now) {
		next = next.Add(p.span(jobs[n].rec.Job.Cost))
		n++
	}
	if n > 0 {
		return n, 0
	}
	return 0, max(p.next.Sub(now), paceTick)
}

// spend counts a job that was sent.
func (p *pace) spend(cost int64) { p.next = p.next.Add(p.span(cost)) }
