package ledger

import (
	"context"
	"slices"

	"spillway/internal/redisdb"
)

// unclassChunk is how many jobs one script moves.
const unclassChunk = 500

// lines returns all lines of the queue: first the default ones, then those of classes, then those of lanes.
func (b *Books) lines(ctx context.Context) ([]string, error) {
	return redisdb.Lines(ctx, b.c, b.keys)
}

// Sorted is how many jobs were moved to other lines of the queue.
type Sorted struct {
	// Unclassed had a class that the gateway no longer has. They go behind the jobs of the default class.
	Unclassed int64
	// Unlaned were in lanes, and the gateway no longer has lanes.
	Unlaned int64
	// Others says that there are still jobs in lanes, because another dispatcher calls them.
	Others bool
}

// Sort moves queued jobs whose class or lanes the gateway no longer has to the lines where they belong. They
// keep their order.
func (b *Books) Sort(ctx context.Context) (s Sorted, err error) {
	classes, laned, err := redisdb.ClassesAndLanes(ctx, b.c, b.keys)
	if err == nil && laned && len(b.cfg.Lanes) == 0 { // first, because jobs leave lanes for the lines of their classes
		if s.Unlaned, s.Others, err = b.unlane(ctx); err == nil {
			classes, err = redisdb.ClassesOf(ctx, b.c, b.keys)
		}
	}
	if err != nil {
		return s, err
	}
	for _, class := range classes {
		line := b.keys.First(class)
		if slices.Contains(b.cfg.First, line) {
			continue
		}
		var moved int64
		for n := int64(unclassChunk); n == unclassChunk; moved += n {
			if n, err = unclassScript.Run(ctx, b.c, []string{line, b.keys.Pending(), b.keys.Classes()}, class, unclassChunk).Int64(); err != nil {
				return s, err
			}
		}
		s.Unclassed += moved
	}
	return s, nil
}
