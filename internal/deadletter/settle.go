package deadletter

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// settleExpired is the key change of a job that was not charged and has expired: it is settled without being
// admitted.
const settleExpired job.KeyChange = "expired"

// NotDone is Key for a job in doubt that an operator has found not to be charged, which is a definite no. An
// expired job is not called any more; it is settled, too, and parked as expired.
func (r Rules) NotDone(rec job.Record) (change job.KeyChange, why string) {
	switch {
	case !rec.InDoubt():
		return "", noDoubt
	case r.expired(rec):
		return settleExpired, ""
	}
	return job.SettleKey, ""
}

// Discard returns why a job is not discarded: it is unknown whether it was charged.
func (r Rules) Discard(rec job.Record) (change job.KeyChange, why string) {
	if rec.InDoubt() && !r.MayBeCharged {
		return "", inDoubt
	}
	return job.KeepKey, ""
}

// Ask returns why no look-up is made for a job: its outcome is not in doubt, or no look-up is configured.
func (r Rules) Ask(rec job.Record) (change job.KeyChange, why string) {
	switch {
	case !rec.InDoubt():
		return "", noDoubt
	case asksOf(rec.Job.Route, r.Asks, r.RouteAsks).First(rec.Taken) == 0:
		return "", noLooks
	}
	return job.KeepKey, ""
}

// Done returns why a job is not resolved as done: its outcome is not in doubt.
func (r Rules) Done(rec job.Record) (change job.KeyChange, why string) {
	if !rec.InDoubt() {
		return "", noDoubt
	}
	return job.KeepKey, ""
}

// Why a job is held back from a discard or a resolve.
const (
	inDoubt = "may have been charged: look it up, then dlq resolve"
	noDoubt = "it can't have been charged, so there is nothing to settle: replay or discard it"
	noLooks = "its gateway has no lookup in the file: look it up there, then dlq resolve --done or --not-done"
)

// NotDone resolves jobs in doubt as not done: they are admitted again, with their next key.
func (c BulkRun) NotDone(ctx context.Context, a job.Readmitter, r Rules) (BulkResult, error) {
	expired := func(j job.Return) bool { return j.Key == settleExpired }
	return c.run(ctx, r.NotDone, either(expired, removing(c.Store.expire), a.Readmit), readmitChunk)
}

// Done resolves jobs in doubt as done. They stay known for the dedupe window. reference is the gateway's own
// name for the payment of a single job; empty: unknown.
func (c BulkRun) Done(ctx context.Context, r Rules, dedupe time.Duration, reference string) (BulkResult, error) {
	resolve := func(ctx context.Context, jobs []job.Return) ([]bool, error) {
		return c.Store.Resolve(ctx, jobs, dedupe, reference)
	}
	return c.run(ctx, r.Done, removing(resolve), removeChunk)
}

// Ask makes look-ups for jobs in doubt, at once. again starts them, and reports for each job whether it was
// still parked as given.
func (c BulkRun) Ask(ctx context.Context, r Rules, again func(context.Context, []job.Return) ([]bool, error)) (BulkResult, error) {
	return c.run(ctx, r.Ask, removing(again), removeChunk)
}

// Discard removes the jobs for good. They stay known for the dedupe window. Jobs that may have been charged are
// held back, unless the rules permit them.
func (c BulkRun) Discard(ctx context.Context, r Rules, dedupe time.Duration) (BulkResult, error) {
	discard := removing(func(ctx context.Context, jobs []job.Return) ([]bool, error) {
		return c.Store.Discard(ctx, jobs, dedupe)
	})
	if c.Withdraw != nil {
		discard = either(waits, removing(c.Withdraw), discard)
	}
	return c.run(ctx, r.Discard, discard, removeChunk)
}

// waits reports whether a job is not parked, but waits for its call.
func waits(j job.Return) bool { return j.Reason == "" }

// removing returns a taker for an operation that needs no room.
func removing(remove func(context.Context, []job.Return) ([]bool, error)) taker {
	return func(ctx context.Context, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
		removed, err := remove(ctx, jobs)
		answers := make([]job.Admittance, len(removed))
		for i, ok := range removed {
			answers[i] = job.Gone
			if ok {
				answers[i] = job.Enqueued
			}
		}
		return answers, 0, err
	}
}

// either passes the jobs for which so returns true to one taker, and the others to the other.
func either(so func(job.Return) bool, one, other taker) taker {
	return func(ctx context.Context, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
		answers := make([]job.Admittance, len(jobs))
		var parts [2][]job.Return
		var places [2][]int
		for i, j := range jobs {
			n := 1
			if so(j) {
				n = 0
			}
			parts[n], places[n] = append(parts[n], j), append(places[n], i)
		}
		var retry time.Duration
		for n, take := range []taker{one, other} {
			if len(parts[n]) == 0 {
				continue
			}
			got, wait, err := take(ctx, parts[n])
			if err != nil {
				return nil, 0, err
			}
			for i, place := range places[n] {
				answers[place] = got[i]
			}
			retry = wait // of the other taker, the only one that may lack room
		}
		return answers, retry, nil
	}
}

// Discard removes parked jobs for good, and keeps their records for the dedupe window. It reports for each
// whether it was removed: a job no longer parked as given is skipped. Keep chunks to a few hundred jobs.
func (s *Store) Discard(ctx context.Context, jobs []job.Return, dedupe time.Duration) ([]bool, error) {
	keys, args := []string{s.keys.Counters(), s.keys.Acts()}, []any{s.NowMicros.Now(), dedupe.Milliseconds(), s.actPlace()}
	for _, r := range jobs {
		keys = append(keys, s.keys.Job(r.ID), s.keys.Parked(string(r.Reason)))
		args = append(args, r.ID, r.Generation, string(r.Reason))
	}
	return taken(record.Discard.For(s.Feed).Act(ctx, s.c, keys, args...), "discard.lua", len(jobs))
}

// Resolve makes jobs in doubt done, because an operator found that they were charged, whatever the reason for
// which they are parked. It reports for each whether it was resolved: a job is skipped if it is no longer
// parked in the given generation, or not in doubt. reference is the gateway's name for the payment; empty:
// unknown.
func (s *Store) Resolve(ctx context.Context, jobs []job.Return, dedupe time.Duration, reference string) ([]bool, error) {
	return s.settle(ctx, settling{script: record.Resolve.For(s.Feed), name: "resolve.lua", keys: []string{s.keys.Counters(), s.keys.Acts()},
		args: []any{s.NowMicros.Now(), dedupe.Milliseconds(), s.actPlace(), reference}}, jobs)
}

// expire settles expired jobs in doubt as not charged: they stay, parked as expired.
func (s *Store) expire(ctx context.Context, jobs []job.Return) ([]bool, error) {
	return s.settle(ctx, settling{script: record.Expire.For(s.Feed), name: "expire.lua", keys: []string{s.keys.Counters(), s.keys.Parked(string(job.Expired)), s.keys.Acts()},
		args: []any{s.NowMicros.Now(), s.actPlace()}}, jobs)
}

// settling is a script with the keys and arguments that precede those of each job.
type settling struct {
	script *redisdb.Script
	name   string
	keys   []string
	args   []any
}

func (s *Store) settle(ctx context.Context, w settling, jobs []job.Return) ([]bool, error) {
	for _, r := range jobs {
		w.keys = append(w.keys, s.keys.Job(r.ID))
		w.args = append(w.args, r.ID, r.Generation)
	}
	return taken(w.script.Act(ctx, s.c, w.keys, w.args...), w.name, len(jobs))
}

func taken(cmd *redis.Cmd, script string, n int) ([]bool, error) {
	answers, err := cmd.BoolSlice()
	if err == nil && len(answers) != n {
		err = fmt.Errorf("%s gave %d answers for %d jobs: is another version of Spillway at work on this Redis?", script, len(answers), n)
	}
	return answers, err
}
