// Package feed delivers the outcomes of jobs to their producers: it reads what the scripts of internal/record have
// written, and stores each reader's progress. No step of the pipeline waits for it, unless a reader is so far behind
// that the gateway is held.
package feed

import (
	"cmp"
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
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

// Config configures the feed of one gateway.
type Config struct {
	Gateway string
	// Readers are the names of the readers. An outcome is stored until each has acknowledged it. Empty: it is stored
	// for Keep.
	Readers []string
	// Keep is how long an outcome is stored without readers.
	Keep time.Duration
	// MaxBehind is how many outcomes a reader may be behind. 0: no bound.
	MaxBehind int64
	// Drop says that the oldest outcomes are dropped, and counted, if a reader is further behind. Otherwise the gateway
	// is held.
	Drop bool
	// NowMicros replaces Redis's clock. For tests; nil means Redis's own.
	NowMicros redisdb.Clock
}

// Feed is one gateway's outcomes. It is safe for concurrent use.
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
	// entriesAtOnce bounds one read from Redis: an entry has up to 32 outcomes.
	entriesAtOnce = 500
	// pollEvery is how often a waiting reader polls.
	pollEvery = 100 * time.Millisecond
)

// ErrAhead is the cause of the error for a cursor later than Redis's clock: Redis was restored from a snapshot, or is
// another one, and its clock is behind.
var ErrAhead = errors.New("outcomes may have been told since with earlier cursors")

// Read returns up to limit outcomes after a cursor, oldest first; none if there are none yet. They are on as many
// replicas as wait_replicas requires, or else the error is redisdb.ErrAway.
func (f *Feed) Read(ctx context.Context, after Cursor, limit int) ([]Outcome, error) {
	all, err := f.between(ctx, after, limit)
	if err != nil || len(all) == 0 {
		return f.newer(ctx, after, limit, err)
	}
	// Everything read was written before this script, which succeeds when the replicas have it.
	if _, _, err := f.position(ctx, toldScript); err != nil {
		return nil, err
	}
	return all, nil
}

// newer checks a cursor that nothing follows: it may refer to data that Redis has lost.
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
	case after.Epoch > last.Epoch: // its epoch is lost: outcomes since have later times
		back := Cursor{last.Epoch, after.Time}
		all, err := f.between(ctx, back, limit)
		if err == nil && len(all) > 0 {
			_, _, err = f.position(ctx, toldScript)
		}
		return all, err
	}
	return nil, nil
}

// between reads the outcomes after a cursor from the stream.
func (f *Feed) between(ctx context.Context, after Cursor, limit int) (all []Outcome, err error) {
	from := Cursor{after.Epoch, after.Time + 1}.String()
	entries, err := f.c.XRangeN(ctx, f.keys.Outcomes(), from, "+", int64(min(limit, entriesAtOnce))).Result()
	if err != nil {
		return nil, f.failed("read", err)
	}
	for _, m := range entries {
		if len(all) == limit { // an entry has several: the rest is read next time
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

// Wait returns when an outcome after the cursor is stored, or when within has passed. The error is ctx.Err() if ctx ends
// first.
func (f *Feed) Wait(ctx context.Context, after Cursor, within time.Duration) error {
	for until := time.Now().Add(within); ; {
		last, _, err := f.position(ctx, positionScript)
		if err != nil {
			return err
		}
		after.Epoch = min(after.Epoch, last.Epoch) // a later one is lost, as in newer
		if last.Compare(after) > 0 {
			if all, err := f.between(ctx, after, 1); err != nil || len(all) > 0 {
				return err
			}
			after = last // what came up to it is not stored any more
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

// Known reports whether a reader of that name is configured.
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
	Behind int64  `json:"behind"` // number of outcomes after it
}

// Ack records that a reader has processed all outcomes up to a cursor, and drops those that all readers have processed.
// A cursor before the acknowledged one changes nothing. The reader must be Known.
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

// Reader is the progress of a reader.
type Reader struct {
	Acked
	// Since is the time of the first outcome not acknowledged; zero if there is none.
	Since time.Time
	// Dropped is how many outcomes were dropped before the reader got them.
	Dropped int64
}

// Standing is the state of a feed.
type Standing struct {
	Told int64 // outcomes ever written
	Kept int64 // outcomes stored
	// Held is since when the gateway is held because WaitsFor is too far behind; zero if it is not.
	Held     time.Time
	WaitsFor string
	Readers  []Reader // in configured order
}

// Tend drops what every reader has processed or what has been stored long enough. If a reader is too far behind, it
// holds the gateway, or drops the oldest outcomes.
func (f *Feed) Tend(ctx context.Context) (Standing, error) { return f.look(ctx, false) }

// Look returns the state of the feed, and changes nothing.
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

// Cursor is the position of an outcome in a gateway's feed. A reader passes it to get what comes after it. Later
// outcomes have greater cursors, even after a restart or failover of Redis, and after a confirmed restore. The zero
// Cursor precedes the first outcome.
type Cursor struct {
	Epoch int64 // start of the epoch, in seconds
	Time  int64 // of the outcome, in µs on Redis's clock; unique within the gateway
}

// String returns the cursor as readers store it; empty for the zero Cursor.
func (c Cursor) String() string {
	if c == (Cursor{}) {
		return ""
	}
	return strconv.FormatInt(c.Epoch, 10) + "-" + strconv.FormatInt(c.Time, 10)
}

// Compare is negative if c precedes o, and positive if it follows o.
func (c Cursor) Compare(o Cursor) int {
	return cmp.Or(cmp.Compare(c.Epoch, o.Epoch), cmp.Compare(c.Time, o.Time))
}

var cursorText = regexp.MustCompile(`^\d{1,15}-\d{1,16}$`)

// ParseCursor parses the result of String. An empty text is the zero Cursor.
func ParseCursor(text string) (c Cursor, err error) {
	if text == "" {
		return c, nil
	}
	if !cursorText.MatchString(text) {
		return c, fmt.Errorf("%.60q is not a cursor: take it as it stands in a line of outcomes, or leave it out for all there are", text)
	}
	epoch, time, _ := strings.Cut(text, "-")
	c.Epoch, _ = strconv.ParseInt(epoch, 10, 64) // the pattern bounds them
	c.Time, _ = strconv.ParseInt(time, 10, 64)
	return c, nil
}
