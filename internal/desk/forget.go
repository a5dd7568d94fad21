package desk

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// Forgetting selects the jobs whose payload, error and reference to erase. They must be done or discarded.
type Forgetting struct {
	IDs   []string
	Batch string // empty: any, or none
	// OlderThan is how long they must have been over. Zero: any time.
	OlderThan time.Duration
}

// Check returns an error with code usage if it selects no jobs, or selects them in two ways.
func (f Forgetting) Check() error {
	switch {
	case f.OlderThan < 0:
		return usage("write 30d, or 24h", "--older-than is less than nothing")
	case len(f.IDs) == 0 && f.Batch == "" && f.OlderThan == 0:
		return usage("name them with --id, --batch or --older-than 30d", "forget needs to know which jobs")
	case len(f.IDs) > 0 && (f.Batch != "" || f.OlderThan > 0):
		return usage("leave --batch and --older-than out", "--id names the jobs already")
	}
	return nil
}

// Text returns the flags that select the same jobs.
func (f Forgetting) Text() string {
	var all []string
	for _, id := range f.IDs {
		all = append(all, flag("id", id))
	}
	if f.Batch != "" {
		all = append(all, flag("batch", f.Batch))
	}
	if f.OlderThan > 0 {
		all = append(all, flag("older-than", job.FormatDuration(f.OlderThan)))
	}
	return strings.Join(all, " ")
}

// ForgetDeed is what was or would be erased at one gateway.
type ForgetDeed struct {
	Gateway string `json:"gateway"`
	job.Totals
	Already int64 `json:"already"`  // jobs that were erased before
	NotOver int64 `json:"not_over"` // jobs neither done nor discarded: they are not erased
}

// forgetOnce is how many jobs one step erases.
const forgetOnce = 200

// WouldForget returns what Forget would erase. The error has code failed if a job selected by id is not over,
// and not_found if none of them exists.
func (d *Desk) WouldForget(ctx context.Context, f Forgetting) ([]ForgetDeed, error) {
	deeds := make([]ForgetDeed, len(d.Gateways))
	for i, g := range d.Gateways {
		deeds[i].Gateway = g.Name
		for r, err := range g.forgettable(ctx, f) {
			if err != nil {
				return nil, err
			}
			if err := deeds[i].count(g, r, f); err != nil {
				return nil, err
			}
		}
	}
	for _, deed := range deeds {
		if deed.Jobs+deed.Already+deed.NotOver > 0 {
			return deeds, nil
		}
	}
	if f.Batch != "" {
		return nil, d.NoBatch(ctx, f.Batch)
	}
	if len(f.IDs) > 0 {
		return nil, &job.Error{Code: job.CodeNotFound, Message: "no such job is known here", Hint: "its record is gone when it has been over for longer than dedupe, and all that is known of it with it"}
	}
	return deeds, nil
}

func (deed *ForgetDeed) count(g *Gateway, r job.Record, f Forgetting) error {
	switch {
	case !r.Over() && len(f.IDs) > 0:
		hint := "wait until it is done"
		if r.State == job.Parked {
			hint = "decide what becomes of the payment first: replay or resolve it, or discard it with \"dispatcher dlq discard\"; then forget it"
		}
		return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("job %q is %s at %s: what is not over can't be forgotten, since it is called with its payload", r.Job.ID, r.State, g.Name), Hint: hint}
	case !r.Over():
		deed.NotOver++
	case !r.Erased.IsZero():
		deed.Already++
	default:
		deed.Add(g.Money(r))
	}
	return nil
}

// Forget erases. The audit entry of each gateway is written before the first job is touched. did is called with
// the number of jobs that each step has changed. If it is killed, it can be repeated.
func (d *Desk) Forget(ctx context.Context, f Forgetting, by By, did func(jobs int64)) ([]ForgetDeed, error) {
	would, err := d.WouldForget(ctx, f)
	if err != nil {
		return nil, err
	}
	for i, g := range d.Gateways {
		if would[i].Jobs+would[i].Already == 0 {
			continue
		}
		if would[i], err = g.forget(ctx, f, by, did); err != nil {
			return would, err
		}
	}
	return would, nil
}

func (g *Gateway) forget(ctx context.Context, f Forgetting, by By, did func(jobs int64)) (deed ForgetDeed, err error) {
	deed.Gateway = g.Name
	now, err := g.redis.Time(ctx).Result()
	if err != nil {
		return deed, err
	}
	entry := g.Store.Entry(by.act(deadletter.Act{At: now.UTC(), What: "forget", Filter: f.Text()}))
	if err := entry.Begin(ctx); err != nil {
		return deed, err
	}
	books, last := g.Books.For(entry.Place), context.WithoutCancel(ctx)
	err = g.eraseAll(ctx, f, books, &deed, func(n int64) error {
		did(n)
		return entry.Note(last, deadletter.Deed{Totals: deed.Totals})
	})
	if err == nil {
		err = books.EraseTold(ctx)
	}
	ended := Bounded(ctx, func(ctx context.Context) error { return entry.End(ctx, deadletter.Deed{Totals: deed.Totals}) })
	return deed, cmp.Or(err, ended)
}

func (g *Gateway) eraseAll(ctx context.Context, f Forgetting, books *ledger.Books, deed *ForgetDeed, did func(int64) error) error {
	var some []job.Record
	step := func() error {
		taken, err := books.Erase(ctx, some)
		if err != nil {
			return err
		}
		n := int64(0)
		for i, is := range taken {
			if is {
				deed.Add(g.Money(some[i]))
				n++
			} else {
				deed.Already++
			}
		}
		some = some[:0]
		return did(n)
	}
	for r, err := range g.forgettable(ctx, f) {
		if err != nil {
			return err
		}
		if !r.Over() || !r.Erased.IsZero() {
			if err := deed.count(g, r, f); err != nil {
				return err
			}
			continue
		}
		if some = append(some, r); len(some) == forgetOnce {
			if err := step(); err != nil {
				return err
			}
		}
	}
	if len(some) == 0 {
		return nil
	}
	return step()
}

// forgettable yields the selected jobs, including those that are not over.
func (g *Gateway) forgettable(ctx context.Context, f Forgetting) iter.Seq2[job.Record, error] {
	all := ledger.EachJob(ctx, []*ledger.Books{g.Books}, false)
	switch {
	case len(f.IDs) > 0:
		all = g.Books.Records(ctx, f.IDs, false)
	case f.Batch != "":
		all = g.Books.BatchRecords(ctx, f.Batch, false)
	}
	return func(yield func(job.Record, error) bool) {
		now, err := g.redis.Time(ctx).Result()
		if err != nil {
			yield(job.Record{}, err)
			return
		}
		for r, err := range all {
			meant := err != nil || r.State != "" && (f.OlderThan == 0 || r.Over() && !r.Finished.After(now.Add(-f.OlderThan)))
			if meant && !yield(r, err) {
				return
			}
		}
	}
}

// Text says in words what was or would be erased.
func (deed ForgetDeed) Text(done bool) string {
	text := "would forget "
	if done {
		text = "forgot "
	}
	text += deed.Totals.String()
	if deed.Already > 0 {
		text += fmt.Sprintf("; %s had been forgotten before", job.JobsText(deed.Already))
	}
	if deed.NotOver > 0 {
		text += fmt.Sprintf("; %s not over yet, and left as they are: of these, what is parked has to be discarded first (%s)", job.JobsText(deed.NotOver), "dispatcher dlq discard -g "+dispatch.ShellWord(deed.Gateway))
	}
	return text
}
