package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Hands is a pool of goroutines that run handlers and pulls for all gateways of a process. It has as many as
// were ever busy at once. asynq starts a new goroutine for each task; its stack would be copied three times
// while it grows to what a Redis and an HTTP call need, which cost an eighth of the dispatcher's time at a
// thousand jobs a second.
type Hands struct {
	work chan func()
	used sync.Pool // finished tasks

	mu     sync.Mutex
	stop   chan struct{} // closed to end idle goroutines
	closed bool
}

// task is a function whose caller waits until it returns, and gets its panic.
type task struct {
	f, run func()
	over   chan any
}

// NewHands returns Hands without goroutines.
func NewHands() *Hands {
	h := &Hands{work: make(chan func()), stop: make(chan struct{})}
	h.used.New = func() any {
		t := &task{over: make(chan any, 1)}
		t.run = t.tell
		return t
	}
	return h
}

// do runs f on a goroutine of the pool and waits until it returns. If f panics, so does do: asynq knows how to
// handle that.
func (h *Hands) do(f func()) {
	t, _ := h.used.Get().(*task)
	t.f = f
	h.start(t.run)
	trouble := <-t.over
	t.f = nil
	h.used.Put(t)
	if trouble != nil {
		panic(trouble)
	}
}

// start runs f on a goroutine of the pool and does not wait. The pool grows to as many goroutines as were ever
// needed at once.
func (h *Hands) start(f func()) {
	select {
	case h.work <- f:
	default:
		go h.run(f)
	}
}

func (h *Hands) run(f func()) {
	for {
		f()
		select {
		case f = <-h.work:
		case <-h.ends():
			return
		}
	}
}

func (h *Hands) ends() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop
}

func (t *task) tell() {
	defer func() {
		trouble := recover()
		if trouble != nil {
			trouble = fmt.Sprintf("%v\n%s", trouble, debug.Stack())
		}
		t.over <- trouble
	}()
	t.f()
}

// trim ends the idle goroutines.
func (h *Hands) trim() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		close(h.stop)
		h.stop = make(chan struct{})
	}
}

// Close ends the idle goroutines at once, and the others when they are done.
func (h *Hands) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.stop)
	}
}

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
