package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
)

// canaryStays is how long the totals of a batch without jobs are kept after SendAhead. An enqueue may wait for
// room before its first job, and without the totals its whole file would be admitted.
const canaryStays = 30 * 24 * time.Hour

// SendAhead makes a future batch admit only its first jobs until they are done; the rest is parked as paused.
// It reports whether that holds: for a batch that already has jobs, it does only if SendAhead was called before
// the first of them.
func (b *Books) SendAhead(ctx context.Context, batch string, jobs int64) (bool, error) {
	return record.Ahead.Run(ctx, b.c, []string{b.keys.Batch(batch), b.keys.BatchIDs(batch)}, jobs, canaryStays.Milliseconds()).Bool()
}

// Shelve parks the jobs of batches that stopped themselves or await approval, and admits those of batches whose
// first jobs are done or that were approved. Any number of processes may run it at once; one finishes what
// another left. It calls did for each batch.
func (b *Books) Shelve(ctx context.Context, did func(batch, what string, jobs int64)) error {
	all, err := b.c.HGetAll(ctx, b.keys.Shelving()).Result()
	if err != nil {
		return err
	}
	for _, batch := range slices.Sorted(maps.Keys(all)) {
		var sum Shelved
		s := &shelving{b: b, name: batch, what: all[batch], text: job.WasPaused, did: func(step Shelved) error { sum.Add(step); return nil }}
		if failed := s.byItself(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("batch %q: %w", batch, failed))
			continue
		}
		did(batch, s.what, sum.Jobs)
	}
	return err
}

// byItself does what a batch has requested. If someone has decided otherwise, shelve.lua has dropped the
// request, which is not an error.
func (s *shelving) byItself(ctx context.Context) error {
	stops := s.what == "pause" || s.what == "await"
	if stops {
		batch, _, err := s.b.Batch(ctx, s.name)
		if err != nil {
			return err
		}
		s.text = pausedText(batch.Why)
		if s.what == "await" {
			s.text = awaitsText(batch.Awaits.Why)
		}
	} else if s.what == "approve" {
		s.text = job.WasApproved
	}
	err := s.pass(ctx)
	if errors.Is(err, ErrOvertaken) {
		return nil
	}
	if err != nil || !stops {
		return err
	}
	if err := s.b.clearPapers(ctx); err != nil {
		return err
	}
	return s.b.c.HDel(ctx, s.b.keys.Shelving(), s.name).Err()
}

// Braked returns the names of the batches that stopped themselves and about which nobody has decided since, in
// the order in which they stopped.
func (b *Books) Braked(ctx context.Context) ([]string, error) {
	names, err := b.c.ZRange(ctx, b.keys.Braked(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read which batches of %s stopped themselves: %w", b.cfg.Gateway, err)
	}
	return names, nil
}
