package ledger

import (
	"context"

	"spillway/internal/job"
	"spillway/internal/record"
)

// Find returns the record of a job; ok is false if there is none, or no more.
func (b *Books) Find(ctx context.Context, id string) (r job.Record, ok bool, err error) {
	all, err := b.c.HGetAll(ctx, b.keys.Job(id)).Result()
	if err != nil || len(all) == 0 {
		return job.Record{}, false, err
	}
	h := record.Named(all)
	r = record.Parse(b.cfg.Gateway, id, h)
	if r.Unopened == nil {
		r.Job.Payload, r.Sealed, r.Unopened = b.cfg.Box.Reveal(id, r.Job.Payload, h["digest"], r.Reason == job.Unreadable)
	}
	if r.State != job.Queued {
		return r, true, nil
	}
	// Pulled by a worker that has not opened its attempt yet: asynq knows, the record doesn't.
	state, err := b.c.HGet(ctx, b.keys.Task(job.TaskID(id, r.Generation)), "state").Result()
	if err == nil && state == "active" {
		r.State = job.InFlight
	}
	return r, true, nil
}
