package deadletter

import (
	"context"
	"fmt"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
)

// Admitter takes parked jobs through admission again. retry is when there may be room for the first that found none:
// zero if nobody knows, negative if never.
type Admitter interface {
	Readmit(ctx context.Context, jobs []job.Return) (answers []job.Admittance, retry time.Duration, err error)
}

// Rules say which parked jobs may be sent again, and with which idempotency key.
type Rules struct {
	Keys        bool          // the gateway keeps idempotency keys
	KeyLifetime time.Duration // for how long
	// ExpiredKeys lets jobs go whose key the gateway has forgotten by now.
	ExpiredKeys bool
	Now         time.Time
}

// Key says what a replay does to a job's idempotency key; why is not empty if the job is to be held back instead.
func (r Rules) Key(rec job.Record) (change job.KeyChange, why string) {
	switch rec.Reason {
	case job.Refused:
		return job.NextKey, ""
	case job.Unreadable:
		return "", "not a job: there is nothing to send"
	case job.Expired:
		return "", "its time to expire has passed"
	}
	if !rec.Unsure {
		return job.KeepKey, ""
	}
	if !r.Keys {
		return "", "an earlier call may have charged and this gateway keeps no idempotency keys: look it up first"
	}
	if !rec.FirstCall.IsZero() && r.Now.Sub(rec.FirstCall) < r.KeyLifetime {
		return job.KeepKey, ""
	}
	if r.ExpiredKeys {
		return job.ForgetKey, ""
	}
	return "", fmt.Sprintf("an earlier call may have charged and the gateway has forgotten its key after %s: look it up first, or use --expired-keys", r.KeyLifetime)
}

// Replayed counts what a replay did.
type Replayed struct {
	Replayed int // taken through admission, into the queue
	HeldBack int // not sent again, for the reasons given to HeldBack
	Gone     int // no longer parked when their turn came
}

// Replay is one run of a filter's jobs back through admission, oldest first.
type Replay struct {
	Store    *Store
	Admitter Admitter
	Filter   Filter
	Rules    Rules
	Clock    clock.Clock
	// Progress is called after each chunk; nil means nobody watches.
	Progress func(Replayed)
	// HeldBack is told of each job held back, and why; nil means nobody asks.
	HeldBack func(rec job.Record, why string)
}

// replayChunk is how many jobs one script takes in.
const replayChunk = 200

// Run replays until the filter's jobs are through or ctx ends. Jobs parked after it began are left alone, so that a job
// which fails again is not replayed again. Stopped and started anew it goes on where it was.
func (r *Replay) Run(ctx context.Context) (Replayed, error) {
	if r.Filter.Until.IsZero() || r.Filter.Until.After(r.Rules.Now) {
		r.Filter.Until = r.Rules.Now
	}
	var done Replayed
	var chunk []job.Return
	for rec, err := range r.Store.List(ctx, r.Filter) {
		if err != nil {
			return done, err
		}
		key, why := r.Rules.Key(rec)
		if why != "" {
			done.HeldBack++
			if r.HeldBack != nil {
				r.HeldBack(rec, why)
			}
			continue
		}
		chunk = append(chunk, job.Return{ID: rec.Job.ID, Generation: rec.Generation, Reason: rec.Reason, Key: key})
		if len(chunk) < replayChunk {
			continue
		}
		if err := r.admit(ctx, chunk, &done); err != nil {
			return done, err
		}
		chunk = chunk[:0]
	}
	err := r.admit(ctx, chunk, &done)
	return done, err
}

const (
	replayPoll    = 100 * time.Millisecond
	replayMaxWait = time.Second
)

// admit takes one chunk in and waits for room as long as it needs.
func (r *Replay) admit(ctx context.Context, chunk []job.Return, done *Replayed) error {
	for len(chunk) > 0 {
		answers, retry, err := r.Admitter.Readmit(ctx, chunk)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		var left []job.Return
		for i, a := range answers {
			switch a {
			case job.Enqueued:
				done.Replayed++
			case job.Full:
				left = append(left, chunk[i])
			default:
				done.Gone++
			}
		}
		if r.Progress != nil {
			r.Progress(*done)
		}
		if chunk = left; len(chunk) == 0 {
			return nil
		}
		wait := replayPoll
		if retry > 0 {
			wait = min(retry, replayMaxWait)
		}
		select {
		case <-r.Clock.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
