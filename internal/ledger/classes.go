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
	first, err := redisdb.FirstLines(ctx, b.c, b.keys)
	if err != nil {
		return nil, err
	}
	lanes, err := redisdb.LaneLines(ctx, b.c, b.keys)
	return slices.Concat(b.keys.Lines(), first, lanes), err
}

// Unclass puts the jobs in the queue whose class the gateway has no more behind those of the usual one, where they keep their order. It returns how many they were.
func (b *Books) Unclass(ctx context.Context) (moved int64, err error) {
	classes, err := redisdb.ClassesOf(ctx, b.c, b.keys)
	if err != nil {
		return 0, err
	}
	for _, class := range classes {
		line := b.keys.First(class)
		if slices.Contains(b.cfg.First, line) {
			continue
		}
		for n := int64(unclassChunk); n == unclassChunk; moved += n {
			if n, err = unclassScript.Run(ctx, b.c, []string{line, b.keys.Pending(), b.keys.Classes()}, class, unclassChunk).Int64(); err != nil {
				return moved, err
			}
		}
	}
	return moved, nil
}
