package redisdb

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	mostAbreast = 256 // callers that share round trips
	crewsAtOnce = 2   // groups of callers at once: while Redis serves one, the other's replies are decoded
)

// Abreast calls f concurrently for each i below n, with a client whose scripts and reads share round trips: reading
// thousands of gateways takes only a few. A round trip starts when every caller that shares it waits for a reply, so f
// must not wait for another call of f. Methods that the client (crew) does not override are sent individually, at once.
// ctx bounds the shared round trips. f must only read: a command may have run even if it returns an error.
func Abreast(ctx context.Context, c redis.UniversalClient, n int, f func(c redis.UniversalClient, i int)) {
	turns, all := make(chan struct{}, crewsAtOnce), sync.WaitGroup{}
	for from := 0; from < n; from += mostAbreast {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			newCrew(ctx, c, min(mostAbreast, n-from)).row(from, f)
		})
	}
	all.Wait()
}

// crew is the client of some concurrent callers.
type crew struct {
	redis.UniversalClient
	ctx context.Context //nolint:containedctx // bounds shared round trips

	mu       sync.Mutex
	size     int
	busy     int // callers neither waiting for a reply nor finished
	asked    []redis.Cmder
	answered chan struct{} // closed when the current commands are answered

	loading sync.Mutex
	loaded  map[*Script]error
}

func newCrew(ctx context.Context, c redis.UniversalClient, size int) *crew {
	return &crew{UniversalClient: c, ctx: ctx, size: size, busy: size, answered: make(chan struct{}), loaded: map[*Script]error{}}
}

func (w *crew) row(from int, f func(c redis.UniversalClient, i int)) {
	var all sync.WaitGroup
	for i := range w.size {
		all.Go(func() {
			defer w.rest(nil)
			f(w, from+i)
		})
	}
	all.Wait()
}

// ask sends a command together with the others', and returns when it has been answered.
func (w *crew) ask(cmd redis.Cmder) { <-w.rest(cmd) }

// rest removes a caller from the busy ones, with its command, if any. The last one sends all commands.
func (w *crew) rest(cmd redis.Cmder) <-chan struct{} {
	w.mu.Lock()
	answered := w.answered
	if w.busy--; cmd != nil {
		w.asked = append(w.asked, cmd)
	}
	if w.busy > 0 || len(w.asked) == 0 {
		w.mu.Unlock()
		return answered
	}
	all := w.asked
	w.asked, w.answered, w.busy = nil, make(chan struct{}), len(all)
	w.mu.Unlock()
	w.send(all)
	close(answered)
	return answered
}

// send runs commands in one round trip. Each has its own error.
func (w *crew) send(all []redis.Cmder) {
	if len(all) == 1 {
		_ = w.Process(w.ctx, all[0])
		return
	}
	_, _ = w.Pipelined(w.ctx, func(p redis.Pipeliner) error {
		for _, cmd := range all {
			_ = p.Process(w.ctx, cmd)
		}
		return nil
	})
}

// run runs a read-only script. If Redis does not know it, its text is sent once for all callers.
func (w *crew) run(ctx context.Context, s *Script, keys []string, args []any) *redis.Cmd {
	cmd := w.EvalSha(ctx, s.one().Hash(), keys, args...)
	if cmd.Err() == nil || !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd
	}
	if err := w.load(s); err != nil {
		cmd.SetErr(err)
		return cmd
	}
	return w.EvalSha(ctx, s.one().Hash(), keys, args...)
}

func (w *crew) load(s *Script) error {
	w.loading.Lock()
	defer w.loading.Unlock()
	err, done := w.loaded[s]
	if !done {
		err = s.load(w.ctx, w.UniversalClient)
		w.loaded[s] = err
	}
	return err
}

// EvalSha runs a script.
func (w *crew) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", sha, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	w.ask(cmd)
	return cmd
}

// HGetAll reads a hash.
func (w *crew) HGetAll(ctx context.Context, key string) *redis.MapStringStringCmd {
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", key)
	w.ask(cmd)
	return cmd
}

// HGet reads a field of a hash.
func (w *crew) HGet(ctx context.Context, key, field string) *redis.StringCmd {
	cmd := redis.NewStringCmd(ctx, "hget", key, field)
	w.ask(cmd)
	return cmd
}

// LIndex reads an element of a list.
func (w *crew) LIndex(ctx context.Context, key string, index int64) *redis.StringCmd {
	cmd := redis.NewStringCmd(ctx, "lindex", key, index)
	w.ask(cmd)
	return cmd
}

// ZRange reads a part of a sorted set.
func (w *crew) ZRange(ctx context.Context, key string, from, to int64) *redis.StringSliceCmd {
	cmd := redis.NewStringSliceCmd(ctx, "zrange", key, from, to)
	w.ask(cmd)
	return cmd
}

// SetArgs sets a string if a.Mode allows it; other options are not passed on.
func (w *crew) SetArgs(ctx context.Context, key string, value any, a redis.SetArgs) *redis.StatusCmd {
	cmd := redis.NewStatusCmd(ctx, "set", key, value, a.Mode)
	w.ask(cmd)
	return cmd
}
