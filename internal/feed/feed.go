// Package feed is where the outcomes of jobs come back to who enqueued them: it reads what the scripts of internal/record have told, and keeps how far
// each reader is. It stands beside the walk: nothing waits for it, unless a reader is so far behind that the gateway is held.
package feed

import (
	"context"
	_ "embed" // the scripts are files
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed readers.lua
var readersLua string

//go:embed ack.lua
var ackLua string

//go:embed tend.lua
var tendLua string

//go:embed position.lua
var positionLua string

var (
	ackScript      = redisdb.NewScript(redisdb.NowLua, readersLua, ackLua)
	tendScript     = redisdb.NewScript(redisdb.NowLua, readersLua, tendLua)
	positionScript = redisdb.NewScript(redisdb.NowLua, positionLua)
	toldScript     = positionScript.Replicated()
)

// Config says whose feed it is, and who reads it.
type Config struct {
	Gateway string
	// Readers are those for which an outcome is kept until each has acknowledged it. None: it is kept for Keep.
	Readers []string
	// Keep is how long an outcome is kept where there is no reader.
	Keep time.Duration
	// MaxBehind is how many outcomes a reader may be behind. 0: any number.
	MaxBehind int64
	// Drop says that the oldest outcomes are dropped, with a count, when a reader is further behind. Else the gateway is held.
	Drop bool
	// NowMicros replaces Redis's clock. For tests; nil means Redis's own.
	NowMicros redisdb.Clock
}

// Feed is one gateway's outcomes. Safe for concurrent use.
type Feed struct {
	c    redis.UniversalClient
	cfg  Config
	keys redisdb.Keys
}

// New returns the feed of a gateway.
func New(c redis.UniversalClient, cfg Config) *Feed {
	return &Feed{c: c, cfg: cfg, keys: redisdb.NewKeys(cfg.Gateway)}
}

const (
	// entriesAtOnce bounds what one question to Redis brings: an entry has up to 32 outcomes.
	entriesAtOnce = 500
	// pollEvery is how often a reader that waits looks for news.
	pollEvery = 100 * time.Millisecond
)

// ErrAhead is the cause of the error for a cursor of a time that Redis's clock has not come to: Redis was restored from a snapshot, or is another one, and its clock is behind.
var ErrAhead = errors.New("outcomes may have been told since with earlier cursors")

// Read returns up to so many outcomes behind a cursor, the oldest first; none where there is no news. Each of them is on all replicas that wait_replicas asks for: where they
// don't have it, the error is redisdb.ErrAway.
func (f *Feed) Read(ctx context.Context, after Cursor, limit int) ([]Outcome, error) {
	all, err := f.between(ctx, after, limit)
	if err != nil || len(all) == 0 {
		return f.newer(ctx, after, limit, err)
	}
	// All that was read was written before this: its answer comes when the replicas have it.
	if _, _, err := f.position(ctx, toldScript); err != nil {
		return nil, err
	}
	return all, nil
}

// newer returns what is behind a cursor that nothing is behind: it may be of data that Redis has lost.
func (f *Feed) newer(ctx context.Context, after Cursor, limit int, err error) ([]Outcome, error) {
	if err != nil {
		return nil, err
	}
	last, now, err := f.position(ctx, positionScript)
	switch {
	case err != nil || after.Compare(last) <= 0:
		return nil, err
	case after.Time > now:
		return nil, &job.Error{Code: job.CodeUsage, Err: ErrAhead,
			Message: fmt.Sprintf("the cursor %s is of a time that Redis's clock has not come to: Redis was restored from a snapshot, or is another one", after),
			Hint:    "read without a cursor all that there is, and go on from its last line"}
	case after.Epoch > last.Epoch: // of an epoch that is lost: what was told since has later times
		back := Cursor{last.Epoch, after.Time}
		all, err := f.between(ctx, back, limit)
		if err == nil && len(all) > 0 {
			_, _, err = f.position(ctx, toldScript)
		}
		return all, err
	}
	return nil, nil
}

// between reads from the stream what is behind a cursor.
func (f *Feed) between(ctx context.Context, after Cursor, limit int) (all []Outcome, err error) {
	from := Cursor{after.Epoch, after.Time + 1}.String()
	entries, err := f.c.XRangeN(ctx, f.keys.Outcomes(), from, "+", int64(min(limit, entriesAtOnce))).Result()
	if err != nil {
		return nil, f.failed("read", err)
	}
	for _, m := range entries {
		if len(all) == limit { // an entry has many: what is behind is read another time
			break
		}
		told, _, err := entry(f.cfg.Gateway, m)
		if err != nil {
			return nil, err
		}
		for _, o := range told {
			if c, _ := ParseCursor(o.Cursor); c.Compare(after) > 0 && len(all) < limit {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

func (f *Feed) position(ctx context.Context, s *redisdb.Script) (last Cursor, now int64, err error) {
	v, err := s.Run(ctx, f.c, []string{f.keys.Feed()}, f.cfg.NowMicros.Now()).Int64Slice()
	if err != nil {
		return last, 0, f.failed("read", err)
	}
	if len(v) != 3 {
		return last, 0, redisdb.BadReply("position.lua", v)
	}
	return Cursor{v[0], v[1]}, v[2], nil
}

// Wait returns when there is an outcome behind the cursor, and at the latest after a while. The error is ctx.Err() when ctx ends first.
func (f *Feed) Wait(ctx context.Context, after Cursor, within time.Duration) error {
	for until := time.Now().Add(within); ; {
		last, _, err := f.position(ctx, positionScript)
		if err != nil || last.Compare(after) > 0 || after.Epoch > last.Epoch && last.Time > after.Time {
			return err
		}
		left := time.Until(until)
		if left <= 0 {
			return nil
		}
		t := time.NewTimer(min(left, pollEvery))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// Known says whether a reader of that name is configured.
func (f *Feed) Known(reader string) bool {
	for _, r := range f.cfg.Readers {
		if r == reader {
			return true
		}
	}
	return false
}

// Acked is what a reader has acknowledged.
type Acked struct {
	Reader string `json:"reader"`
	Cursor string `json:"cursor"` // all outcomes up to it; empty: none
	Behind int64  `json:"behind"` // outcomes that there are behind it
}

// Ack notes that a reader has all outcomes up to a cursor, and lets go of those that all readers have. An earlier cursor than the one that it has acknowledged changes nothing. The reader must be
// Known.
func (f *Feed) Ack(ctx context.Context, reader string, upto Cursor) (Acked, error) {
	v, err := ackScript.Run(ctx, f.c, []string{f.keys.Feed(), f.keys.Outcomes()}, reader, upto.String()).Slice()
	if err != nil {
		return Acked{}, f.failed("acknowledge", err)
	}
	a := Acked{Reader: reader}
	if len(v) == 2 {
		a.Cursor, _ = v[0].(string)
		a.Behind, _ = v[1].(int64)
	}
	if c, err := ParseCursor(a.Cursor); err == nil && c == (Cursor{}) {
		a.Cursor = ""
	}
	_, err = f.Tend(ctx)
	return a, err
}

// Reader is how far a reader is.
type Reader struct {
	Acked
	// Since is when the first outcome was that it is behind; zero if there is none.
	Since time.Time
	// Dropped is how many outcomes were dropped before it had them.
	Dropped int64
}

// Standing is how a feed stands.
type Standing struct {
	Told int64 // how many outcomes there were in its life
	Kept int64 // how many of them are kept
	// Held is since when the gateway is held since WaitsFor is too far behind; zero if it is not.
	Held     time.Time
	WaitsFor string
	Readers  []Reader // in the order of the configuration
}

// Tend lets go of what every reader has or what was kept for long enough, and holds the gateway, or drops the oldest outcomes, where a reader is too far behind.
func (f *Feed) Tend(ctx context.Context) (Standing, error) { return f.look(ctx, false) }

// Look returns how the feed stands, and changes nothing.
func (f *Feed) Look(ctx context.Context) (Standing, error) { return f.look(ctx, true) }

func (f *Feed) look(ctx context.Context, only bool) (s Standing, err error) {
	then := map[bool]string{false: "hold", true: "drop"}[f.cfg.Drop]
	args := []any{f.cfg.NowMicros.Now(), redisdb.Flag(only), f.cfg.Keep.Microseconds(), f.cfg.MaxBehind, then}
	for _, r := range f.cfg.Readers {
		args = append(args, r)
	}
	v, err := tendScript.Run(ctx, f.c, []string{f.keys.Feed(), f.keys.Outcomes()}, args...).StringSlice()
	if err != nil {
		return s, f.failed("look at", err)
	}
	if len(v) != 4+4*len(f.cfg.Readers) {
		return s, redisdb.BadReply("tend.lua", v)
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(v[i], 10, 64); return n }
	moment := func(i int) (at time.Time) {
		if us := number(i); us > 0 {
			at = time.UnixMicro(us).UTC()
		}
		return at
	}
	s = Standing{Told: number(0), Kept: number(1), Held: moment(2), WaitsFor: v[3]}
	for i, r := range f.cfg.Readers {
		at := 4 + 4*i
		s.Readers = append(s.Readers, Reader{Acked: Acked{Reader: r, Cursor: v[at], Behind: number(at + 1)}, Since: moment(at + 2), Dropped: number(at + 3)})
	}
	return s, nil
}

func (f *Feed) failed(what string, err error) error {
	return fmt.Errorf("%s the outcomes of %s: %w", what, f.cfg.Gateway, err)
}
