package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
