package main

import (
	"context"
	"time"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/tracing"
)

// checkReplace refuses flags that --replace has no use for: it changes the payload alone.
func (f *flags) checkReplace() error {
	if !f.replace && f.why != "" {
		return cli.Usage("leave it out, or add --replace", "--why says why jobs get another payload, with --replace")
	}
	if !f.replace && (f.yes || f.withoutAmount) {
		return cli.Usage("leave it out, or add --replace", "--yes and --without-amount are for --replace")
	}
	if !f.replace {
		return nil
	}
	for _, other := range []struct{ flag, value string }{{"at", f.at}, {"expires", f.expires}, {"batch", f.batch}} {
		if other.value != "" {
			return cli.Usage("leave it out: a job keeps its times and its batch", "--%s can't be changed with --replace", other.flag)
		}
	}
	return nil
}

// replaceDoor gives parked jobs another payload and takes them in again through admission.
type replaceDoor struct {
	db   *redisdb.DB
	cfg  *config.Config
	file string
	who  string
	why  string
	// looking says that nothing is to be changed: what would be is counted.
	looking bool
	// loseAmounts lets the amount of a job go that can be read.
	loseAmounts bool
	// patience is how long to go on while Redis is away. Each step may be done again: a job that has its new payload already, or went
	// in already, is taken for done.
	patience time.Duration
	parts    map[string]*replacing
	traces   *tracing.Tracer
}

// replacing is what is done at one gateway.
type replacing struct {
	g     config.Gateway
	store *deadletter.Store
	books *ledger.Books
	admit tracing.Readmitter
	rules deadletter.Rules
	entry *deadletter.Entry
	deed  deadletter.Deed
	lost  int // jobs whose amount could be read, and can't be any more
	// paused is how many jobs stay parked until their batch is resumed.
	paused int
	// before is the payloads of the present chunk's jobs as they were when they were first looked at: a step whose answer was lost is done again.
	before map[string]deadletter.Version
}

func newReplaceDoor(db *redisdb.DB, src jobSource) (*replaceDoor, error) {
	who, err := cli.WhoAmI()
	return &replaceDoor{db: db, cfg: src.cfg, file: src.opt.file, who: who, why: src.opt.why, patience: src.opt.patience, traces: src.traces,
		looking: src.opt.dryRun, loseAmounts: src.opt.withoutAmount, parts: map[string]*replacing{}}, err
}

// part returns a gateway's part, written down in the trail before its first job.
func (d *replaceDoor) part(ctx context.Context, name string) (*replacing, error) {
	if p := d.parts[name]; p != nil {
		return p, nil
	}
	g, _ := d.cfg.Gateway(name)
	p := &replacing{g: g, store: dispatch.Store(d.db.Client, g), books: dispatch.Books(d.db.Client, g),
		deed: deadletter.Deed{Replaced: deadletter.NewExchange()}}
	var now ledger.Standing
	if err := d.patiently(ctx, func(ctx context.Context) (err error) { now, err = p.books.Look(ctx); return err }); err != nil {
		return nil, err
	}
	p.rules = dispatch.Rules(g, now.Now)
	p.rules.LoseAmounts = d.loseAmounts
	if d.looking {
		d.parts[name] = p
		return p, nil
	}
	p.entry = p.store.Entry(deadletter.Act{At: now.Now, Who: d.who, What: "replace", Why: d.why, Filter: "the lines of " + d.file})
	if err := d.patiently(ctx, func(ctx context.Context) error { return p.entry.Begin(ctx) }); err != nil {
		return nil, err
	}
	p.admit = d.traces.Replays(name, p.books)
	d.parts[name] = p
	return p, nil
}

// sum is what was replaced at all gateways, or would be.
func (d *replaceDoor) sum() *replaced {
	all := &replaced{}
	for _, p := range d.parts {
		all.add(p.deed)
		all.Lost += p.lost
		all.Paused += p.paused
	}
	return all
}

// noteTime bounds writing down what was done, also after an interrupt.
const noteTime = 5 * time.Second

// close writes down what was done. What can't be is in the trail without an end.
func (d *replaceDoor) close() {
	ctx, cancel := context.WithTimeout(context.Background(), noteTime)
	defer cancel()
	for _, p := range d.parts {
		if p.entry != nil {
			_ = p.entry.End(ctx, p.deed)
		}
	}
	_ = d.db.Close()
}

// Begin implements door.
func (d *replaceDoor) Begin(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) *admission.Passage {
	return admission.Answered(d.admit(ctx, gateway, jobs, mode))
}

func (d *replaceDoor) admit(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) ([]admission.Answer, error) {
	answers := make([]admission.Answer, len(jobs))
	p, err := d.part(ctx, gateway)
	if err != nil {
		return answers, err
	}
	p.before = map[string]deadletter.Version{}
	if d.looking {
		return answers, d.patiently(ctx, func(ctx context.Context) error { return p.look(ctx, jobs, answers) })
	}
	var left []entering
	if err = d.patiently(ctx, func(ctx context.Context) (err error) { left, err = p.replace(ctx, jobs, answers); return err }); err == nil {
		err = d.patiently(ctx, func(ctx context.Context) error { return p.entry.Note(ctx, p.deed) })
	}
	for err == nil && len(left) > 0 {
		var retry time.Duration
		was := left
		if err = d.patiently(ctx, func(ctx context.Context) (err error) { left, retry, err = p.readmit(ctx, was, answers); return err }); err != nil || len(left) == 0 {
			break
		}
		if mode != admission.Wait {
			p.full(left, answers, mode, retry)
			break
		}
		err = waitFor(ctx, retry)
	}
	return answers, err
}

// entering is a job on its way back in, and the place of its answer.
type entering struct {
	at  int
	job job.Return
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
	would, err := p.store.LookReplace(ctx, p.rules, jobs, digests(jobs))
	if err == nil {
		p.answer(would, jobs, answers)
	}
	return err
}

func (p *replacing) replace(ctx context.Context, jobs []job.Job, answers []admission.Answer) ([]entering, error) {
	did, err := p.store.Replace(ctx, p.rules, jobs, digests(jobs))
	for _, r := range did {
		if _, known := p.before[r.Return.ID]; !known && r.Err == nil && !r.Same {
			p.before[r.Return.ID] = r.Before
		}
	}
	if err != nil {
		return nil, err
	}
	return p.leavePaused(p.answer(did, jobs, answers), answers), nil
}

// leavePaused returns the jobs that go in. Those of a paused batch have their new payload, and go in when it is resumed, as newcomers of the batch do.
func (p *replacing) leavePaused(left []entering, answers []admission.Answer) (in []entering) {
	for _, e := range left {
		if e.job.Reason != job.Paused {
			in = append(in, e)
			continue
		}
		answers[e.at].Outcome = job.ParkedNow
		p.paused++
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
			left = append(left, entering{i, r.Return})
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
	p.deed.Replaced.Add(j.ID, r.Before, r.After, p.g.Amount.Field != "")
	p.deed.AddRecord(job.Record{Job: j}, p.g.Amount.Field, p.g.Amount.Currency)
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
func (d *replaceDoor) patiently(ctx context.Context, step func(context.Context) error) error {
	return redisdb.Patiently(ctx, d.patience, step)
}

// mostWait is how long to wait for room at a time: others may have given some back.
const mostWait = time.Second

func waitFor(ctx context.Context, retry time.Duration) error {
	t := time.NewTimer(min(max(retry, 10*time.Millisecond), mostWait))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
