package deadletter

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

//go:embed errors.lua
var errorsLua string

var errorsScript = redisdb.NewScript(record.Expand(errorsLua))

// errorsPage is how many jobs' errors one script examines: few enough not to block Redis for long.
const errorsPage = 1000

// matching reads the next jobs whose error matches the filter, into memory that is free.
func (c *cursor) matching(ctx context.Context, from string, into []job.Record) stretch {
	n, last, texts, err := c.errors(ctx, from)
	switch {
	case err != nil:
		return stretch{err: err}
	case n == 0:
		return stretch{last: true}
	case len(texts) == 0:
		return stretch{from: behind(last), last: n < errorsPage, looked: n}
	}
	all := c.having(ctx, from, last, texts, into)
	all.from, all.last, all.looked = behind(last), n < errorsPage, n
	return all
}

// errors returns which errors of the next jobs match, the score up to which it looked, and the number of jobs.
func (c *cursor) errors(ctx context.Context, from string) (n int, last int64, texts []any, err error) {
	reply, err := errorsScript.Run(ctx, c.store.c, []string{c.set}, c.store.keys.JobPrefix(), from, c.to, errorsPage).Slice()
	if err != nil {
		return 0, 0, nil, c.store.unread(err)
	}
	if len(reply) < 2 {
		return 0, 0, nil, fmt.Errorf("errors.lua gave %d values: is another version of Spillway at work on this Redis?", len(reply))
	}
	looked, _ := reply[0].(int64)
	if looked == 0 {
		return 0, 0, nil, nil
	}
	text, _ := reply[1].(string)
	score, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, 0, nil, c.store.unread(err)
	}
	for _, e := range reply[2:] {
		if text, ok := e.(string); ok && c.filter.Match.MatchString(text) {
			texts = append(texts, text)
		}
	}
	return int(looked), int64(score), texts, nil
}

// having reads the records of a range of scores that have one of these errors.
func (c *cursor) having(ctx context.Context, from string, last int64, texts []any, into []job.Record) stretch {
	args := append([]any{c.store.keys.JobPrefix(), from, strconv.FormatInt(last, 10), errorsPage}, texts...)
	reply, err := errorsScript.Run(ctx, c.store.c, []string{c.set}, args...).StringSlice()
	if err != nil {
		return stretch{err: c.store.unread(err)}
	}
	var found []redis.Z
	for pair := range slices.Chunk(reply, 2) {
		score, err := strconv.ParseFloat(pair[len(pair)-1], 64)
		if err != nil {
			return stretch{err: c.store.unread(err)}
		}
		found = append(found, redis.Z{Member: pair[0], Score: score})
	}
	return c.read(ctx, found, into)
}

// excludes reports whether no job parked for this reason can match, so that none needs to be read: jobs waiting
// for room, maybe a million, all have the same error.
func (f Filter) excludes(r job.Reason) bool {
	texts := r.Errors()
	return f.Match != nil && texts != nil && !slices.ContainsFunc(texts, f.Match.MatchString)
}
