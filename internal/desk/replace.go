package desk

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"spillway/internal/admission"
	"spillway/internal/clock"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
	"spillway/internal/tracing"
)

// ReplaceOptions are an operator's options for a replacement of payloads.
type ReplaceOptions struct {
	By
	// Filter describes the jobs in the audit trail.
	Filter string
	// Look only counts what would be replaced, and changes nothing.
	Look bool
	// LoseAmounts permits removing a readable amount.
	LoseAmounts bool
	// Patience is how long to retry while Redis is unreachable; zero means not at all. Every step can be
	// repeated: a job that already has its new payload, or is already admitted, counts as done.
	Patience time.Duration
	// Traces records the jobs that are admitted again; nil: not traced.
	Traces *tracing.Tracer
}

// Replacement gives parked jobs new payloads and admits them again, chunk by chunk. It is not safe for
// concurrent use. The caller must close it.
type Replacement struct {
	ReplaceOptions
	desk  *Desk
	parts map[string]*replacing
}

// Replaced is the actual or planned result of a replacement: part of "enqueue --replace -o json".
type Replaced struct {
	Jobs           int64       `json:"jobs"`
	Before         job.Amounts `json:"amount_before"`
	NoAmountBefore int64       `json:"without_amount_before"`
	After          job.Amounts `json:"amount_after"`
	NoAmountAfter  int64       `json:"without_amount_after"`
	Lost           int         `json:"amounts_lost"` // jobs whose amount was readable only before
	Paused         int         `json:"-"`            // jobs that stay parked until their batch is resumed
	Awaiting       int         `json:"-"`            // jobs that stay parked until their batch is approved
}

// Replace starts a replacement.
func (d *Desk) Replace(o ReplaceOptions) *Replacement {
	return &Replacement{ReplaceOptions: o, desk: d, parts: map[string]*replacing{}}
}

// Put replaces the payloads of jobs of one gateway, and returns one answer each. Jobs that find no room stay
// parked with their new payloads. With admission.Wait, Put waits for room.
func (r *Replacement) Put(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) ([]admission.Answer, error) {
	answers := make([]admission.Answer, len(jobs))
	p, err := r.part(ctx, gateway)
	if err != nil {
		return answers, err
	}
	p.before = map[string]deadletter.Version{}
	if r.Look {
		return answers, r.patiently(ctx, func(ctx context.Context) error { return p.look(ctx, jobs, answers) })
	}
	var left []entering
	if err = r.patiently(ctx, func(ctx context.Context) (err error) { left, err = p.replace(ctx, jobs, answers); return err }); err == nil {
		err = r.patiently(ctx, func(ctx context.Context) error { return p.entry.Note(ctx, p.deed) })
	}
	for err == nil && len(left) > 0 {
		var retry time.Duration
		was := left
		if err = r.patiently(ctx, func(ctx context.Context) (err error) { left, retry, err = p.readmit(ctx, was, answers); return err }); err != nil || len(left) == 0 {
			break
		}
		if mode != admission.Wait {
			p.full(left, answers, mode, retry)
			break
		}
		err = clock.Wait(ctx, min(max(retry, 10*time.Millisecond), mostWait))
	}
	return answers, err
}

// Sum returns the actual or planned result over all gateways.
func (r *Replacement) Sum() *Replaced {
	sum := &Replaced{}
	for _, p := range r.parts {
		sum.Jobs += p.deed.Jobs
		sum.NoAmountBefore += p.deed.Replaced.NoAmount
		sum.NoAmountAfter += p.deed.NoAmount
		sum.Before.AddAll(p.deed.Replaced.Amount)
		sum.After.AddAll(p.deed.Amount)
		sum.Lost += p.lost
		sum.Paused += p.paused
		sum.Awaiting += p.awaiting
	}
	return sum
}

// Close writes the audit entries. An entry that can't be written has no end.
func (r *Replacement) Close(ctx context.Context) {
	_ = Bounded(ctx, func(ctx context.Context) error {
		for _, p := range r.parts {
			if p.entry != nil {
				_ = p.entry.End(ctx, p.deed)
			}
		}
		return nil
	})
}

// replacing is the replacement at one gateway.
type replacing struct {
	*Gateway
	admit tracedBooks
	rules deadletter.Rules
	entry *deadletter.Entry
	deed  deadletter.Deed
	lost  int // jobs whose amount was readable and no longer is
	// paused is how many jobs stay parked until their batch is resumed, awaiting how many until it is approved.
	paused, awaiting int
	// before is the payloads of the current chunk's jobs when they were first read: a step whose reply was lost
	// is repeated.
	before map[string]deadletter.Version
}

// part returns a gateway's part. Its audit entry is written before its first job.
func (r *Replacement) part(ctx context.Context, name string) (*replacing, error) {
	if p := r.parts[name]; p != nil {
		return p, nil
	}
	g := r.desk.Gateway(name)
	if g == nil {
		return nil, &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no gateway %q at this desk", name), Hint: "there are: " + r.desk.Names()}
	}
	p := &replacing{Gateway: g, deed: deadletter.Deed{Replaced: deadletter.NewExchange()}}
	if err := r.patiently(ctx, func(ctx context.Context) (err error) {
		p.rules, err = dispatch.Rules(ctx, p.redis, p.Gateway.Gateway)
		return err
	}); err != nil {
		return nil, err
	}
	p.rules.LoseAmounts, p.rules.Approvals = r.LoseAmounts, p.Books.ReplacedBy(roles.Identity{Name: r.Who, Person: r.Person, Proof: cmp.Or(r.Via, roles.ByRedis)})
	if r.Look {
		r.parts[name] = p
		return p, nil
	}
	p.entry = p.Store.Entry(r.By.act(deadletter.Act{At: p.rules.Now, What: "replace", Filter: r.Filter}))
	if err := r.patiently(ctx, func(ctx context.Context) error { return p.entry.Begin(ctx) }); err != nil {
		return nil, err
	}
	p.admit = tracedBooks{p.Books, r.Traces, name}
	r.parts[name] = p
	return p, nil
}

// entering is a job to be admitted again, and the index of its answer.
type entering struct {
	at     int
	job    job.Return
	awaits bool // its batch awaits approval
}

func digests(jobs []job.Job) []string {
	all := make([]string, len(jobs))
	for i, j := range jobs {
		all[i] = producer.Digest(j.Payload)
	}
	return all
}

// look counts what would be replaced.
func (p *replacing) look(ctx context.Context, jobs []job.Job, answers []admission.Answer) error {
	would, err := p.Store.LookReplace(ctx, p.rules, jobs, digests(jobs))
	if err == nil {
		p.answer(would, jobs, answers)
	}
	return err
}

func (p *replacing) replace(ctx context.Context, jobs []job.Job, answers []admission.Answer) ([]entering, error) {
	did, err := p.Store.Replace(ctx, p.rules, jobs, digests(jobs))
	for _, r := range did {
		if _, known := p.before[r.Return.ID]; !known && r.Err == nil && !r.Same {
			p.before[r.Return.ID] = r.Before
		}
	}
	if err != nil {
		return nil, err
	}
	return p.leaveStopped(p.answer(did, jobs, answers), answers), nil
}

// leaveStopped returns the jobs to admit. Jobs of a batch that is paused, or awaits approval, have their new
// payload, and are admitted when it is resumed or approved, like new jobs of the batch.
func (p *replacing) leaveStopped(left []entering, answers []admission.Answer) (in []entering) {
	for _, e := range left {
		switch {
		case e.awaits:
			p.awaiting++
		case e.job.Reason == job.Paused:
			p.paused++
		default:
			in = append(in, e)
			continue
		}
		answers[e.at].Outcome = job.ParkedNow
	}
	return in
}

// answer counts the jobs that were or would be replaced, and sets the answers of the others.
func (p *replacing) answer(did []deadletter.Replaced, jobs []job.Job, answers []admission.Answer) (left []entering) {
	for i, r := range did {
		switch {
		case r.Err != nil:
			answers[i] = admission.Answer{Outcome: job.Conflict, Err: r.Err}
		case r.Same:
			answers[i].Outcome = job.Duplicate
		default:
			if before, known := p.before[r.Return.ID]; known {
				r.Before = before
			}
			left = append(left, entering{i, r.Return, r.Awaits})
			p.count(jobs[i], r)
		}
	}
	return left
}

func (p *replacing) count(j job.Job, r deadletter.Replaced) {
	_, was := job.Booked(r.Before.Money)
	if _, is := job.Booked(r.After.Money); was && !is {
		p.lost++
	}
	p.deed.Replaced.Add(j.ID, r.Before, r.After, p.Amount.Field != "")
	p.deed.AddRecord(job.Record{Job: j}, p.Amount.Field, p.Amount.Currency)
}

// readmit admits what there is room for and returns the others. A job that is gone was admitted by someone
// else, with its new payload.
func (p *replacing) readmit(ctx context.Context, left []entering, answers []admission.Answer) (full []entering, retry time.Duration, err error) {
	jobs := make([]job.Return, len(left))
	for i, e := range left {
		jobs[i] = e.job
	}
	got, retry, err := p.admit.Readmit(ctx, jobs)
	if err != nil {
		return nil, 0, err
	}
	for i, e := range left {
		if got[i] == job.Full {
			full = append(full, e)
			continue
		}
		answers[e.at].Outcome = job.Enqueued
	}
	return full, retry, nil
}

// full sets the answers of jobs without room: they stay parked, with their new payload.
func (p *replacing) full(left []entering, answers []admission.Answer, mode admission.Mode, retry time.Duration) {
	for _, e := range left {
		answers[e.at] = admission.Answer{Outcome: job.ParkedNow}
		if mode == admission.Fail {
			answers[e.at] = admission.Answer{Outcome: job.Full, RetryAfter: retry}
		}
	}
}

// patiently repeats a step until it succeeds, as long as Redis may be unreachable.
func (r *Replacement) patiently(ctx context.Context, step func(context.Context) error) error {
	return redisdb.Patiently(ctx, r.Patience, step)
}

// mostWait is the longest pause while waiting for room: other jobs may have given some back.
const mostWait = time.Second
