package crash

import (
	"context"
	"errors"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// cleared resolves the dead letters as done, with a reference, or discards them.
func cleared(r *run) {
	deadLetters(r)
	p := r.next()
	defer func() { _ = p.db.Close() }()
	r.must(clearAll(r.ctx, p))
}

// forgetAll erases the jobs that are over, as "forget" does.
func forgetAll(ctx context.Context, p *process) error {
	books, store := dispatch.Books(p.db.Client, p.gateway()), dispatch.Store(p.db.Client, p.gateway())
	var over []job.Record
	for r, err := range ledger.EachJob(ctx, []*ledger.Books{books}, false) {
		if err != nil {
			return err
		}
		if r.Over() {
			over = append(over, r)
		}
	}
	entry := store.Entry(deadletter.Act{Who: "test", What: "forget", Why: "crash"})
	if err := entry.Begin(ctx); err != nil {
		return err
	}
	taken, err := books.For(entry.Place).Erase(ctx, over)
	if err == nil {
		err = books.EraseTold(ctx)
	}
	deed := deadletter.Deed{}
	for _, is := range taken {
		if is {
			deed.Jobs++
		}
	}
	return errors.Join(err, entry.End(ctx, deed))
}
