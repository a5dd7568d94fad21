package ledger

import (
	"context"
	"strconv"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Rejected is a job parked as rejected, ready to be admitted again.
type Rejected struct {
	Return job.Return
	Cost   int64
	Place  int64 // in the order of parking
}

// OldestRejected returns up to n jobs parked as rejected after a place, oldest first; 0 means all. Jobs with
// damaged records are set aside.
func (b *Books) OldestRejected(ctx context.Context, behind int64, n int) ([]Rejected, error) {
	reply, err := rejectedScript.Run(ctx, b.c, []string{b.keys.Parked(string(job.Rejected))}, behind, n, b.keys.JobPrefix()).StringSlice()
	if err != nil {
		return nil, err
	}
	jobs := make([]Rejected, 0, len(reply)/4)
	for i := 0; i+3 < len(reply); i += 4 {
		generation, err1 := strconv.ParseInt(reply[i+1], 10, 64)
		cost, err2 := strconv.ParseInt(reply[i+2], 10, 64)
		place, err3 := strconv.ParseFloat(reply[i+3], 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, redisdb.BadReply("rejected.lua", reply[i+1:i+4])
		}
		if generation < 0 {
			if _, err := b.setAside(ctx, record.Damage{ID: reply[i], From: []string{b.keys.Parked(string(job.Rejected))}}); err != nil {
				return nil, err
			}
			continue
		}
		jobs = append(jobs, Rejected{job.Return{ID: reply[i], Generation: generation, Reason: job.Rejected, Key: job.KeepKey}, cost, int64(place)})
	}
	return jobs, nil
}

// unfitField is a field of the counters: up to this place, all jobs parked as rejected cost more than admission
// can ever grant.
const unfitField = "unfit"

// LeaveBehind records that no job parked as rejected up to a place can be admitted with the current limits: new
// jobs don't wait for them.
func (b *Books) LeaveBehind(ctx context.Context, place int64) error {
	return b.c.HSet(ctx, b.keys.Counters(), unfitField, place).Err()
}
