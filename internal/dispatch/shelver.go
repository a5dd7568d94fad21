package dispatch

import (
	"context"
	"log/slog"
	"time"
)

// shelve parks the jobs of batches that stopped themselves, and admits those of batches whose first jobs are
// done.
func (u *unit) shelve(ctx context.Context) time.Duration {
	err := u.now().books.Shelve(ctx, func(batch, what string, jobs int64) {
		level, text := slog.LevelInfo, "the first jobs of a batch are done: the rest goes in"
		if what == "pause" {
			level, text = slog.LevelWarn, "a batch has stopped itself: see \"dispatcher batch NAME\""
		}
		u.log.Log(ctx, level, text, "batch", batch, "jobs", jobs)
	})
	if err != nil {
		u.complain(ctx, "jobs of a batch not parked or readmitted, trying again", err)
		return loopBackoff
	}
	return -1
}
