package queue

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// asynq's sets of the servers that live and of what their workers do. Each server says so every 5 s, and takes
// no task meanwhile.
const (
	allServers = "asynq:servers"
	allWorkers = "asynq:workers"
)

// heartbeat holds back the first parts of a heartbeat of asynq's until its last, a script, so that all of it goes in one round trip.
type heartbeat struct {
	mu   sync.Mutex
	held map[string][]redis.Z
}

func (h *heartbeat) hold(set string, members []redis.Z) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = make(map[string][]redis.Z)
	}
	h.held[set] = members
}

func (h *heartbeat) take() map[string][]redis.Z {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held
	h.held = nil
	return held
}

// ZAdd holds back what is part of a heartbeat, and passes on all else.
func (c *consumer) ZAdd(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	if key != allServers && key != allWorkers {
		return c.UniversalClient.ZAdd(ctx, key, members...)
	}
	c.beat.hold(key, members)
	return redis.NewIntCmd(ctx)
}

// isBeat knows the last part of a heartbeat by its keys.
func (c *consumer) isBeat(keys []string) bool {
	return len(keys) == 2 && strings.HasPrefix(keys[0], allServers+":")
}

// beats sends a heartbeat. Whether Redis knows the script is for asynq to hear, which comes with its text then; else the first error is that of all.
func (c *consumer) beats(ctx context.Context, sha string, keys []string, args []any) *redis.Cmd {
	held := c.beat.take()
	if len(held) == 0 {
		return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	var script *redis.Cmd
	cmds, _ := c.Pipelined(ctx, func(p redis.Pipeliner) error { // each has its own error
		script = p.EvalSha(ctx, sha, keys, args...)
		for set, members := range held {
			p.ZAdd(ctx, set, members...)
		}
		return nil
	})
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && script.Err() == nil {
			script.SetErr(err)
		}
	}
	return script
}
