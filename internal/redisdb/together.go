package redisdb

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// together is a client whose scripts share round trips: what is asked for while mostFlying are under way goes in one pipeline as soon as one
// of those has come back. Nobody waits for company, so that with little to do each goes by itself, at once.
type together struct {
	redis.UniversalClient

	mu      sync.Mutex
	flying  int // round trips
	waiting []*asked
}

const (
	mostFlying   = 2
	mostTogether = 32 // scripts in one round trip
)

// asked is one run of a script that waits for its turn.
type asked struct {
	ctx  context.Context
	sha  string
	keys []string
	args []any
	cmd  *redis.Cmd
	lead chan []*asked // gets those that go in this one's round trip, itself first
	over chan struct{} // closed when somebody else's round trip has brought the answer
}

// Together returns a client that runs the scripts of one gateway in shared round trips: their keys must all be in one slot of a cluster. A
// script whose context ends while it waits for its turn does not run; one that shares a round trip waits for that, which the client's own
// time-outs bound. Where replicas are waited for, which goes by single commands, it is the DB's own client.
func (db *DB) Together() redis.UniversalClient {
	if db.waitReplicas > 0 {
		return db.Client
	}
	return &together{UniversalClient: db.Client}
}

// EvalSha runs a script.
func (t *together) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	a := &asked{ctx: ctx, sha: sha, keys: keys, args: args}
	t.mu.Lock()
	if t.flying < mostFlying {
		t.flying++
		t.mu.Unlock()
		t.send([]*asked{a})
		return a.cmd
	}
	a.lead, a.over = make(chan []*asked, 1), make(chan struct{})
	t.waiting = append(t.waiting, a)
	t.mu.Unlock()
	t.await(a)
	return a.cmd
}

// await waits for a script's turn and its answer. While Redis stalls there may be thousands before it.
func (t *together) await(a *asked) {
	enough := a.ctx.Done()
	for {
		select {
		case all := <-a.lead:
			t.send(all)
			return
		case <-a.over:
			return
		case <-enough:
			if t.leave(a) {
				return
			}
			enough = nil // its turn has come
		}
	}
}

// leave takes a script out of those that wait, and says whether it was still among them.
func (t *together) leave(a *asked) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, a)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	a.cmd = redis.NewCmd(a.ctx)
	a.cmd.SetErr(a.ctx.Err())
	return true
}

// send runs the scripts of one round trip, the first of which is the caller's, and lets the next ones go.
func (t *together) send(all []*asked) {
	defer t.next()
	if len(all) == 1 {
		all[0].run(t.UniversalClient, all[0].ctx)
		return
	}
	ctx := context.WithoutCancel(all[0].ctx)
	_, _ = t.Pipelined(ctx, func(p redis.Pipeliner) error { // each has its own error
		for _, a := range all {
			a.run(p, ctx)
		}
		return nil
	})
	for _, a := range all[1:] {
		close(a.over)
	}
}

func (a *asked) run(c redis.Scripter, ctx context.Context) { //nolint:revive // the context is another one's
	a.cmd = c.EvalSha(ctx, a.sha, a.keys, a.args...)
}

// next lets the first that waits go, with those behind it.
func (t *together) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.waiting), mostTogether)
	if n == 0 {
		t.flying--
		return
	}
	first := t.waiting[0]
	first.lead <- t.waiting[:n:n]
	t.waiting = t.waiting[n:]
}
