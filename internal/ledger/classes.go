package ledger

import (
	"context"
	"slices"

	"spillway/internal/redisdb"
)

// unclassChunk is how many jobs one script moves.
const unclassChunk = 500

// lines are all lines of the queue, those of classes behind the others, and those of lanes last.
func (b *Books) lines(ctx context.Context) ([]string, error) {
	return redisdb.Lines(ctx, b.c, b.keys)
}

// Sorted is how many jobs were put into other lines of the queue.
type Sorted struct {
	// Unclassed had a class that the gateway has no more: they stand behind those of the usual one.
	Unclassed int64
	// Unlaned stood in lanes, and the gateway has none any more.
	Unlaned int64
	// Others says that there are jobs in lanes yet: another dispatcher calls them.
	Others bool
}

// Sort puts the jobs in the queue where they belong whose class the gateway has no more, or whose lanes. They keep their order.
func (b *Books) Sort(ctx context.Context) (s Sorted, err error) {
	classes, laned, err := redisdb.ClassesAndLanes(ctx, b.c, b.keys)
	if err == nil && laned && len(b.cfg.Lanes) == 0 { // first, as jobs that come out of lanes stand in the lines of their classes
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
