// Package incarnation detects that Redis's data is older than what was seen of it, because Redis was restored from an
// old snapshot. It works between steps 3 and 4 of 8: no call is then made until an operator has confirmed the restore,
// and after that everything counts as called before.
//
// Every dispatcher gives a sign of life to each gateway's data and remembers the last one it has seen, in memory
// (Watch) and in a small file (Store). Data without what was seen is in doubt. A doubt is recorded in the data, so that
// one process that remembers is enough. Confirm starts a new incarnation of the data, with a mark for the time that its
// records do not cover.
//
//	pulse ──sign of life──▶ alive hash ◀──version, least sign of life── open.lua, before each call
//	  │ not what was seen
//	  ▼
//	Watch.Meet ──look──▶ judge(memory, data) ──▶ calm: calls go on
//	                                       └───▶ missing: doubt.lua, no calls ──run --after-restore──▶ confirm.lua
package incarnation

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed look.lua
var lookLua string

//go:embed begin.lua
var beginLua string

//go:embed raise.lua
var raiseLua string

//go:embed wake.lua
var wakeLua string

//go:embed line.lua
var lineLua string

//go:embed doubt.lua
var doubtLua string

//go:embed confirm.lua
var confirmLua string

var (
	lookScript    = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, lookLua)
	beginScript   = redisdb.NewScript(redisdb.NowLua, beginLua)
	raiseScript   = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, raiseLua)
	wakeScript    = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, wakeLua)
	doubtScript   = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, lineLua, doubtLua)
	confirmScript = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, lineLua, confirmLua).Replicated()
)

// look reads the age of a gateway's data. A non-zero now replaces Redis's clock, in µs.
func look(ctx context.Context, c redis.UniversalClient, gateway string, now int64) (data, error) {
	k := redisdb.NewKeys(gateway)
	v, err := lookScript.Run(ctx, c, []string{k.Alive(), k.Counters()}, now).StringSlice()
	if err != nil {
		return data{}, err
	}
	if len(v) != 13 {
		return data{}, fmt.Errorf("look.lua answered with %d values: is another version of Spillway at work on this Redis?", len(v))
	}
	d := data{line: v[1], v: v[3], marks: v[5], gaps: spans(v[4]), doubt: doubt{line: v[8]}, moving: v[9], format: v[10]}
	for i, to := range map[int]*int64{0: &d.now, 2: &d.at, 6: &d.doubt.from, 7: &d.doubt.seen, 11: &d.beat, 12: &d.back} {
		if v[i] == "" {
			continue
		}
		if *to, err = strconv.ParseInt(v[i], 10, 64); err != nil {
			return data{}, fmt.Errorf("the age of gateway %s's data can't be read: is another version of Spillway at work on this Redis?", gateway)
		}
	}
	return d, nil
}

// spans parses "from-to from-to …" and omits what is malformed.
func spans(text string) []span {
	var all []span
	for one := range strings.FieldsSeq(text) {
		from, to, _ := strings.Cut(one, "-")
		a, errA := strconv.ParseInt(from, 10, 64)
		b, errB := strconv.ParseInt(to, 10, 64)
		if errA == nil && errB == nil {
			all = append(all, span{a, b})
		}
	}
	return all
}

// Sign is what the age of a gateway's data means to an operator.
type Sign struct {
	// Last is when a dispatcher of the gateway last gave a sign of life, which each does about once a second. Zero: it
	// was never served.
	Last time.Time
	// Now is the present time, on Redis's clock like Last.
	Now time.Time
	// Beat is the last sign of life as far as the clock was set back since, and SetBack is by how much it was set back
	// in all.
	Beat    time.Time
	SetBack time.Duration
	// Format is that of the data (redisdb.Format); empty: older than the first version, or no data.
	Format string
	// Doubt says that the data is in doubt; empty if it is not.
	Doubt string
	// LacksFrom and LacksTill are the latest time whose changes the data may lack, because Redis was restored to
	// data from its beginning. Zero: it was not. Till Doubt ends, LacksTill is Now.
	LacksFrom, LacksTill time.Time
}

// Look reads the Sign of a gateway's data.
func Look(ctx context.Context, c redis.UniversalClient, gateway string) (Sign, error) {
	d, err := look(ctx, c, gateway, 0)
	if err != nil {
		return Sign{}, err
	}
	s := Sign{Now: time.UnixMicro(d.now).UTC(), Format: d.format, Beat: time.UnixMicro(d.beat).UTC(), SetBack: time.Duration(d.back) * time.Microsecond}
	if d.at > 0 {
		s.Last = time.UnixMicro(d.at).UTC()
	}
	if marks := spans(d.marks); len(marks) > 0 {
		last := marks[len(marks)-1]
		s.LacksFrom, s.LacksTill = time.UnixMicro(last.from).UTC(), time.UnixMicro(last.to).UTC()
	}
	if d.doubt.from != 0 {
		s.LacksFrom, s.LacksTill = time.UnixMicro(d.doubt.from).UTC(), s.Now
		s.Doubt = fmt.Sprintf("Redis was restored to %s: check, then start one dispatcher with --after-restore", clockTime(d.doubt.from))
	}
	return s, nil
}

// namesMost is the most gateways that a message names.
const namesMost = 5

// words says what is wrong with the data of these gateways, and what to do.
func (b doubt) words(gateways []string) (message, hint string) {
	of := "gateway " + strings.Join(gateways[:min(len(gateways), namesMost)], ", ")
	if n := len(gateways); n > namesMost {
		of += fmt.Sprintf(" and %d more", n-namesMost)
	}
	hint = "jobs done since may be called again, and jobs accepted since are gone: check, enqueue the files of that time again, " +
		"then start one dispatcher with \"run --after-restore\""
	return fmt.Sprintf("Redis's data of %s is from %s, a dispatcher saw it at %s: it was restored from an old snapshot. Nothing is called",
		of, clockTime(b.from), clockTime(b.seen)), hint
}

func clockTime(us int64) string { return job.Moment(time.UnixMicro(us)) }

// Doubted returns what is wrong with the data of the watched gateways and what to do; empty if none is in doubt.
func Doubted(all []*Watch) (message, hint string) {
	var gateways []string
	var worst doubt
	for _, w := range all {
		w.mu.Lock()
		b := w.doubt
		w.mu.Unlock()
		if b.from == 0 {
			continue
		}
		gateways = append(gateways, w.p.Gateway)
		if worst.from == 0 || b.from < worst.from {
			worst = b
		}
	}
	if len(gateways) == 0 {
		return "", ""
	}
	return worst.words(gateways)
}
