package queue

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// told is a command of asynq's about a task, with the task's own id.
type told struct {
	keys   []string
	args   []any
	server *Server // the task's server; nil: unknown, or it has stopped
	taskID string
}

// tell returns the arguments of an asynq script with the task's own id, which is its first argument and part of
// the task's key and message. Scripts that concern no task are unchanged.
func (c *consumer) tell(keys []string, args []any) told {
	t := told{keys: keys, args: args}
	if len(args) == 0 {
		return t
	}
	id, _ := args[0].(string)
	mark, taskID := unmarked(id)
	if mark == "" {
		return t
	}
	t.server, t.taskID, t.keys, t.args = c.server(mark), taskID, slices.Clone(keys), slices.Clone(args)
	t.args[0] = taskID
	for i, key := range t.keys {
		if rest, is := strings.CutSuffix(key, ":t:"+id); is {
			t.keys[i] = rest + ":t:" + taskID
		}
	}
	for i, arg := range t.args {
		if msg, is := arg.([]byte); is {
			t.args[i] = with(msg, idField, taskID)
		}
	}
	return t
}

// ended reports whether the command acknowledges a task that is already removed.
func (t told) ended() bool {
	if t.server == nil || !t.server.src.keys.isEnd(t.keys) {
		return false
	}
	t.server.src.over(t.taskID)
	return t.server.src.ended.take(t.taskID)
}

// leases holds back the lease extensions of one gateway's tasks until those of all gateways are known: hundreds
// of gateways may share a server, which takes no task while it waits for Redis. If an extension fails, asynq
// hears it the next time, 5 s later; a lease lasts 30 s.
type leases struct {
	mu      sync.Mutex
	held    map[string][]redis.Z // by key
	failed  map[string]error     // not reported to asynq yet
	sender  bool
	sending sync.WaitGroup
}

// ZAddXX holds back the lease extensions of one gateway's tasks.
func (c *consumer) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	own := make([]redis.Z, len(members))
	for i, m := range members {
		id, _ := m.Member.(string)
		_, taskID := unmarked(id)
		own[i] = redis.Z{Score: m.Score, Member: taskID}
	}
	l := &c.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	cmd := redis.NewIntCmd(ctx)
	if err := l.failed[key]; err != nil {
		cmd.SetErr(err)
		delete(l.failed, key)
	}
	if l.held == nil {
		l.held = make(map[string][]redis.Z)
	}
	if l.failed == nil {
		l.failed = make(map[string]error)
	}
	l.held[key] = append(l.held[key], own...)
	if !l.sender {
		l.sender = true
		l.sending.Add(1)
		c.own.hands.start(func() {
			defer l.sending.Done()
			for c.putOff(context.WithoutCancel(ctx)) {
			}
		})
	}
	return cmd
}

// putOff sends the extensions held back in one round trip, if there are any.
func (c *consumer) putOff(ctx context.Context) bool {
	l := &c.leases
	l.mu.Lock()
	held := l.held
	l.held, l.sender = nil, len(held) > 0
	l.mu.Unlock()
	if len(held) == 0 {
		return false
	}
	cmds := make(map[string]*redis.IntCmd, len(held))
	_, _ = c.UniversalClient.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for key, members := range held {
			cmds[key] = p.ZAddXX(ctx, key, members...)
		}
		return nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			l.failed[key] = err
		}
	}
	return true
}
