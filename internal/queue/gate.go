package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// Gate lets asynq pull a job only when a slot for its call is near. T is the slot.
type Gate[T any] interface {
	// Next blocks until a job is pending and a slot is due within the lead, or until ctx ends.
	Next(ctx context.Context) (T, error)
	// Empty gives a slot back whose dequeue found no job.
	Empty(ctx context.Context, slot T)
	// Passed reports that a slot can't be used any more.
	Passed(slot T) bool
	// Release gives back a slot whose job was pulled and never came to its handler.
	Release(ctx context.Context, slot T)
}

// gatedClient is the Redis client that an asynq server gets: it knows asynq's dequeue by its keys and lets it wait at
// the gate; all else passes. No promise hangs on it: a delivery without a slot says so, and its handler takes one itself.
type gatedClient[T any] struct {
	redis.UniversalClient
	gate Gate[T]
	keys redisdb.Keys
	stop context.Context // ends when no more jobs may be pulled

	mu    sync.Mutex
	kept  *T           // slot of a dequeue that Redis answered with NOSCRIPT: asynq comes again at once, with the text
	ready map[string]T // slots of tasks that were pulled, for their handlers, by task id
}

// errBackoff is how long a dequeue that failed keeps asynq from trying again: its processor does not wait by itself.
const errBackoff = 200 * time.Millisecond

func (c *gatedClient[T]) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if !c.isDequeue(keys) {
		return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	return c.dequeue(ctx, func() *redis.Cmd { return c.UniversalClient.EvalSha(ctx, sha, keys, args...) })
}

func (c *gatedClient[T]) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if !c.isDequeue(keys) {
		return c.UniversalClient.Eval(ctx, script, keys, args...)
	}
	return c.dequeue(ctx, func() *redis.Cmd { return c.UniversalClient.Eval(ctx, script, keys, args...) })
}

func (c *gatedClient[T]) isDequeue(keys []string) bool {
	return len(keys) == 4 && keys[0] == c.keys.Pending() && keys[2] == c.keys.Active() && keys[3] == c.keys.Lease()
}

// dequeue waits for a slot, then pulls; it goes on until there is a job, an error, or the end.
func (c *gatedClient[T]) dequeue(ctx context.Context, pull func() *redis.Cmd) *redis.Cmd {
	for {
		c.giveBack(ctx, c.passed())
		slot, err := c.slot()
		if err != nil {
			return nothing(ctx)
		}
		cmd := pull()
		switch err := cmd.Err(); {
		case err == nil:
			c.giveBack(ctx, c.pair(cmd, slot))
			return cmd
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			c.mu.Lock()
			c.kept = &slot
			c.mu.Unlock()
			return cmd
		case errors.Is(err, redis.Nil):
			c.gate.Empty(ctx, slot)
		default:
			c.gate.Empty(ctx, slot)
			c.pause()
			return cmd
		}
	}
}

func (c *gatedClient[T]) slot() (T, error) {
	c.mu.Lock()
	kept := c.kept
	c.kept = nil
	c.mu.Unlock()
	if kept != nil {
		return *kept, nil
	}
	return c.gate.Next(c.stop)
}

func (c *gatedClient[T]) pause() {
	t := time.NewTimer(errBackoff)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.stop.Done():
	}
}

// nothing is the answer of an empty queue.
func nothing(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.Nil)
	return cmd
}
