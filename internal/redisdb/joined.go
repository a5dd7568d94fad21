package redisdb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

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
