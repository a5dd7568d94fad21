package crash

import (
	"context"
	"errors"
	"strings"

	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

// batchFlows returns the flows of whole batches. All jobs are of the batch crash.
func batchFlows() []flow {
	const sums = "amount: {field: amount, currency: currency}\n"
	jobs := []string{"ok-1", "ok-2", "later-1", "dear-1", "ok-3", "fails-1", "ok-4"} // the last four find no room at first
	return []flow{
		{name: "cancel a batch", settings: leak + narrow + sums, jobs: jobs, act: cancelBatch, again: cancelBatch},
		{name: "pause a batch", settings: leak + narrow + sums, jobs: jobs, act: pauseBatch, again: pauseBatch},
		{name: "approve a batch", settings: leak + narrow + sums + "approval: {batch_over: \"EUR 0.01\"}\n", jobs: jobs, act: approveBatch, again: approveBatch},
		{
			name: "let first jobs go ahead", settings: leak + sums + roomy, prepare: sendAhead, act: dispatchAll,
			jobs: []string{"ok-1", "fails-1", "ok-2", "later-1", "ok-3", "ok-4"},
		},
		{
			name: "stop a batch by itself", settings: leak + sums + roomy + "batch_brake: {calls: 2, refused: 100%}\n", act: dispatchAll, stays: true,
			jobs: []string{"refuses-1", "refuses-2", "ok-1", "later-1", "ok-2", "ok-3"},
		},
		{
			name: "replay a batch", settings: leak + sums + "admission: {limits: [50/s], burst: 6}\nreplay: manual\n",
			prepare: deadLetters, act: replayBatch, again: replayBatch,
			jobs: []string{"refused-1", "spent-1", "refused-2", "spent-2", "refused-3", "spent-3", "waits-1", "waits-2"},
		},
		{
			name: "approve a replay", settings: leak + sums + "admission: {limits: [50/s], burst: 6}\nreplay: manual\napproval: {replay_over: 0}\n",
			prepare: askReplay, act: approveReplay, again: approveReplay,
			jobs: []string{"refused-1", "spent-1", "refused-2", "spent-2", "refused-3", "spent-3", "waits-1", "waits-2"},
		},
	}
}

// sendAhead lets the first two jobs of the batch go ahead.
func sendAhead(r *run) {
	_, err := dispatch.Books(r.c, r.gateway()).SendAhead(r.ctx, batchName, 2)
	r.must(err)
	r.enqueue()
}

const batchName = "crash"

// insist repeats an act, as a person would, if an act that another process began later came first. It is no failure to be overtaken: then the other process
// does the rest.
func insist(act func() error) error {
	for {
		err := act()
		switch {
		case errors.Is(err, ledger.ErrOvertaken):
			return nil
		case !errors.Is(err, redisdb.ErrLate):
			return err
		}
	}
}

// cancelBatch cancels the batch, resumes it, and replays its jobs: it was the right file after all.
func cancelBatch(ctx context.Context, p *process) error {
	books := dispatch.Books(p.db.Client, p.gateway())
	if err := insist(func() error { return books.CancelBatch(ctx, batchName, "test", "crash", 0, unnoted) }); err != nil {
		return err
	}
	if err := insist(func() error { return books.ResumeBatch(ctx, batchName, unnoted) }); err != nil {
		return err
	}
	return p.replay(ctx, deadletter.Filter{Batch: batchName, Reasons: []job.Reason{job.Cancelled}})
}

// pauseBatch pauses the batch and resumes it.
func pauseBatch(ctx context.Context, p *process) error {
	books := dispatch.Books(p.db.Client, p.gateway())
	if err := insist(func() error { return books.PauseBatch(ctx, batchName, "test", "crash", unnoted) }); err != nil {
		return err
	}
	return insist(func() error { return books.ResumeBatch(ctx, batchName, unnoted) })
}

// approveBatch approves the batch as it is. The second person finds it approved.
func approveBatch(ctx context.Context, p *process) error {
	books := dispatch.Books(p.db.Client, p.gateway())
	batch, _, err := books.Batch(ctx, batchName)
	if err != nil || batch.Awaits.Since.IsZero() {
		return err
	}
	err = insist(func() error {
		return books.ApproveBatch(ctx, batchName, ledger.Approver{Who: "second", Why: "crash"}, batch.ApprovedAs(), unnoted)
	})
	if refused, is := errors.AsType[*job.Error](err); is && strings.Contains(refused.Message, "awaits no approval") {
		return nil
	}
	return err
}

func replayBatch(ctx context.Context, p *process) error {
	return p.replay(ctx, deadletter.Filter{Batch: batchName})
}

// writeTrail writes entries as acts do, beside one that a script has written, and chains them.
func writeTrail(ctx context.Context, p *process) error {
	store := dispatch.Store(p.db.Client, p.gateway())
	if err := p.db.Client.RPush(ctx, redisdb.NewKeys(p.Gateway).Trail(), `{"who":"spillway","what":"batch pause"}`).Err(); err != nil {
		return err
	}
	for i := range int64(2) {
		entry := store.Entry(deadletter.Act{Who: "test", What: "replay", Why: "crash"})
		err := errors.Join(entry.Begin(ctx), entry.Note(ctx, deadletter.Deed{Totals: job.Totals{Jobs: i + 1}}), entry.End(ctx, deadletter.Deed{Totals: job.Totals{Jobs: i + 2}}))
		if err != nil {
			return err
		}
	}
	_, err := store.Seal(ctx)
	return err
}

func unnoted(ledger.Shelved) error { return nil }

// replay takes parked jobs in again, as "dlq replay" does.
func (p *process) replay(ctx context.Context, f deadletter.Filter) error {
	g := p.gateway()
	books, store := dispatch.Books(p.db.Client, g), dispatch.Store(p.db.Client, g)
	now, err := books.Look(ctx)
	if err != nil {
		return err
	}
	entry := store.Entry(deadletter.Act{At: now.Now, Who: "test", What: "replay", Filter: "--batch " + f.Batch})
	done, err := deadletter.BulkRun{Store: store, Filter: f, Clock: clock.Real{}, Begin: entry.Begin}.Replay(ctx, books.For(entry.Place),
		deadletter.Rules{Keys: true, KeyLifetime: g.Request.KeyCovers(), Now: now.Now})
	return errors.Join(err, entry.End(ctx, deadletter.Deed{Totals: job.Totals{Jobs: int64(done.Taken)}}))
}

// askReplay has somebody ask for a replay of the batch, which a second person has to approve.
func askReplay(r *run) {
	deadLetters(r)
	d := desk.New(r.c, []config.Gateway{r.gateway()})
	s, err := d.Select(r.ctx, deadletter.Filter{Batch: batchName}, "")
	r.must(err)
	plan, err := s.Plan(r.ctx, desk.Replay, desk.Options{})
	r.must(err)
	if _, waits := errors.AsType[*desk.Awaits](plan.Run(r.ctx, desk.By{Who: "first", Why: "crash"}, nil, func(*desk.Bulk) {})[0]); !waits {
		r.must(errors.New("the replay awaits no approval"))
	}
}

// approveReplay approves the replay, or continues it as a dispatcher does half a minute later. The second person finds it approved, or begun.
func approveReplay(ctx context.Context, p *process) error {
	d := desk.New(p.db.Client, []config.Gateway{p.gateway()})
	all, err := d.Requests(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	if all[0].Open() {
		err := insist(func() error {
			_, err := all[0].Approve(ctx, desk.By{Who: "second", Why: "crash", Via: roles.ByToken}, nil, func(*desk.Bulk) {})
			return err
		})
		if refused, is := errors.AsType[*job.Error](err); !is || !strings.Contains(refused.Message, "awaits no approval") && !strings.Contains(refused.Message, "has changed since") {
			return err
		}
	}
	if err := p.db.Client.HSet(ctx, redisdb.NewKeys(p.Gateway).Request(all[0].ID), "lease", 1).Err(); err != nil {
		return err
	}
	_, err = d.GoOn(ctx, nil)
	return err
}
