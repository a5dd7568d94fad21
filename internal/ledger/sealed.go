package ledger

import (
	"context"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

// recognise turns a conflict into a duplicate if the job is known with the same payload, digested under another
// key or before payloads were sealed: accept.lua compares digests of only one key.
func (b *Books) recognise(ctx context.Context, jobs []job.Newcomer, answers []job.Admittance) error {
	known := map[int]*redis.SliceCmd{}
	_, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, a := range answers {
			if a == job.Conflict {
				known[i] = p.HMGet(ctx, b.keys.Job(jobs[i].Job.ID), record.Short("digest"), record.Short("route"), record.Short("lane"))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, cmd := range known {
		digest, _ := cmd.Val()[0].(string)
		route, _ := cmd.Val()[1].(string)
		lane, _ := cmd.Val()[2].(string)
		switch {
		case !b.cfg.Box.SameDigest(jobs[i].Job.ID, jobs[i].Digest, digest):
		case route != jobs[i].Job.Route || b.cfg.OwnLanes && lane != jobs[i].Job.Lane:
			answers[i] = job.Elsewhere
		default:
			answers[i] = job.Duplicate
		}
	}
	return nil
}
