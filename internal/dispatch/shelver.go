package dispatch

import (
	"context"
	"log/slog"
)

// shelver parks the jobs of batches that stopped themselves, and takes in those of batches whose first jobs are done, until ctx ends.
func (u *unit) shelver(ctx context.Context) {
	for await(ctx, -1, u.shelve) {
		err := u.now().books.Shelve(ctx, func(batch, what string, jobs int64) {
			level, text := slog.LevelInfo, "the first jobs of a batch are done: the rest goes in"
			if what == "pause" {
				level, text = slog.LevelWarn, "a batch has stopped itself: see \"dispatcher batch NAME\""
			}
			u.log.Log(ctx, level, text, "batch", batch, "jobs", jobs)
		})
		if err != nil {
			u.complain(ctx, "jobs of a batch not put aside or taken in, trying again", err)
			await(ctx, loopBackoff, nil)
		}
	}
}
