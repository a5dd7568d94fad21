package redisdb

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// together is a client whose scripts share round trips: what is asked for while one is under way goes in one pipeline as soon as it has come
// back, and what runs the same shared script goes as one run of it. Where Redis is far away, or stalls, another one goes every 5 ms, up to mostFlying. Nobody
// waits for company, so that with little to do each goes by itself, at once.
type together struct {
	redis.UniversalClient

	mu      sync.Mutex
	flying  int       // round trips
	latest  time.Time // when the last of them began
	waiting []*asked
}

const (
	mostFlying   = 16                   // so many begin 5 ms apart while a Redis that is 80 ms away answers the first
	mostTogether = 64                   // scripts in one round trip
	patience     = 5 * time.Millisecond // after so long, another round trip may begin
)

// asked is one run of a script that waits for its turn.
type asked struct {
	ctx  context.Context
	sha  string
	keys []string
	args []any
	cmd  *redis.Cmd
	// several runs the script for several callers of the gateway; nil if each runs by itself
	several *redis.Script
	gateway string
	ends    bool          // others must be of the same gateway
	few     []redis.Cmder // some commands in place of a script
	// turn gets those that go in this one's round trip, itself first, or none when somebody else's has brought the answer.
	turn chan []*asked
}

// Together returns a client that runs scripts in round trips that all of this process share, whatever their gateways: what a call costs is the same with
// one gateway or with hundreds. The nodes of a cluster wait for nobody: there a client is for one gateway. A
// script whose context ends while it waits for its turn does not run; one that shares a round trip waits for that, which the client's own
// time-outs bound. Where replicas are waited for, which goes by single commands, it is the DB's own client.
func (db *DB) Together() redis.UniversalClient {
	if db.waitReplicas > 0 {
		return db.Client
	}
	if _, cluster := db.Client.(*redis.ClusterClient); cluster {
		return &together{UniversalClient: db.Client}
	}
	db.joining.Do(func() { db.joined = &together{UniversalClient: db.Client} })
	return db.joined
}

// SendsOnce says that nothing is sent again by itself: the DB's clients never do that.
func (t *together) SendsOnce() {}

// askedOf is a run of a script that may go as one with others.
func askedOf(ctx context.Context, s *Script, keys []string, args []any) *asked {
	a := &asked{ctx: ctx, sha: s.s.Hash(), several: s.several, ends: s.ends, keys: keys, args: args}
	if len(keys) > 0 {
		a.gateway, _ = gatewayIn(keys[0])
	}
	return a
}

// EvalSha runs a script.
func (t *together) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return t.run(&asked{ctx: ctx, sha: sha, keys: keys, args: args})
}

func (t *together) run(a *asked) *redis.Cmd {
	t.mu.Lock()
	now := time.Now()
	if t.flying == 0 || t.flying < mostFlying && now.Sub(t.latest) > patience {
		t.flying++
		all := append([]*asked{a}, t.some(mostTogether-1, now)...)
		t.mu.Unlock()
		t.send(all, now)
		return a.cmd
	}
	a.turn = make(chan []*asked, 1)
	t.waiting = append(t.waiting, a)
	t.mu.Unlock()
	t.await(a)
	return a.cmd
}

// await waits for a script's turn and its answer. While Redis stalls there may be thousands before it.
func (t *together) await(a *asked) {
	var all []*asked
	if enough := a.ctx.Done(); enough == nil { // a plain receive costs less
		all = <-a.turn
	} else {
		select {
		case all = <-a.turn:
		case <-enough:
			if t.leave(a) {
				return
			}
			all = <-a.turn // it has come
		}
	}
	if len(all) > 0 {
		t.send(all, time.Now())
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
func (t *together) send(all []*asked, begun time.Time) {
	defer t.next(begun)
	if len(all) == 1 {
		all[0].run(t.UniversalClient, all[0].ctx)
		return
	}
	ctx := context.WithoutCancel(all[0].ctx)
	runs := joined(all)
	if len(runs) == 1 {
		runs[0].run(ctx, t.UniversalClient)
	} else {
		_, _ = t.UniversalClient.Pipelined(ctx, func(p redis.Pipeliner) error { // each has its own error
			for _, r := range runs {
				r.run(ctx, p)
			}
			return nil
		})
	}
	for _, r := range runs {
		r.share(ctx, t.UniversalClient)
	}
	for _, a := range all[1:] {
		a.turn <- nil
	}
}

func (a *asked) run(c redis.Scripter, ctx context.Context) { //nolint:revive // the context is another one's
	if a.few != nil {
		a.pipe(ctx, c)
		return
	}
	a.cmd = c.EvalSha(ctx, a.sha, a.keys, a.args...)
}

// next lets the first that waits go, with those behind it, after a round trip that has begun then. Of two round trips that are quick again one ends.
func (t *together) next(begun time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if len(t.waiting) == 0 || t.flying > 1 && now.Sub(begun) < patience && !begun.Equal(t.latest) { // another one that began later takes them along
		t.flying--
		return
	}
	all := t.some(mostTogether, now)
	all[0].turn <- all
}

// some takes the first out of those that wait, for a round trip that begins now.
func (t *together) some(most int, now time.Time) []*asked {
	n := min(len(t.waiting), most)
	some := t.waiting[:n:n]
	t.waiting, t.latest = t.waiting[n:], now
	return some
}

const fewAtOnce = 8 // commands of one pipeline that goes with others

// Pipelined runs commands in a round trip that they share, if they are few.
func (t *together) Pipelined(ctx context.Context, queue func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	p := t.UniversalClient.Pipeline()
	if err := queue(p); err != nil {
		return nil, err
	}
	cmds := p.Cmds()
	if len(cmds) == 0 || len(cmds) > fewAtOnce {
		return p.Exec(ctx)
	}
	a := &asked{ctx: ctx, few: cmds}
	if t.run(a); a.cmd != nil { // it has waited in vain
		for _, cmd := range cmds {
			cmd.SetErr(a.cmd.Err())
		}
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return cmds, err
		}
	}
	return cmds, nil
}

// pipe runs some commands: in the pipeline that c is, or in one of their own.
func (a *asked) pipe(ctx context.Context, c redis.Scripter) {
	if client, alone := c.(redis.UniversalClient); alone {
		_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { // each has its own error
			a.pipe(ctx, p)
			return nil
		})
		return
	}
	for _, cmd := range a.few {
		_ = c.(redis.Pipeliner).Process(ctx, cmd)
	}
}
