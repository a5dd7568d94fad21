package queue

import (
	"context"
	_ "embed" // for the script
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"spillway/internal/redisdb"
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
	mu      sync.Mutex
	held    map[string][]redis.Z
	cleared bool // the dead were removed
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

// deadKept is how long the members of a server that was killed stay in asynq's sets after they ran out. Only asynq's own
// monitor would remove them. Their scores are times of the servers' clocks, which may differ by less than that.
const deadKept = time.Hour

// first reports whether this is the first heartbeat.
func (h *heartbeat) first() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.cleared
	h.cleared = true
	return first
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
// text; otherwise the first error is returned for all parts. The first heartbeat also removes what servers that were
// killed have left.
func (c *consumer) beats(ctx context.Context, sha string, keys []string, args []any) *redis.Cmd {
	held := c.beat.take()
	if len(held) == 0 {
		return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	first := c.beat.first()
	var script *redis.Cmd
	cmds, _ := c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		script = p.EvalSha(ctx, sha, keys, args...)
		for set, members := range held {
			p.ZAdd(ctx, set, members...)
			if first && len(members) > 0 {
				p.ZRemRangeByScore(ctx, set, "-inf", strconv.FormatFloat(members[0].Score-deadKept.Seconds(), 'f', 0, 64))
			}
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

// cancelChannel is the channel on which asynq listens for tasks to be cancelled. Spillway never cancels a call
// in flight, so there is nothing to listen for. Each asynq server would keep a connection for it, with a ping
// every three seconds.
const cancelChannel = "asynq:cancel"

// unheard is the prefix of asynq's message about a failed subscription. asynq logs it for this one when it
// ends.
const unheard = "cannot subscribe to cancelation channel"

var errUnheard = errors.New("nobody listens for cancellations")

// Subscribe returns a subscription to cancellations that fails, but only when asynq is to end. It passes every
// other subscription on.
func (c *consumer) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	if !slices.Equal(channels, []string{cancelChannel}) {
		return c.UniversalClient.Subscribe(ctx, channels...)
	}
	<-c.stop.Done()
	deaf := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // or it would look its address up
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return nil, errUnheard }})
	defer deaf.Close()
	return deaf.Subscribe(ctx, channels...)
}

func isUnheard(text string) bool { return strings.HasPrefix(text, unheard) }

//go:embed renew.lua
var renewLua string

var renewScript = redisdb.NewScript(redisdb.NowLua, renewLua)

// leases holds back the lease extensions of one gateway's tasks until those of all gateways are known: hundreds
// of gateways may share a server, which takes no task while it waits for Redis. If an extension fails, asynq
// hears it the next time, 5 s later; a lease lasts 30 s. Leases are extended by Redis's clock: asynq dates them
// by its own.
type leases struct {
	mu      sync.Mutex
	held    map[string][]any // tasks, by key
	failed  map[string]error // not reported to asynq yet
	sender  bool
	sending sync.WaitGroup
}

// ZAddXX holds back the lease extensions of one gateway's tasks.
func (c *consumer) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	own := make([]any, len(members))
	for i, m := range members {
		id, _ := m.Member.(string)
		_, own[i] = unmarked(id)
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
		l.held = make(map[string][]any)
	}
	if l.failed == nil {
		l.failed = make(map[string]error)
	}
	l.held[key] = append(l.held[key], own...)
	if !l.sender {
		l.sender = true
		l.sending.Add(1)
		c.own.pool.start(func() {
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
	cmds := make(map[string]*redis.Cmd, len(held))
	_ = renewScript.Pipelined(ctx, c.UniversalClient, func(run redisdb.Runner) { // each run has its own error
		for key, tasks := range held {
			cmds[key] = run([]string{key}, tasks...)
		}
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
