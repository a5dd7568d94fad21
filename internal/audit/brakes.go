package audit

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

const (
	// brakeParts is the number of parts in which the money of a window is counted (brakes.lua).
	brakeParts = 256
	// skew is how far dispatchers' clocks, which date calls, may differ from Redis's. Much shorter windows are not
	// compared with calls.
	skew = 5 * time.Minute
	// exact is the largest number that scripts count exactly.
	exact = 1 << 53
)

// brakeCheck compares the money counted for a gateway's brakes, in the form of brakes.lua of internal/record, with
// itself and with the jobs' calls.
type brakeCheck struct {
	g *Gateway
	// repair rewrites wrong sums, and counts missing calls as called now.
	repair bool
	found  func(Finding)
	steps
}

// brakeWindow is one window, and what it must contain at least.
type brakeWindow struct {
	name, currency string
	length         time.Duration
	sum            int64
	parts          map[int64]int64 // money by the end of the part, in µs
	from, to       int64           // its first and last part, as stored
	called         int64           // money of the calls that ended within it, from the jobs' records
	opened         map[int64]int64 // money of the open attempts, by the part in which they are counted
}

func (c *brakeCheck) run(ctx context.Context) error {
	c.stepped = time.Now()
	windows, now, born, err := c.read(ctx)
	if err == nil && len(windows) > 0 {
		err = c.calls(ctx, windows, now, born)
	}
	if err != nil {
		return fmt.Errorf("check the money that brakes count at %s: %w", c.g.name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(windows)) {
		if err := c.judge(ctx, windows[name]); err != nil {
			return fmt.Errorf("repair the money that brakes count at %s: %w", c.g.name, err)
		}
	}
	return nil
}

// read returns the windows counted, all read at now on Redis's clock in µs, and since when money is counted.
func (c *brakeCheck) read(ctx context.Context) (windows map[string]*brakeWindow, now, born int64, err error) {
	var fields *redis.MapStringStringCmd
	var at *redis.TimeCmd
	if _, err = c.g.c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		fields, at = tx.HGetAll(ctx, c.g.keys.Brakes()), tx.Time(ctx)
		return nil
	}); err != nil {
		return nil, 0, 0, err
	}
	if now = c.g.NowMicros.Now(); now == 0 {
		now = at.Val().UnixMicro()
	}
	windows = map[string]*brakeWindow{}
	for field, value := range fields.Val() {
		kind, rest, _ := strings.Cut(field, ":")
		name := strings.Split(rest, ":")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch w := windowOf(windows, name); {
		case field == "born":
			born = n
		case w == nil:
		case kind == "s":
			w.sum = n
		case kind == "h":
			_, _ = fmt.Sscan(value, &w.from, &w.to)
		case kind == "b" && len(name) == 3:
			edge, _ := strconv.ParseInt(name[2], 10, 64)
			w.parts[edge] = n
		}
	}
	for _, name := range strings.Fields(fields.Val()["on"]) {
		windowOf(windows, strings.Split(name, ":"))
	}
	for _, w := range slices.Collect(maps.Values(windows)) { // each currency is counted for a day
		windowOf(windows, []string{w.currency, strconv.FormatInt(job.Day.Microseconds(), 10)})
	}
	return windows, now, born, nil
}

// windowOf returns the window with this name, currency and length in µs; nil if it is invalid.
func windowOf(all map[string]*brakeWindow, name []string) *brakeWindow {
	if len(name) < 2 {
		return nil
	}
	length, err := strconv.ParseInt(name[1], 10, 64)
	if err != nil || length <= 0 || len(name[0]) != 3 {
		return nil
	}
	key := name[0] + ":" + name[1]
	if all[key] == nil {
		all[key] = &brakeWindow{name: key, currency: name[0], length: time.Duration(length) * time.Microsecond, parts: map[int64]int64{}, opened: map[int64]int64{}}
	}
	return all[key]
}

// calls reads the records. What was called or opened before now must be counted.
func (c *brakeCheck) calls(ctx context.Context, windows map[string]*brakeWindow, now, born int64) error {
	reader := record.Reader{C: c.g.c, Keys: c.g.keys, Fields: []string{"state", "money", "edited_at", "history", "counted", "opened_at"}}
	s := &survey{g: c.g, steps: c.steps}
	return s.scan(ctx, func(ids []string) error {
		reader.Read(ctx, ids, func(_ int, h map[string]string, err error) {
			if err == nil {
				called(windows, h, now, born)
				opened(windows, h, now)
			}
		})
		return nil
	})
}

// called counts the calls of one job that were made with its current payload.
func called(windows map[string]*brakeWindow, h map[string]string, now, born int64) {
	m, ok := job.Booked(h["money"])
	if !ok || !m.Minor.IsInt64() {
		return
	}
	r := record.Parse("", "", h)
	for _, call := range r.History {
		at := call.At.UnixMicro()
		if call.Verdict == "cut_off" || strings.HasPrefix(string(call.Verdict), "look_") || !call.At.After(r.Edited) || at < born+skew.Microseconds() || at > now {
			continue
		}
		for _, w := range windows {
			if w.currency == m.Currency && w.length >= 4*skew && w.length <= job.Day && at > now-w.length.Microseconds()+skew.Microseconds() {
				w.called += new(big.Int).Abs(m.Minor).Int64()
			}
		}
	}
}

// opened counts a job's open attempt, if any.
func opened(windows map[string]*brakeWindow, h map[string]string, now int64) {
	f := strings.Fields(h["counted"])
	since, err := strconv.ParseInt(h["opened_at"], 10, 64)
	if h["state"] != string(job.InFlight) || err != nil || since > now || len(f) < 4 {
		return
	}
	minor, _ := strconv.ParseInt(f[0], 10, 64)
	at, _ := strconv.ParseInt(f[2], 10, 64)
	for _, length := range f[3:] {
		if n, _ := strconv.ParseInt(length, 10, 64); n < 1e7 { // in seconds
			length += "000000"
		}
		if w := windows[f[1]+":"+length]; w != nil {
			w.opened[w.edge(at)] += minor
		}
	}
}

// edge returns the end of the part that contains a time.
func (w *brakeWindow) edge(at int64) int64 {
	width := (w.length.Microseconds() + brakeParts - 1) / brakeParts
	return (at + width - 1) / width * width
}

// wrong says what is wrong with a window, and how much is missing; empty if nothing is.
func (w *brakeWindow) wrong() (what string, missing int64) {
	var all int64
	for edge, n := range w.parts {
		all += n
		if n != 0 && (edge < w.from || edge > w.to) {
			what = "a part of it is beyond its first or its last one"
		}
	}
	open := int64(0)
	for edge := range w.opened { // what is counted in a later part counts longer
		if lacks := from(w.opened, edge) - from(w.parts, edge); lacks > open {
			open, what = lacks, "open attempts are missing in it"
		}
	}
	switch missing = max(w.called-all, open, 0); {
	case w.sum > exact || all > exact:
		return "", 0
	case w.sum != all:
		what = fmt.Sprintf("its sum is %s, and its parts come to %s", w.money(w.sum), w.money(all))
	case w.called > all:
		what = fmt.Sprintf("its sum is %s, and the calls of jobs come to %s", w.money(all), w.money(w.called))
	}
	return what, missing
}

// from adds up the money of the parts from one on.
func from(parts map[int64]int64, first int64) (all int64) {
	for edge, n := range parts {
		if edge >= first {
			all += n
		}
	}
	return all
}

func (w *brakeWindow) money(minor int64) string {
	return job.Money{Minor: big.NewInt(minor), Currency: w.currency}.String()
}

// judge rewrites a wrong window, or reports it.
func (c *brakeCheck) judge(ctx context.Context, w *brakeWindow) error {
	what, missing := w.wrong()
	if what == "" {
		return nil
	}
	if c.repair {
		latest := int64(0)
		for edge := range w.opened {
			latest = max(latest, edge)
		}
		return record.MendBrakes.Run(ctx, c.g.c, []string{c.g.keys.Brakes()}, c.g.NowMicros.Now(), w.name, missing, latest).Err()
	}
	c.found(Finding{What: BrakeSums, Where: w.name, Text: fmt.Sprintf("what the brakes of %s count of %s in %s: %s", c.g.name, w.currency, job.FormatDuration(w.length), what)})
	return nil
}
