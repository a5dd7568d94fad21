package ledger

import (
	"context"
	"strconv"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// lapseChunk is how many tasks of each line one step of Lapse looks at.
const lapseChunk = 200

// Lapse parks queued jobs that have expired and can't have been charged, and removes their tasks, so that none of
// them is pulled at a slot. id is a job that was found expired when it was pulled: one step looks near the heads of the
// lines in which that job waited. It returns the ids of the parked jobs; none: there is nothing left near the heads.
// Any process may do this at any time.
func (b *Books) Lapse(ctx context.Context, id string) ([]string, error) {
	k, age := b.keys, b.cfg.Age()
	keys := []string{k.Pending(), k.Counters(), k.Parked(string(job.Expired)), k.Alive(), k.Nobodys()}
	reply, err := record.Lapse.For(b.cfg.Feed).Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), id, k.JobPrefix(), lapseChunk, job.ExpiredUnsent,
		age.Version, age.Least, age.Marks).StringSlice()
	if err != nil {
		return nil, err
	}
	if len(reply) == 0 {
		return nil, redisdb.BadReply("lapse.lua", reply)
	}
	lines, err := strconv.Atoi(reply[0])
	if err != nil || lines < 0 || len(reply) < 1+2*lines {
		return nil, redisdb.BadReply("lapse.lua", reply[0])
	}
	ids := reply[1+2*lines:]
	for i := 1; i <= 2*lines; i += 2 {
		size, err := strconv.ParseInt(reply[i+1], 10, 64)
		if err != nil {
			return ids, redisdb.BadReply("lapse.lua", reply[i+1])
		}
		if err := b.clearHead(ctx, reply[i], size); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// clearHead removes the stale tasks near the head of a line that had size tasks: also if others were added since.
func (b *Books) clearHead(ctx context.Context, line string, size int64) error {
	_, err := b.clearStretch(ctx, line, max(size-lapseChunk, 0), papersChunk)
	return err
}
