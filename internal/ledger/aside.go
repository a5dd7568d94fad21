package ledger

import (
	"context"

	"spillway/internal/job"
	"spillway/internal/record"
)

// setAside parks a job with a damaged record as unreadable, so that it blocks no others. from are further sets
// that contain it.
func (b *Books) setAside(ctx context.Context, id string, from ...string) error {
	done, err := record.SetAside(ctx, b.c, record.Of{Keys: b.keys, Feed: b.cfg.Feed}, id, "", b.cfg.NowMicros.Now(), from...)
	if done && b.cfg.SetAside != nil {
		b.cfg.SetAside(id)
	}
	return err
}

// orAside returns the error of a script on a job's record. If the record is damaged, the job is set aside, and
// the error is nil. note is what else is known of the job.
func (b *Books) orAside(ctx context.Context, id, note string, err error) (aside bool, _ error) {
	aside, err = record.IfDamaged(ctx, b.c, record.Of{Keys: b.keys, Feed: b.cfg.Feed}, id, note, b.cfg.NowMicros.Now(), err)
	if aside && b.cfg.SetAside != nil {
		b.cfg.SetAside(id)
	}
	return aside, err
}

// cameTo describes the outcome of a call whose job's record is damaged.
func cameTo(a job.Attempt, e job.Ending, done bool) string {
	switch {
	case done:
		return "its last call succeeded (reference " + e.Reference + "): resolve it as done"
	case e.Called:
		return "its last call came to: " + e.Error
	case a.KeySent:
		return "it was called before"
	}
	return ""
}
