package ledger

import (
	"context"
	"time"

	"spillway/internal/redisdb"
)

const (
	unlaneChunk = 500
	// laneUse is how long nobody must have bound a job of a lane: another dispatcher may have the file from before, or the one to come.
	laneUse = 5 * time.Second
)

// LaneSets are the keys of the sets in which lanes with jobs stand; none where the gateway has neither lanes nor routes with limits.
func (b *Books) LaneSets() []string { return b.cfg.Lanes }

// unlane puts jobs that stand in lanes back into the queue's own lines, for a gateway that has no lanes any more. It returns how many they were, and whether
// there are more, which stay there as another dispatcher calls jobs by their lanes.
func (b *Books) unlane(ctx context.Context) (moved int64, others bool, err error) {
	k := b.keys
	sets, err := redisdb.LaneSets(ctx, b.c, k)
	for _, set := range sets {
		for more := true; more && err == nil; {
			var n []int64
			n, err = unlaneScript.Run(ctx, b.c, []string{k.Lanes(), set, k.Due(), k.Pending(), k.Retries(), k.Replays(), k.Classes(), k.Nobodys()}, b.cfg.NowMicros.Now(), unlaneChunk, laneUse.Microseconds()).Int64Slice()
			if err == nil && len(n) != 3 {
				err = redisdb.BadReply("unlane.lua", n)
			}
			if err != nil {
				break
			}
			moved += n[0]
			more, others = n[0] > 0 && n[1] == 1, others || n[2] == 1
		}
	}
	return moved, others, err
}
