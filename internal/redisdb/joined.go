package redisdb

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// joint is those of a round trip that run the same shared script, as one run of it; or a single script of any kind.
type joint struct {
	all []*asked
	cmd *redis.Cmd // of the run; nil for a single script
}

// joined puts together what can go as one, in order of the first of each.
func joined(all []*asked) (runs []*joint) {
	for _, a := range all {
		i := slices.IndexFunc(runs, func(r *joint) bool { return r.all[0].joins(a) })
		if i < 0 {
			runs = append(runs, &joint{all: []*asked{a}})
			continue
		}
		runs[i].all = append(runs[i].all, a)
	}
	return runs
}

func (a *asked) joins(b *asked) bool {
	return a.several != nil && a.several == b.several && len(a.keys) == len(b.keys) && len(a.args) == len(b.args)
}

func (r *joint) run(ctx context.Context, c redis.Scripter) {
	if len(r.all) == 1 {
		r.all[0].run(c, ctx)
		return
	}
	keys, args := r.columns()
	r.cmd = c.EvalSha(ctx, r.all[0].several.Hash(), keys, args...)
}

// share gives each its own answer. A script that Redis did not know has not run: it runs now.
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
			a.cmd.SetErr(failed)
			continue
		}
		a.cmd.SetVal(answers[i])
	}
}

// columns returns the keys and arguments of several.lua.
func (r *joint) columns() (keys []string, args []any) {
	each := func(f func(*asked) any) (own bool) {
		first := f(r.all[0])
		for _, a := range r.all[1:] {
			if f(a) != first {
				return true
			}
		}
		return false
	}
	first := r.all[0]
	ownKeys, ownArgs := make([]byte, len(first.keys)), make([]byte, len(first.args))
	args = append(make([]any, 0, 3+len(first.args)*len(r.all)), len(r.all), ownKeys, ownArgs)
	for i, key := range first.keys {
		if ownKeys[i] = '0'; each(func(a *asked) any { return a.keys[i] }) {
			ownKeys[i] = '1'
			continue
		}
		keys = append(keys, key)
	}
	for i, arg := range first.args {
		if ownArgs[i] = '0'; each(func(a *asked) any { return a.args[i] }) {
			ownArgs[i] = '1'
			continue
		}
		args = append(args, arg)
	}
	for _, a := range r.all {
		for i, own := range ownKeys {
			if own == '1' {
				keys = append(keys, a.keys[i])
			}
		}
		for i, own := range ownArgs {
			if own == '1' {
				args = append(args, a.args[i])
			}
		}
	}
	return keys, args
}
