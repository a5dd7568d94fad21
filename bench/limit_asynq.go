package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// The ways of an asynq worker to keep the limit.
const (
	kindRecipe  = "recipe"
	kindWait    = "wait"
	kindAsk     = "ask"
	kindAskWait = "ask-wait"
)

// asynqContenders are its wiki's recipe and redis_rate, each as it stands there and tuned by hand.
func asynqContenders(context.Context, *server) ([]contender, func(), error) {
	all := []contender{
		{name: "asynq, its rate-limit recipe", kind: kindRecipe},
		{name: "asynq, tuned by hand: a part of the rate in each process, the handler waits", kind: kindWait},
		{name: "asynq, redis_rate asked in the handler", kind: kindAsk},
		{name: "asynq, redis_rate tuned by hand: no burst, the handler waits", kind: kindAskWait},
	}
	for i := range all {
		all[i].fill, all[i].worker, all[i].left = fillAsynq, asynqWorker, asynqLeft
	}
	return all, nil, nil
}

const asynqRetries = 1_000 // of a task: so many that none is archived for the limit's sake

// fillAsynq queues the jobs with asynq's client.
func fillAsynq(ctx context.Context, t *trial) error {
	client := asynq.NewClientFromRedisClient(t.c)
	for i := range t.jobs {
		_, err := client.EnqueueContext(ctx, asynq.NewTask("charge", payload(i)), asynq.Queue(limitQueue), asynq.TaskID(id(i)), asynq.MaxRetry(asynqRetries))
		if err != nil {
			return err
		}
	}
	return nil
}

// asynqLeft counts the tasks that asynq has neither done nor archived.
func asynqLeft(_ context.Context, t *trial) (int, error) {
	info, err := asynq.NewInspectorFromRedisClient(t.c).GetQueueInfo(limitQueue)
	if err != nil {
		return 0, err
	}
	return info.Pending + info.Active + info.Scheduled + info.Retry, nil
}

// asynqWorker is this program again, as one of the workers.
func asynqWorker(ctx context.Context, t *trial, _ int) (*exec.Cmd, error) {
	return t.self(ctx, t.kind, t.server.addr, t.url, t.workers)
}

// rateLimitError is the recipe's: it brings the task back after a time, and costs it no attempt.
type rateLimitError struct{ retryIn time.Duration }

func (e *rateLimitError) Error() string { return fmt.Sprintf("rate limited (retry in %v)", e.retryIn) }

// isFailure is the recipe's.
func isFailure(err error) bool {
	var limited *rateLimitError
	return !errors.As(err, &limited)
}

// retryDelay is the recipe's.
func retryDelay(n int, err error, task *asynq.Task) time.Duration {
	var limited *rateLimitError
	if errors.As(err, &limited) {
		return limited.retryIn
	}
	return asynq.DefaultRetryDelayFunc(n, err, task)
}

// serveLimited is a worker process: asynq's server set up as the recipe has it (github.com/hibiken/asynq/wiki/Rate-Limiting), with a
// handler that passes the limiter before its call.
func serveLimited(where string) error {
	var kind, addr, url string
	var workers int
	if _, err := fmt.Sscan(where, &kind, &addr, &url, &workers); err != nil {
		return err
	}
	if isRiver(kind) {
		return serveRiver(where)
	}
	c := redis.NewClient(&redis.Options{Addr: addr})
	pass, err := passOf(kind, c, workers)
	if err != nil {
		return err
	}
	client := callClient()
	srv := asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, asynq.Config{Concurrency: limitAtOnce, Queues: map[string]int{limitQueue: 1},
		IsFailure: isFailure, RetryDelayFunc: retryDelay, LogLevel: asynq.ErrorLevel})
	return srv.Run(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if err := pass(ctx); err != nil {
			return err
		}
		taskID, _ := asynq.GetTaskID(ctx)
		return charge(ctx, client, url, taskID, task.Payload())
	}))
}

// passOf returns the limiter that a handler asks before its call. It answers nil, or the error to come back with.
func passOf(kind string, c *redis.Client, workers int) (func(context.Context) error, error) {
	shared := redis_rate.NewLimiter(c)
	switch kind {
	case kindRecipe: // the recipe's limiter is each process's own, so each has its part of the limit, and a second's worth of it at once
		own := rate.NewLimiter(limitN/rate.Limit(workers), max(limitN/workers, 1))
		return func(context.Context) error {
			if !own.Allow() {
				return &rateLimitError{time.Duration(rand.IntN(10)) * time.Second}
			}
			return nil
		}, nil
	case kindWait:
		own := rate.NewLimiter(limitN/rate.Limit(workers), 1)
		return own.Wait, nil
	case kindAsk:
		return func(ctx context.Context) error { return askOnce(ctx, shared) }, nil
	case kindAskWait:
		return func(ctx context.Context) error { return askUntilGranted(ctx, shared) }, nil
	}
	return nil, fmt.Errorf("no worker is called %q", kind)
}

// askOnce has a job come back when redis_rate says that there will be room.
func askOnce(ctx context.Context, l *redis_rate.Limiter) error {
	r, err := l.Allow(ctx, limitQueue, redis_rate.PerSecond(limitN))
	if err == nil && r.Allowed == 0 {
		err = &rateLimitError{r.RetryAfter}
	}
	return err
}

// askUntilGranted asks again when redis_rate says that there will be room.
func askUntilGranted(ctx context.Context, l *redis_rate.Limiter) error {
	for {
		r, err := l.Allow(ctx, limitQueue, redis_rate.Limit{Rate: limitN, Burst: 1, Period: time.Second})
		if err != nil || r.Allowed > 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(r.RetryAfter):
		}
	}
}
