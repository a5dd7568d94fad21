package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// BatchAction is an operator's action on a batch: PauseBatch, ResumeBatch, CancelBatch or RejectBatch.
type BatchAction struct {
	Verb, Past string
	// would returns which of a batch's jobs it would affect.
	would func(record.Batch) job.Totals
	// leaves says that it does not affect pending jobs.
	leaves bool
	// parks is the reason for which it parks jobs; empty if it parks none.
	parks job.Reason
	run   func(ctx context.Context, g *Gateway, books *ledger.Books, what batchOrder) error
}

// batchOrder is one act on a batch.
type batchOrder struct {
	batch string
	by    By
	did   func(ledger.Shelved) error
}

// comeBack is how much longer than a gateway's timeout CancelBatch waits for calls in flight.
const comeBack = 5 * time.Second

// The actions on batches.
var (
	// PauseBatch parks the waiting jobs of a batch.
	PauseBatch = BatchAction{Verb: "pause", Past: "paused", would: unsent, leaves: true, parks: job.Paused,
		run: func(ctx context.Context, _ *Gateway, books *ledger.Books, o batchOrder) error {
			return books.PauseBatch(ctx, o.batch, o.by.Who, o.by.Why, o.did)
		}}
	// ResumeBatch ends a pause.
	ResumeBatch = BatchAction{Verb: "resume", Past: "resumed", would: shelved,
		run: func(ctx context.Context, _ *Gateway, books *ledger.Books, o batchOrder) error {
			return books.ResumeBatch(ctx, o.batch, o.did)
		}}
	// CancelBatch parks all unsent jobs, and waits for the calls in flight.
	CancelBatch = BatchAction{Verb: "cancel", Past: "cancelled", would: uncalled, leaves: true, parks: job.Cancelled,
		run: func(ctx context.Context, g *Gateway, books *ledger.Books, o batchOrder) error {
			return books.CancelBatch(ctx, o.batch, o.by.Who, o.by.Why, g.Request.Timeout+comeBack, o.did)
		}}
)

// unsent returns the jobs that wait for their call or for approval.
func unsent(b record.Batch) job.Totals {
	return b.Sum(func(p record.Place) bool {
		switch p.State {
		case job.Queued, job.Scheduled, job.Retrying:
			return true
		}
		return p.State == job.Parked && (p.Reason == job.Rejected || p.Reason == job.AwaitsApproval)
	})
}

// uncalled returns these jobs and those that a pause has parked.
func uncalled(b record.Batch) job.Totals {
	s := unsent(b)
	s.Add(shelved(b))
	return s
}

// shelved returns the jobs that a pause has parked.
func shelved(b record.Batch) job.Totals {
	return b.Sum(func(p record.Place) bool { return p == record.Place{State: job.Parked, Reason: job.Paused} })
}

// BatchDeed is the effect of an action on one gateway's part of a batch, done or planned.
type BatchDeed struct {
	Gateway string `json:"gateway"`
	job.Totals
	// Doubt is those of the jobs that may have been charged and are parked as unknown_outcome; nil if none.
	Doubt *job.Totals `json:"unknown_outcome,omitempty"`
	// Pending is all jobs of the batch that are pending afterwards, because they may have been charged: a pause
	// and a cancel leave them alone. nil if none, and for a resume.
	Pending *job.Totals `json:"pending,omitempty"`
	// InAll is all jobs of the batch now parked as paused or cancelled; nil if these are the ones above, and
	// for a resume. There are more if dispatchers parked some first, or if an earlier act did.
	InAll *job.Totals `json:"in_all,omitempty"`
}

// deed returns the effect of an action, given the batch afterwards. If look-ups are configured, jobs in doubt
// are pending.
func (part batchPart) deed(a BatchAction, s ledger.Shelved, now record.Batch) BatchDeed {
	d := BatchDeed{Gateway: part.Name, Totals: s.Totals}
	if s.Doubt.Jobs > 0 && part.Lookup.For(false) == nil {
		d.Doubt = &s.Doubt
	}
	if pending := now.Sum(func(p record.Place) bool { return p.State == job.Pending }); a.leaves && pending.Jobs > 0 {
		d.Pending = &pending
	}
	if all := now.Sum(func(p record.Place) bool { return p == record.Place{State: job.Parked, Reason: a.parks} }); a.parks != "" && all.Jobs > s.Jobs-s.Doubt.Jobs {
		d.InAll = &all
	}
	return d
}

// Would returns what an action would do, for each gateway that knows the batch.
func (b *Batch) Would(a BatchAction) []BatchDeed {
	deeds := make([]BatchDeed, len(b.parts))
	for i, part := range b.parts {
		deeds[i] = part.deed(a, ledger.Shelved{Totals: a.would(part.BatchGlance.Batch)}, part.BatchGlance.Batch)
		deeds[i].InAll = nil // nothing is done yet
	}
	return deeds
}

// Do acts at all gateways concurrently, so that none continues to call while another waits for its calls in
// flight. It calls did, from several goroutines, with the number of jobs that each step changed.
func (b *Batch) Do(ctx context.Context, a BatchAction, by By, did func(jobs int64)) ([]BatchDeed, error) {
	deeds, errs := make([]BatchDeed, len(b.parts)), make([]error, len(b.parts))
	var all sync.WaitGroup
	for i, part := range b.parts {
		all.Go(func() { deeds[i], errs[i] = part.do(ctx, a, batchOrder{batch: b.Batch, by: by}, did) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return deeds, err
		}
	}
	return deeds, nil
}

// do records the act in the audit trail before the first job, after each step, and at the end.
func (part batchPart) do(ctx context.Context, a BatchAction, o batchOrder, did func(jobs int64)) (BatchDeed, error) {
	now, err := part.Books.Look(ctx)
	if err != nil {
		return BatchDeed{Gateway: part.Name}, err
	}
	entry := part.Store.Entry(o.by.act(deadletter.Act{At: now.Now, What: "batch " + a.Verb, Filter: flag("batch", o.batch)}))
	if err := entry.Begin(ctx); err != nil {
		return BatchDeed{Gateway: part.Name}, err
	}
	var sum ledger.Shelved
	deed := func() deadletter.Deed { return deadletter.Deed{Totals: sum.Totals} }
	last := context.WithoutCancel(ctx)
	o.did = func(step ledger.Shelved) error {
		sum.Add(step)
		did(step.Jobs)
		return entry.Note(last, deed())
	}
	err = a.run(ctx, part.Gateway, part.Books.For(entry.Place), o)
	if ended := entry.End(last, deed()); err == nil {
		err = ended
	}
	if errors.Is(err, ledger.ErrOvertaken) {
		err = &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("the %s of batch %q at %s was not done for all jobs: %s", a.Verb, o.batch, part.Name, err),
			Hint: fmt.Sprintf("see \"dispatcher batch %s\" and \"dispatcher dlq history\", and run it again if it is to hold", dispatch.ShellWord(o.batch))}
	}
	batch, _, unseen := part.Books.Batch(last, o.batch)
	return part.deed(a, sum, batch), cmp.Or(err, unseen)
}

// BatchAwaits is the state of a batch's approvals at one gateway.
type BatchAwaits struct {
	// Since is since when it awaits approval, and Why the reason; nil if it does not.
	Since *time.Time `json:"awaiting_since"`
	Why   string     `json:"awaiting_why,omitempty"`
	// Brought is who submitted its jobs since approvals were configured.
	Brought []record.Brought `json:"brought_in_by,omitempty"`
	// Approved is when it was last approved, with By and reason; nil if never.
	Approved    *time.Time `json:"approved_at"`
	By          string     `json:"approved_by,omitempty"`
	ApprovalWhy string     `json:"approval_why,omitempty"`
}

// awaitsOf returns the state of approvals; nil if there is nothing to say.
func awaitsOf(a record.Awaits) *BatchAwaits {
	if a.Since.IsZero() && a.Approved.IsZero() {
		return nil
	}
	return &BatchAwaits{Since: when(a.Since), Why: a.Why, Brought: a.Brought, Approved: when(a.Approved), By: a.By, ApprovalWhy: a.ApprovalWhy}
}

// Waits reports whether the batch awaits approval.
func (a *BatchAwaits) Waits() bool { return a != nil && a.Since != nil }

// BroughtText names who submitted the jobs.
func (a *BatchAwaits) BroughtText() (text string) {
	for _, b := range a.Brought {
		text += fmt.Sprintf(", %s of %s (%s)", job.JobsText(b.Jobs), cmp.Or(b.Name, "nobody known"), b.Via)
	}
	if text == "" {
		return ""
	}
	return text[2:]
}

// BatchApproval is what an approver is shown of a batch that awaits approval at one gateway.
type BatchApproval struct {
	Gateway string `json:"gateway"`
	BatchAwaits
	// Totals is the whole batch. Waiting is what an approval would release. Called is what was called before
	// the batch became too large, or is over for another reason.
	job.Totals
	Waiting job.Totals `json:"waiting"`
	Called  job.Totals `json:"called"`
	// Largest are the jobs with the largest amounts, largest first.
	Largest []LargeJob `json:"largest"`
	// Repeats is the earlier batch most similar to it; nil if there is none.
	Repeats *Repeats `json:"repeats,omitempty"`
	// Looked is how many jobs were examined for the two fields above; fewer than all for a very large batch.
	Looked int64 `json:"jobs_looked_at"`
	// Released is the jobs that the approval released.
	Released job.Totals `json:"released"`

	shown  string
	prints prints
}

// LargeJob is a job with a large amount.
type LargeJob struct {
	ID       string `json:"id"`
	Minor    string `json:"minor"` // in minor units
	Currency string `json:"currency"`
}

// Money returns its money for people.
func (j LargeJob) Money() string {
	minor, _ := new(big.Int).SetString(j.Minor, 10)
	return job.Money{Minor: minor, Currency: j.Currency}.String()
}

// mostLarge is how many of them are shown.
const mostLarge = 5

// Approval returns what an approver is shown, for each gateway at which the batch awaits approval. An error
// with code failed says that it awaits none.
func (b *Batch) Approval(ctx context.Context) (all []BatchApproval, err error) {
	for _, part := range b.parts {
		if part.Awaits.Since.IsZero() {
			continue
		}
		a, err := part.approval(ctx, b.Batch)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		return nil, &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("batch %q awaits no approval", b.Batch), Hint: `see "dispatcher batch list"`}
	}
	return all, nil
}

func (part batchPart) approval(ctx context.Context, name string) (BatchApproval, error) {
	books := part.BatchGlance.Batch
	a := BatchApproval{Gateway: part.Name, BatchAwaits: *awaitsOf(books.Awaits), Totals: books.Sum(func(record.Place) bool { return true }), Waiting: books.Uncalled(),
		Largest: []LargeJob{}, shown: books.ApprovedAs()}
	a.Called = books.Sum(func(p record.Place) bool { return !record.Uncalled(p) })
	seen, err := part.look(ctx, name, part.Approval.Payee != "")
	if err != nil {
		return a, err
	}
	a.Looked, a.Largest, a.prints = seen.jobs, seen.largest, seen.prints
	a.Repeats, err = part.repeats(ctx, name, seen)
	return a, err
}

// approver returns who approves or rejects something.
func (b By) approver() ledger.Approver {
	return ledger.Approver{Who: b.Who, Person: b.Person, Why: b.Why}
}

// NeedsName returns an error with code usage unless the user is identified: any other name could be typed.
func (b By) NeedsName(act string) error {
	if b.Known() {
		return nil
	}
	return usage("use --server with $DISPATCHER_TOKEN, or the console: a token with a name and the role approver, or a login", "you are not identified, and %s requires that", act)
}

// Approve releases the batch, in the state that was shown, at the gateways at which it awaits approval. shown
// is by gateway. It calls did with the number of jobs that each step admits again.
func (b *Batch) Approve(ctx context.Context, by By, shown map[string]string, did func(jobs int64)) ([]BatchApproval, error) {
	if err := by.NeedsName("an approval"); err != nil {
		return nil, err
	}
	all, err := b.Approval(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.shown != shown[a.Gateway] {
			return all, &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("batch %q at %s is no longer as it was shown, and nothing was approved", b.Batch, a.Gateway),
				Hint: "look at it again, and approve what it is now"}
		}
	}
	for i, part := range all {
		at := slices.IndexFunc(b.parts, func(p batchPart) bool { return p.Name == part.Gateway })
		if all[i], err = b.parts[at].approve(ctx, b.Batch, by, part, did); err != nil {
			return all, err
		}
	}
	return all, nil
}

// approve records the act in the audit trail before it is done, and at the end, even if it is refused.
func (part batchPart) approve(ctx context.Context, name string, by By, a BatchApproval, did func(jobs int64)) (BatchApproval, error) {
	now, err := part.Books.Look(ctx)
	if err != nil {
		return a, err
	}
	entry := part.Store.Entry(by.act(deadletter.Act{At: now.Now, What: "batch approve", Filter: flag("batch", name), Asked: a.BroughtText()}))
	if err := entry.Begin(ctx); err != nil {
		return a, err
	}
	last := context.WithoutCancel(ctx)
	deed := func() deadletter.Deed { return deadletter.Deed{Totals: a.Released} }
	err = part.Books.For(entry.Place).ApproveBatch(ctx, name, by.approver(), a.shown, func(step ledger.Shelved) error {
		a.Released.Add(step.Totals)
		did(step.Jobs)
		return entry.Note(last, deed())
	})
	if err == nil {
		err = part.keepPrints(last, name, a.prints)
	}
	return a, cmp.Or(err, entry.End(last, deed()))
}

// RejectBatch cancels a batch that awaits approval: nothing more of it is sent.
var RejectBatch = BatchAction{Verb: "reject", Past: "rejected", would: uncalled, leaves: true, parks: job.Cancelled,
	run: func(ctx context.Context, g *Gateway, books *ledger.Books, o batchOrder) error {
		now, _, err := books.Batch(ctx, o.batch)
		if err != nil || now.Awaits.Since.IsZero() {
			return err // it awaits no approval here
		}
		return CancelBatch.run(ctx, g, books, o)
	}}
