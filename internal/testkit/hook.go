package testkit

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Hook is between a client and Redis. It gets the commands of one round trip, and sends them with send, whose error it passes on or
// replaces. Nil functions let everything pass.
type Hook struct {
	Alone func(cmd redis.Cmder, send func() error) error    // a command by itself
	Piped func(cmds []redis.Cmder, send func() error) error // several in a pipeline
}

// Around returns a Hook that treats one command and several alike.
func Around(f func(cmds []redis.Cmder, send func() error) error) Hook {
	return Hook{func(cmd redis.Cmder, send func() error) error { return f([]redis.Cmder{cmd}, send) }, f}
}

// Trips counts a client's round trips from now on.
func Trips(c interface{ AddHook(redis.Hook) }) *atomic.Int64 {
	n := &atomic.Int64{}
	c.AddHook(Around(func(_ []redis.Cmder, send func() error) error { n.Add(1); return send() }))
	return n
}

// DialHook changes nothing.
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook calls Alone.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if h.Alone == nil {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.Alone(cmd, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook calls Piped.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if h.Piped == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.Piped(cmds, func() error { return next(ctx, cmds) })
	}
}
