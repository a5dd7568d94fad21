package ledger

import (
	"context"
	"fmt"
	"iter"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
)

// Batch returns the totals of a batch. ok is false if the gateway knows no such batch, or knows it no longer.
// The cost does not depend on the number of jobs.
func (b *Books) Batch(ctx context.Context, name string) (batch record.Batch, ok bool, err error) {
	h, err := b.c.HGetAll(ctx, b.keys.Batch(name)).Result()
	if err != nil || len(h) == 0 {
		return record.Batch{}, false, err
	}
	batch, err = record.ParseBatch(h)
	if err != nil {
		return record.Batch{}, false, fmt.Errorf("the books of batch %q at %s: %w", name, b.cfg.Gateway, err)
	}
	return batch, true, nil
}

// ParkedMoney returns the money of all parked jobs by reason, with and without a batch, and how many have no
// readable amount; Jobs stays zero. It is empty if the gateway's jobs have no money.
func (b *Books) ParkedMoney(ctx context.Context) (map[job.Reason]job.Totals, error) {
	h, err := b.c.HGetAll(ctx, b.keys.Money()).Result()
	if err != nil {
		return nil, err
	}
	batch, err := record.ParseBatch(h)
	if err != nil {
		return nil, fmt.Errorf("the sums of what is parked at %s: %w", b.cfg.Gateway, err)
	}
	sums := make(map[job.Reason]job.Totals, len(batch.Places))
	for p, s := range batch.Places {
		sums[p.Reason] = s
	}
	return sums, nil
}

// LastDue returns the latest time for which a job waits in one of these states: Scheduled, Retrying or Pending
// (its next look-up). It is zero if none waits.
func (b *Books) LastDue(ctx context.Context, states ...job.State) (last time.Time, err error) {
	sets := map[job.State]string{job.Scheduled: b.keys.Scheduled(), job.Retrying: b.keys.Retrying(), job.Pending: b.keys.Asking()}
	for _, state := range states {
		set := sets[state]
		found, err := b.c.ZRevRangeWithScores(ctx, set, 0, 0).Result()
		if err != nil {
			return last, err
		}
		for _, z := range found {
			if at := record.Moment(int64(z.Score)); at.After(last) {
				last = at
			}
		}
	}
	return last, nil
}

// batchPage is how many jobs of a batch are read at once.
const batchPage = 500

// namesPage is how many ids of a batch are read at once: Redis goes through the list from its nearer end to where they stand, each time.
const namesPage = 10_000

// Retrying returns up to most jobs that wait for a back-off, without payloads, those due last first. more says
// that there are others.
func (b *Books) Retrying(ctx context.Context, most int64) (found []job.Record, more bool, err error) {
	ids, err := b.c.ZRevRange(ctx, b.keys.Retrying(), 0, most).Result()
	if err != nil {
		return nil, false, fmt.Errorf("read which jobs of %s wait out a back-off: %w", b.cfg.Gateway, err)
	}
	if more = int64(len(ids)) > most; more {
		ids = ids[:most]
	}
	for r, err := range b.Records(ctx, ids, false) {
		if err != nil {
			return nil, false, err
		}
		found = append(found, r)
	}
	return found, more, nil
}

// BatchJobs yields the jobs of a batch in the order of acceptance, without payloads. A job whose record is gone
// has no state. It reads page by page; jobs accepted meanwhile come last.
func (b *Books) BatchJobs(ctx context.Context, name string) iter.Seq2[job.Record, error] {
	return b.BatchRecords(ctx, name, false)
}

// BatchRecords is BatchJobs. If payloads is set, payloads are read and opened.
func (b *Books) BatchRecords(ctx context.Context, name string, payloads bool) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		for from := int64(0); ; from += namesPage {
			ids, err := b.c.LRange(ctx, b.keys.BatchIDs(name), from, from+namesPage-1).Result()
			if err != nil {
				yield(job.Record{}, fmt.Errorf("read batch %q of %s: %w", name, b.cfg.Gateway, err))
				return
			}
			for r, err := range b.Records(ctx, ids, payloads) {
				if err != nil {
					err = fmt.Errorf("read batch %q of %s: %w", name, b.cfg.Gateway, err)
				}
				if r.Job.Batch != name { // gone, or admitted again under another batch
					r = job.Record{Job: job.Job{ID: r.Job.ID, Gateway: b.cfg.Gateway, Batch: name}}
				}
				if !yield(r, err) || err != nil {
					return
				}
			}
			if len(ids) < namesPage {
				return
			}
		}
	}
}
