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
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
	"spillway/internal/tracing"
)

// ReplaceOptions is what an operator says of a replacement of payloads.
type ReplaceOptions struct {
	By
	// Filter says in the trail which jobs are meant.
	Filter string
	// Look changes nothing: what would be replaced is counted.
	Look bool
	// LoseAmounts lets the amount of a job go that can be read.
	LoseAmounts bool
	// Patience is how long to go on while Redis is away; zero means not at all. Each step may be done again: a job that has its new payload already, or went
	// in already, is taken for done.
	Patience time.Duration
	// Traces hears of the jobs taken in again; nil: nobody does.
	Traces *tracing.Tracer
}

// Replacement gives parked jobs other payloads and takes them in again through admission, chunk by chunk. Not safe for concurrent use. Close it.
type Replacement struct {
	ReplaceOptions
	desk  *Desk
	parts map[string]*replacing
}

// Replaced is what a replacement came to, or would: part of "enqueue --replace -o json".
type Replaced struct {
	Jobs           int64       `json:"jobs"`
	Before         job.Amounts `json:"amount_before"`
	NoAmountBefore int64       `json:"without_amount_before"`
	After          job.Amounts `json:"amount_after"`
	NoAmountAfter  int64       `json:"without_amount_after"`
	Lost           int         `json:"amounts_lost"` // jobs whose amount could be read before alone
	Paused         int         `json:"-"`            // jobs that stay parked until their batch is resumed
	Awaiting       int         `json:"-"`            // jobs that stay parked until their batch is approved
}

// Replace begins a replacement.
func (d *Desk) Replace(o ReplaceOptions) *Replacement {
	return &Replacement{ReplaceOptions: o, desk: d, parts: map[string]*replacing{}}
}

// Put replaces the payloads of jobs of one gateway, one answer each. Where there is no room they stay parked with their new payloads. With admission.Wait, Put waits for room.
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

// Sum is what was replaced at all gateways, or would be.
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

// Close writes down what was done. What can't be is in the trail without an end.
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

// replacing is what is done at one gateway.
type replacing struct {
	*Gateway
	admit job.Readmitter
	rules deadletter.Rules
	entry *deadletter.Entry
	deed  deadletter.Deed
	lost  int // jobs whose amount could be read, and can't be any more
	// paused is how many jobs stay parked until their batch is resumed, awaiting how many until it is approved.
	paused, awaiting int
	// before is the payloads of the present chunk's jobs as they were when they were first looked at: a step whose answer was lost is done again.
	before map[string]deadletter.Version
}

// part returns a gateway's part, written down in the trail before its first job.
func (r *Replacement) part(ctx context.Context, name string) (*replacing, error) {
	if p := r.parts[name]; p != nil {
		return p, nil
	}
	g := r.desk.Gateway(name)
	if g == nil {
		return nil, &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no gateway %q at this desk", name), Hint: "there are: " + r.desk.Names()}
	}
	p := &replacing{Gateway: g, deed: deadletter.Deed{Replaced: deadletter.NewExchange()}}
	var now record.Standing
	if err := r.patiently(ctx, func(ctx context.Context) (err error) { now, err = p.Books.Look(ctx); return err }); err != nil {
		return nil, err
	}
	p.rules = dispatch.Rules(p.Gateway.Gateway, now.Now)
	p.rules.LoseAmounts, p.rules.Approvals = r.LoseAmounts, p.Books.ReplacedBy(roles.Identity{Name: r.Who, Person: r.Person, Proof: cmp.Or(r.Via, roles.ByRedis)})
	if r.Look {
		r.parts[name] = p
		return p, nil
	}
	p.entry = p.Store.Entry(r.By.act(deadletter.Act{At: now.Now, What: "replace", Filter: r.Filter}))
	if err := r.patiently(ctx, func(ctx context.Context) error { return p.entry.Begin(ctx) }); err != nil {
		return nil, err
	}
	p.admit = r.Traces.Replays(name, p.Books)
	r.parts[name] = p
	return p, nil
}

// entering is a job on its way back in, and the place of its answer.
type entering struct {
	at     int
	job    job.Return
	awaits bool // its batch awaits an approval
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

// leaveStopped returns the jobs that go in. Those of a batch that is paused, or awaits an approval, have their new payload, and go in when it is resumed or approved, as newcomers
// of the batch do.
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

// answer counts the jobs that were replaced, or would be, and answers for the others.
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

// readmit takes in what there is room for and returns the others. A job that is gone was taken in by somebody else, with its new payload.
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

// full says what becomes of jobs without room: they stay parked, with their new payload.
func (p *replacing) full(left []entering, answers []admission.Answer, mode admission.Mode, retry time.Duration) {
	for _, e := range left {
		answers[e.at] = admission.Answer{Outcome: job.ParkedNow}
		if mode == admission.Fail {
			answers[e.at] = admission.Answer{Outcome: job.Full, RetryAfter: retry}
		}
	}
}

// patiently does a step that may be repeated until it succeeds, for as long as Redis may be away.
func (r *Replacement) patiently(ctx context.Context, step func(context.Context) error) error {
	return redisdb.Patiently(ctx, r.Patience, step)
}

// mostWait is how long to wait for room at a time: others may have given some back.
const mostWait = time.Second
