package redisdb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// together is a client whose scripts share round trips: commands issued during one are sent in one pipeline when it has
// returned, and calls of the same shared script are combined into one run. If Redis is far away, or stalls, another
// round trip starts every 5 ms, up to mostFlying. A command never waits for others to share with, so under low load
// each is sent at once.
type together struct {
	redis.UniversalClient

	mu      sync.Mutex
	flying  int       // round trips in flight
	latest  time.Time // when the last of them began
	waiting []*asked
	timer   *time.Timer // runs late; nil before the first script has waited
	set     bool        // the timer is set
}

const (
	mostFlying   = 16                   // this many start 5 ms apart while a Redis 80 ms away answers the first
	mostTogether = 128                  // scripts in one round trip
	patience     = 5 * time.Millisecond // after this time, another round trip may start
)

// asked is one run of a script that waits for its turn.
type asked struct {
	ctx  context.Context
	sha  string
	keys []string
	args []any
	cmd  *redis.Cmd
	// several runs the script for several callers of the gateway; nil if each runs individually
	several *redis.Script
	gateway string
	ends    bool          // the others must be of the same gateway
	few     []redis.Cmder // commands instead of a script
	begun   time.Time     // when its round trip began, if it is the first of it
	// turn receives the runs to send in this one's round trip, itself first, or none if another's round trip has
	// brought the reply.
	turn chan []*asked
}

// Together returns a client that runs scripts in round trips shared by the whole process, across gateways: the cost of
// a call is the same with one gateway or with hundreds. For a cluster, each client is for one gateway. A script whose
// context ends while it waits for its turn does not run. Once sent, it waits for the round trip, which the client's
// timeouts bound. With replicas to wait for, which requires single commands, it is the DB's own client.
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

// SendsOnce says that nothing is resent automatically: the DB's clients never do that.
func (t *together) SendsOnce() {}

// askedOf returns a run of a script that may be combined with others.
func askedOf(ctx context.Context, s *Script, keys []string, args []any) *asked {
	a := &asked{ctx: ctx, sha: s.one().Hash(), ends: s.ends, keys: keys, args: args}
	if s.several != nil {
		a.several = s.several()
	}
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
	t.watch()
	t.mu.Unlock()
	t.await(a)
	return a.cmd
}

// watch sets the timer, unless it is set. The caller holds the lock.
func (t *together) watch() {
	switch {
	case t.set:
		return
	case t.timer == nil:
		t.timer = time.AfterFunc(patience, t.late)
	default:
		t.timer.Reset(patience)
	}
	t.set = true
}

// late starts a round trip for scripts that wait while those in flight stall and nothing else is asked.
func (t *together) late() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set = false
	if len(t.waiting) == 0 {
		return
	}
	if now := time.Now(); t.flying < mostFlying && now.Sub(t.latest) > patience {
		t.flying++
		all := t.some(mostTogether, now)
		all[0].turn <- all
	}
	if len(t.waiting) > 0 {
		t.watch()
	}
}

// await waits for a script's turn and its reply. While Redis stalls there may be thousands before it.
func (t *together) await(a *asked) {
	var all []*asked
	if enough := a.ctx.Done(); enough == nil { // a plain receive is cheaper
		all = <-a.turn
	} else {
		select {
		case all = <-a.turn:
		case <-enough:
			if t.leave(a) {
				return
			}
			all = <-a.turn // its turn has come
		}
	}
	if len(all) > 0 {
		t.send(all, a.begun)
	}
}

// leave removes a script from those that wait, and reports whether it was still among them.
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

// send runs the scripts of one round trip, the first of which is the caller's, and starts the next.
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
		_, _ = t.UniversalClient.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
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

func (a *asked) run(c redis.Scripter, ctx context.Context) { //nolint:revive // the context is another caller's
	if a.few != nil {
		a.pipe(ctx, c)
		return
	}
	a.cmd = c.EvalSha(ctx, a.sha, a.keys, a.args...)
}

// next starts a round trip for the first waiting script and those behind it, after one that began at begun. If Redis is
// quick again, one of two concurrent round trips ends here.
func (t *together) next(begun time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if len(t.waiting) == 0 || t.flying > 1 && now.Sub(begun) < patience && !begun.Equal(t.latest) { // a round trip that began later takes them along
		t.flying--
		return
	}
	all := t.some(mostTogether, now)
	all[0].turn <- all
}

// some removes the first of the waiting scripts, for a round trip that begins now.
func (t *together) some(most int, now time.Time) []*asked {
	n := min(len(t.waiting), most)
	some := t.waiting[:n:n]
	t.waiting, t.latest = t.waiting[n:], now
	if n > 0 {
		some[0].begun = now
	}
	return some
}

const fewAtOnce = 8 // commands of one pipeline that is sent with others

// Pipelined runs commands in a shared round trip, if they are few.
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
	if t.run(a); a.cmd != nil { // its context ended while it waited
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
		_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			a.pipe(ctx, p)
			return nil
		})
		return
	}
	for _, cmd := range a.few {
		_ = c.(redis.Pipeliner).Process(ctx, cmd)
	}
}

// joint is the callers in a round trip that run the same shared script, combined into one run, grouped by gateway; or a
// single script of any kind.
type joint struct {
	all []*asked
	cmd *redis.Cmd // of the run; nil for a single script
}

// joined combines what can run together, in the order of the first of each.
func joined(all []*asked) (runs []*joint) {
	for _, a := range all {
		i := slices.IndexFunc(runs, func(r *joint) bool { return r.all[0].joins(a) })
		if i < 0 {
			runs = append(runs, &joint{all: []*asked{a}})
			continue
		}
		runs[i].all = append(runs[i].all, a)
	}
	for _, r := range runs {
		slices.SortStableFunc(r.all, func(a, b *asked) int { return strings.Compare(a.gateway, b.gateway) })
	}
	return runs
}

func (a *asked) joins(b *asked) bool {
	return a.several != nil && a.several == b.several && (a.gateway == b.gateway || !a.ends) && len(a.keys) == len(b.keys) && len(a.args) == len(b.args)
}

func (r *joint) run(ctx context.Context, c redis.Scripter) {
	if len(r.all) == 1 {
		r.all[0].run(c, ctx)
		return
	}
	keys, args := r.columns()
	r.cmd = c.EvalSha(ctx, r.all[0].several.Hash(), keys, args...)
}

// share gives each caller its own reply. A script that Redis did not know has not run: it runs now.
func (r *joint) share(ctx context.Context, c redis.Scripter) {
	if r.cmd == nil {
		return
	}
	if redis.HasErrorPrefix(r.cmd.Err(), "NOSCRIPT") {
		keys, args := r.columns()
		r.cmd = r.all[0].several.Eval(ctx, c, keys, args...)
	}
	answers, err := r.cmd.Slice()
	if err == nil && len(answers) != len(r.all) {
		err = fmt.Errorf("several.lua: %d answers for %d callers", len(answers), len(r.all))
	}
	for i, a := range r.all {
		a.cmd = redis.NewCmd(a.ctx)
		if err != nil {
			a.cmd.SetErr(err)
			continue
		}
		if failed, bad := answers[i].(error); bad {
			a.cmd.SetErr(a.named(ctx, c, failed))
			continue
		}
		a.cmd.SetVal(answers[i])
	}
}

// named returns the failure of one of the combined callers, with the keys of a wrong type that caused it.
func (a *asked) named(ctx context.Context, c redis.Scripter, failed error) error {
	if client, is := c.(redis.UniversalClient); is && says(failed, wrongType) {
		if named := (naming{client}).among(ctx, failed, a.keys); named != nil {
			return named
		}
	}
	return failed
}

// columns returns the keys and arguments of several.lua.
func (r *joint) columns() (keys []string, args []any) {
	ownKeys, keys := column(r.all, func(a *asked) []string { return a.keys })
	ownArgs, rest := column(r.all, func(a *asked) []any { return a.args })
	return keys, append([]any{r.callers(), ownKeys, ownArgs}, rest...)
}

// callers encodes how many consecutive callers each gateway has.
func (r *joint) callers() []byte {
	var text []byte
	n := 0
	for i, a := range r.all {
		if n++; i+1 == len(r.all) || r.all[i+1].gateway != a.gateway {
			text, n = append(strconv.AppendInt(text, int64(n), 10), ' '), 0
		}
	}
	return text
}

// column returns the values that all callers have in common, followed by those that differ; own has a 1 for each
// position of the latter.
func column[T comparable](all []*asked, of func(*asked) []T) (own []byte, values []T) {
	first, each := of(all[0]), 0
	own = make([]byte, len(first))
	for i, v := range first {
		if own[i] = '0'; slices.ContainsFunc(all[1:], func(a *asked) bool { return of(a)[i] != v }) {
			own[i] = '1'
			each++
		}
	}
	values = make([]T, 0, len(first)+each*(len(all)-1))
	for i, v := range first {
		if own[i] == '0' {
			values = append(values, v)
		}
	}
	for _, a := range all {
		for i, v := range of(a) {
			if own[i] == '1' {
				values = append(values, v)
			}
		}
	}
	return own, values
}
