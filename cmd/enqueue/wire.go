package main

import (
	"context"
	"errors"

	"spillway/internal/admission"
	"spillway/internal/bucket"
	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/producer"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
)

// openDoor opens Redis and the door of every gateway; a dry run gets a door that leads nowhere.
func openDoor(ctx context.Context, src jobSource) (door, func(), error) {
	if src.opt.dryRun {
		return noDoor{}, func() {}, nil
	}
	db, err := redisdb.Open(ctx, src.cfg.Redis.Reveal(), redisdb.Options{Wait: src.opt.patience, Name: name})
	if err != nil {
		return nil, nil, redisError(err)
	}
	gateways := make(map[string]admission.Gateway, len(src.cfg.Gateways))
	for _, g := range src.cfg.Gateways {
		gateways[g.Name] = admission.Gateway{Books: ledger.New(db.Client, booksOf(g)), MaxCost: maxCost(g)}
	}
	d := admission.New(admission.Config{
		Gateways: gateways, Digest: producer.Digest, Away: redisdb.Away, Patience: src.opt.patience, Clock: clock.Real{},
	})
	return d, func() { _ = db.Close() }, nil
}

func booksOf(g config.Gateway) ledger.Config {
	return ledger.Config{
		Gateway: g.Name, Bucket: bucketOf(g), Encode: queue.NewEncoder(g.Name).Encode,
		InOrder: g.Replay == config.ReplayAuto, Keys: g.Request.IdempotencyHeader != "",
		KeyLifetime: g.Request.KeyLifetime, Attempts: g.Retry.Attempts, Dedupe: g.Dedupe,
	}
}

// tokenBucket is the admission check with its script, as the books want it.
type tokenBucket struct{ bucket.TokenBucket }

// Lua returns the script.
func (tokenBucket) Lua() string { return bucket.TokenBucketLua }

func bucketOf(g config.Gateway) tokenBucket {
	t := tokenBucket{bucket.TokenBucket{Burst: g.Admission.Burst}}
	for _, l := range g.Admission.Limits {
		t.Limits = append(t.Limits, bucket.Limit{N: l.N, Window: l.Window})
	}
	return t
}

// redisError gives an error of Redis its code.
func redisError(err error) error {
	e, ok := errors.AsType[*redisdb.Error](err)
	if !ok {
		return err
	}
	code := job.CodeUsage
	if errors.Is(err, redisdb.ErrAway) {
		code = job.CodeUnavailable
	}
	return &job.Error{Code: code, Message: e.Message, Hint: e.Hint, Err: e.Err}
}

// noDoor is the door of a dry run: it gives no answers.
type noDoor struct{}

// Admit implements door.
func (noDoor) Admit(_ context.Context, _ string, jobs []job.Job, _ admission.Mode) ([]admission.Answer, error) {
	return make([]admission.Answer, len(jobs)), nil
}
