package ledger

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/seal"
)

// recognise turns a conflict into a duplicate where the job is known with this payload under another key, or from before payloads were
// sealed: accept.lua has compared the digests of one key alone.
func (b *Books) recognise(ctx context.Context, jobs []job.Newcomer, answers []job.Admittance) error {
	if b.cfg.Box == nil {
		return nil
	}
	known := map[int]*redis.StringCmd{}
	_, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, a := range answers {
			if a == job.Conflict {
				known[i] = p.HGet(ctx, b.keys.Job(jobs[i].Job.ID), "d")
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for i, cmd := range known {
		if b.cfg.Box.SameDigest(jobs[i].Job.ID, jobs[i].Digest, cmd.Val()) {
			answers[i] = job.Duplicate
		}
	}
	return nil
}

// unseal opens the payload of an attempt that may be called. What can't be opened is never called: without its key it is put aside, since
// the others may have the same one, and somebody has only to give it; what was changed is parked.
func (b *Books) unseal(a *job.Attempt, opening job.Opening) job.Opening {
	if opening != job.OpenGo {
		return opening
	}
	plain, err := b.cfg.Box.Open(a.Job.ID, a.Job.Payload)
	if err == nil {
		a.Job.Payload = plain
		return opening
	}
	a.Job.Payload, a.LastError = nil, err.Error()
	if errors.Is(err, seal.ErrChanged) {
		return job.OpenChanged
	}
	return job.OpenSealed
}

// reveal opens the payload of a record, if it is sealed.
func (b *Books) reveal(r *job.Record) {
	if seal.Sealed(r.Job.Payload) {
		r.Sealed = r.Job.Payload
		r.Job.Payload, r.Unopened = b.cfg.Box.Open(r.Job.ID, r.Sealed)
	}
}
