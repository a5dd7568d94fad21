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

// Lapsed are the jobs that Lapse has taken out of the queue.
type Lapsed struct {
	Expired []string // parked as expired
	Unsure  []string // they may have been called since a snapshot that was restored: parked as unknown_outcome, or pending if Asked
	Asked   bool
}

// Lapse parks queued jobs that have expired and can't have been charged, and those that may have been called since a
// restored snapshot and that no key covers. It removes their tasks, so that none of them is pulled at a slot. id
// is such a job, which was pulled: one step looks near the heads of the lines in which that job waited. If it
// returns no jobs, there are none left near the heads. Any process may do this at any time.
func (b *Books) Lapse(ctx context.Context, id string) (Lapsed, error) {
	k, age := b.keys, b.cfg.Age()
	keys := []string{k.Pending(), k.Counters(), k.Parked(string(job.Expired)), k.Alive(), k.Nobodys()}
	reply, err := record.Lapse.For(b.cfg.Feed).Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), id, k.JobPrefix(), lapseChunk, job.ExpiredUnsent,
		age.Version, age.Least, age.Marks, redisdb.Flag(b.cfg.Keys), b.cfg.KeyLifetime.Microseconds(), job.Uncovered, b.cfg.Asks.First(false)).StringSlice()
	if err != nil {
		return Lapsed{}, err
	}
	if len(reply) == 0 {
		return Lapsed{}, redisdb.BadReply("lapse.lua", reply)
	}
	lines, err := strconv.Atoi(reply[0])
	if err != nil || lines < 0 || len(reply) < 2+2*lines {
		return Lapsed{}, redisdb.BadReply("lapse.lua", reply[0])
	}
	ids := reply[2+2*lines:]
	expired, err := strconv.Atoi(reply[1+2*lines])
	if err != nil || expired < 0 || expired > len(ids) {
		return Lapsed{}, redisdb.BadReply("lapse.lua", reply[1+2*lines])
	}
	did := Lapsed{ids[:expired], ids[expired:], b.cfg.Asks.First(false) > 0}
	for i := 1; i <= 2*lines; i += 2 {
		size, err := strconv.ParseInt(reply[i+1], 10, 64)
		if err != nil {
			return did, redisdb.BadReply("lapse.lua", reply[i+1])
		}
		if err := b.clearHead(ctx, reply[i], size); err != nil {
			return did, err
		}
	}
	return did, nil
}

// clearHead removes the stale tasks near the head of a line that had size tasks: also if others were added since.
func (b *Books) clearHead(ctx context.Context, line string, size int64) error {
	_, err := b.clearStretch(ctx, line, max(size-lapseChunk, 0), papersChunk)
	return err
}
