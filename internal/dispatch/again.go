package dispatch

import (
	"context"
	"time"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// againEvery is how often jobs parked as exhausted are checked for automatic replay.
const againEvery = 2 * time.Second

// recoverDue replays jobs parked as exhausted that are due for it, if this is configured and the gateway is
// healthy.
func (u *unit) recoverDue(ctx context.Context) time.Duration {
	if u.now().cfg.Exhausted == config.ReplayRecovery {
		if err := u.recoverOnce(ctx); err != nil {
			u.complain(ctx, "exhausted jobs not readmitted, trying again", err)
		}
	}
	return againEvery
}

// recoverOnce replays the due jobs that find room. Any number of processes may run it at once: the script takes
// each job only once.
func (u *unit) recoverOnce(ctx context.Context) error {
	s := u.now()
	now, err := s.books.Look(ctx)
	if err != nil || now.Parked[job.Exhausted] == 0 {
		return err
	}
	well, err := u.well(ctx)
	if err != nil || !well {
		return err
	}
	jobs, left, err := deadletter.New(u.redis, u.name).Again(ctx, Rules(s.cfg, now.Now), replayChunk)
	if left > 0 {
		u.log.Warn("exhausted jobs are left to a person: a replay would hold them back, see dlq show", "jobs", left)
	}
	if err != nil || len(jobs) == 0 {
		return err
	}
	answers, _, err := u.tools.traces.Replays(u.name, s.books.For(deadletter.ByItself)).Readmit(ctx, jobs)
	taken := 0
	for _, a := range answers {
		if a == job.Enqueued {
			taken++
		}
	}
	if taken > 0 {
		u.log.Info("exhausted jobs go in again: the gateway is well", "jobs", taken)
	}
	return err
}

// well reports whether nothing holds the gateway's calls back, not even a pending probe.
func (u *unit) well(ctx context.Context) (bool, error) {
	s, err := Hold(ctx, u.redis, u.now().cfg)
	return err == nil && !s.Paused && s.HeldUntil.IsZero() && !s.Probing && !s.Circuit, err
}
