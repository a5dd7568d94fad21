package queue

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// told is what asynq says of a task to Redis, with the task's own id.
type told struct {
	keys   []string
	args   []any
	server *Server // whose task it is; nil: nobody's, or it has stopped
	taskID string
}

// tell returns what a script of asynq's says with the id of the task that it is about, which is its first argument: it stands in the key of the task
// and in its message, too. What is about no task stays as it is.
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

// ended says that it is the end of a task which is out of asynq's hands already.
func (t told) ended() bool {
	if t.server == nil || !t.server.src.keys.isEnd(t.keys) {
		return false
	}
	t.server.src.over(t.taskID)
	return t.server.src.ended.take(t.taskID)
}

// leases holds back what asynq says of the leases of one gateway's tasks until it has spoken of all gateways: hundreds may share a server, and it takes no
// task while it waits for Redis. asynq hears the next time, 5 s later, if one could not be put off, of 30 s.
type leases struct {
	mu      sync.Mutex
	held    map[string][]redis.Z // by key
	failed  map[string]error     // and not told yet
	sender  bool
	sending sync.WaitGroup
}

// ZAddXX puts off the ends of the leases of one gateway's tasks.
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

// putOff sends what is held back in one round trip, if there is anything.
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
	_, _ = c.UniversalClient.Pipelined(ctx, func(p redis.Pipeliner) error { // each has its own error
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
