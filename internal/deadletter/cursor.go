package deadletter

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

//go:embed errors.lua
var errorsLua string

var errorsScript = redisdb.NewScript(record.Expand(errorsLua))

const (
	// page is how many records are read at once, without payloads: memory use is constant, however many are
	// parked.
	page = 500
	// leastPage is how many records a short list reads at once.
	leastPage = 50
	// errorsPage is how many jobs' errors one script examines: few enough not to block Redis for long.
	errorsPage = 1000
)

// cursor walks one reason's sorted set. All scores of a gateway differ, so the last one seen says where to
// continue.
type cursor struct {
	store  *Store
	set    string
	filter *Filter
	fields []string // fields read from a record
	from   string   // the lowest score still to be read
	to     string
	size   int          // of a page
	whole  []job.Record // the current page
	ready  []job.Record // what is left of it
	spare  []job.Record // the page before, in whose place another one is read: a page is large
	next   chan stretch // the next page, being read while the current one is used; nil if none is
	ended  bool
}

// stretch is a page of a set.
type stretch struct {
	records []job.Record
	from    string // where the next page begins
	last    bool
	looked  int // jobs skipped because no error of their part of the set matches
	err     error
}

func (s *Store) cursor(r job.Reason, f *Filter) *cursor {
	c := &cursor{store: s, set: s.set(r, f.Batch), filter: f, fields: f.fields(r), from: since(f.Since), to: until(f.Until), size: page}
	if f.Limit > 0 && f.Match == nil && f.Lane+f.Route == "" {
		c.size = min(max(f.Limit, leastPage), page)
	}
	if f.After > 0 && (f.Since.IsZero() || f.Since.UnixMicro() <= f.After) {
		c.from = behind(f.After)
	}
	c.ended = f.excludes(r)
	return c
}

// excludes reports whether no job parked for this reason can match, so that none needs to be read: jobs waiting
// for room, maybe a million, all have the same error.
func (f Filter) excludes(r job.Reason) bool {
	texts := r.Errors()
	return f.Match != nil && texts != nil && !slices.ContainsFunc(texts, f.Match.MatchString)
}

// fill reads the next page when the current one is used up.
func (c *cursor) fill(ctx context.Context) error {
	for len(c.ready) == 0 && !c.ended {
		if c.next == nil {
			c.ahead(ctx)
		}
		got := <-c.next
		c.next = nil
		if got.err != nil {
			return got.err
		}
		c.spare, c.whole = c.whole, got.records
		c.ready, c.from, c.ended = got.records, got.from, got.last
		if c.filter.Looked != nil {
			c.filter.Looked(got.looked)
		}
		if !c.ended && c.size == page { // a short list may have enough
			c.ahead(ctx)
		}
	}
	return nil
}

// ahead starts to read the next page.
func (c *cursor) ahead(ctx context.Context) {
	from, into, next := c.from, c.spare, make(chan stretch, 1)
	c.next, c.spare = next, nil
	go func() { next <- c.stretch(ctx, from, into) }()
}

// stretch reads the next page, into memory that is free.
func (c *cursor) stretch(ctx context.Context, from string, into []job.Record) stretch {
	if c.filter.Match == nil {
		return c.page(ctx, from, into)
	}
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

// page reads the next records.
func (c *cursor) page(ctx context.Context, from string, into []job.Record) stretch {
	found, err := c.store.c.ZRangeByScoreWithScores(ctx, c.set, &redis.ZRangeBy{Min: from, Max: c.to, Count: int64(c.size)}).Result()
	if err != nil {
		return stretch{err: c.store.unread(err)}
	}
	if len(found) == 0 {
		return stretch{last: true}
	}
	some := c.read(ctx, found, into)
	some.from, some.last = behind(int64(found[len(found)-1].Score)), len(found) < c.size
	return some
}

// read reads records that still match the set: a job that was replayed and parked again since appears at its
// new place.
func (c *cursor) read(ctx context.Context, found []redis.Z, into []job.Record) stretch {
	ids := make([]string, len(found))
	for i, z := range found {
		ids[i], _ = z.Member.(string)
	}
	records := slices.Grow(into[:0], len(ids))[:len(ids)]
	if err := c.store.recordsInto(ctx, records, ids, c.fields); err != nil {
		return stretch{err: err}
	}
	kept := records[:0]
	for i := range records {
		if records[i].ParkedAt.UnixMicro() == int64(found[i].Score) {
			kept = append(kept, records[i])
		}
	}
	return stretch{records: kept}
}

func (c *cursor) pop() job.Record {
	r := c.ready[0]
	c.ready = c.ready[1:]
	return r
}

func behind(score int64) string { return "(" + strconv.FormatInt(score, 10) }

func since(t time.Time) string {
	if t.IsZero() {
		return "-inf"
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

func until(t time.Time) string {
	if t.IsZero() {
		return "+inf"
	}
	return behind(t.UnixMicro())
}
