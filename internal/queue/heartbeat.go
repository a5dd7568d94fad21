package queue

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// asynq's sets of live servers and of their workers' tasks. Each server writes them every 5 s and takes no task
// meanwhile.
const (
	allServers = "asynq:servers"
	allWorkers = "asynq:workers"
)

// heartbeat holds back the first parts of an asynq heartbeat until its last part, a script, so that all are
// sent in one round trip.
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

// ZAdd holds back a part of a heartbeat, and passes everything else on.
func (c *consumer) ZAdd(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	if key != allServers && key != allWorkers {
		return c.UniversalClient.ZAdd(ctx, key, members...)
	}
	c.beat.hold(key, members)
	return redis.NewIntCmd(ctx)
}

// isBeat recognises the last part of a heartbeat by its keys.
func (c *consumer) isBeat(keys []string) bool {
	return len(keys) == 2 && strings.HasPrefix(keys[0], allServers+":")
}

// beats sends a heartbeat. If Redis does not know the script, asynq must hear it, because it then sends the
// text; otherwise the first error is returned for all parts.
func (c *consumer) beats(ctx context.Context, sha string, keys []string, args []any) *redis.Cmd {
	held := c.beat.take()
	if len(held) == 0 {
		return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	var script *redis.Cmd
	cmds, _ := c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
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
