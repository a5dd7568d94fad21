package ledger

import (
	"context"
	"time"

	"spillway/internal/redisdb"
)

const (
	unlaneChunk = 500
	// laneUse is how long no job may have been assigned to a lane: another dispatcher may still have the
	// previous configuration, or already the next one.
	laneUse = 5 * time.Second
)

// LaneSets returns the keys of the sets of lanes with jobs, or nil if the gateway has neither lanes nor route
// limits.
func (b *Books) LaneSets() []string { return b.cfg.Lanes }

// unlane moves jobs from lanes back to the queue's own lines, for a gateway that no longer has lanes. It
// returns how many it moved, and whether others stay because another dispatcher calls jobs by lane.
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
