package desk

import (
	"context"
	"fmt"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// ParkDeed is what Park does or would do to a job: "park -o json".
type ParkDeed struct {
	ID       string      `json:"id"`
	Gateway  string      `json:"gateway"`
	Was      job.State   `json:"was"`
	Reason   job.Reason  `json:"reason"`
	Unsure   bool        `json:"may_have_charged"`
	Amount   job.Amounts `json:"amount"`
	NoAmount int64       `json:"without_amount"`
	Done     bool        `json:"done"`
}

// WouldPark returns what Park would do. An error says why the job can't be parked.
func (f Found) WouldPark() (ParkDeed, error) {
	money := f.Money(f.Record)
	d := ParkDeed{ID: f.Record.Job.ID, Gateway: f.Name, Was: f.Record.State, Reason: job.Cancelled, Unsure: f.Record.Unsure || f.Record.State == job.Pending,
		Amount: money.Amount, NoAmount: money.NoAmount}
	if d.Unsure {
		d.Reason = job.UnknownOutcome
	}
	return d, f.waitsStill()
}

// waitsStill returns why an operator can't park a job, or nil.
func (f Found) waitsStill() error {
	rec := f.Record
	switch {
	case rec.Waits(), rec.State == job.Pending:
		return nil
	case rec.State == job.InFlight:
		return &job.Error{Code: job.CodeFailed,
			Message: fmt.Sprintf("job %q is in flight at %s: its call may last until %s", rec.Job.ID, f.Name, job.Moment(rec.Deadline)),
			Hint:    "wait for its end, then look at it again: dispatcher job " + dispatch.ShellWord(rec.Job.ID)}
	case rec.State == job.Parked:
		return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("job %q is %s at %s already", rec.Job.ID, rec.Reason.As(), f.Name),
			Hint: `replay, discard or resolve it with "dispatcher dlq"`}
	}
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("job %q does not wait any more: it is %s at %s", rec.Job.ID, rec.State, f.Name),
		Hint: "there is nothing left to park"}
}

// Park removes a job that waits for its call from the queue, or ends the look-ups of a pending one, and parks
// it. It writes the audit entry first. An error with code failed says that the job has moved on since it was
// found, and was not changed.
func (f Found) Park(ctx context.Context, by By) error {
	now, err := f.redis.Time(ctx).Result()
	if err != nil {
		return err
	}
	id := f.Record.Job.ID
	entry := f.Store.Entry(by.act(deadletter.Act{At: now, What: "park", Filter: flag("id", id)}))
	if err := entry.Begin(ctx); err != nil {
		return err
	}
	taken, err := f.Books.For(entry.Place).Withdraw(context.WithoutCancel(ctx), []job.Return{{ID: id, Generation: f.Record.Generation}},
		fmt.Sprintf("parked by %s: %s", by.Who, by.Why))
	if err != nil {
		return err
	}
	var deed deadletter.Deed
	if taken[0] {
		deed.Totals = f.Money(f.Record)
	}
	if err := Bounded(ctx, func(ctx context.Context) error { return entry.End(ctx, deed) }); err != nil {
		return err
	}
	if !taken[0] {
		return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("job %q has moved on meanwhile, and was not parked", id),
			Hint: "look at it again: dispatcher job " + dispatch.ShellWord(id)}
	}
	return nil
}
