package verify

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Fullest is the fullest window of a limit.
type Fullest struct {
	Limit   string     `json:"limit"`
	Gateway string     `json:"gateway,omitempty"` // of the fullest window; empty if there were no calls
	Of      string     `json:"of,omitempty"`      // path or header value of the fullest window
	Allowed int64      `json:"allowed"`
	Calls   int64      `json:"calls"` // counted by the limit, in all
	Most    int64      `json:"most"`  // in the fullest window
	Since   *time.Time `json:"since"` // time of its first call; nil if there was none
	Over    int64      `json:"over"`  // calls received while the window before them was full
}

// windows checks the calls that a limit counts together, in time order.
type windows struct {
	number  int
	limit   Limit
	fullest Fullest
	series  string
	calls   []stamp // those of the last window, from first on
	first   int
	worst   *crowd // while it is exceeded
}

// stamp is the time of a call, and its line.
type stamp struct {
	at, line int64
	file     int
}

// crowd is a period in which windows had too many calls.
type crowd struct {
	most        int64
	first, last stamp // of the fullest window
	over        int64
}

func windowsOf(limits []Limit) []*windows {
	all := make([]*windows, len(limits))
	for i, l := range limits {
		all[i] = &windows{number: i, limit: l, fullest: Fullest{Limit: l.String(), Allowed: l.N}}
	}
	return all
}

// stamped adds a call to the windows that count it.
func (c *checker) stamped(at call, p stamp) error {
	for _, w := range c.windows {
		with, counted := w.limit.counts(at)
		if !counted {
			continue
		}
		key := packed(binary.BigEndian.AppendUint16(nil, uint16(w.number)))
		key = append(append(append(append(key, at.gateway...), 0), with...), 0)
		key = key.sorted(p.at).sorted(int64(p.file)).sorted(p.line)
		if err := c.stamps.put(key, nil); err != nil {
			return err
		}
	}
	return nil
}

// tailOfStamp is the length of the three numbers at the end of a key.
const tailOfStamp = 3 * 8

func (c *checker) judgeWindows(ctx context.Context) error {
	err := c.stamps.each(ctx, func(key, _ []byte) error {
		w := c.windows[binary.BigEndian.Uint16(key)]
		series, tail := string(key[2:len(key)-tailOfStamp]), key[len(key)-tailOfStamp:]
		if series != w.series {
			c.crowded(w)
			w.series, w.calls, w.first = series, w.calls[:0], 0
		}
		w.come(stamp{at: number(tail, 0), file: int(number(tail, 1)), line: number(tail, 2)})
		if w.worst != nil && int64(len(w.calls)-w.first) <= w.limit.N {
			c.crowded(w)
		}
		return nil
	})
	c.stamps.close()
	for _, w := range c.windows {
		c.crowded(w)
	}
	return err
}

// come adds the next call to the window that ends with it.
func (w *windows) come(s stamp) {
	for w.first < len(w.calls) && s.at-w.calls[w.first].at >= w.limit.Window.Microseconds() {
		w.first++
	}
	if w.first > 1024 && w.first > len(w.calls)/2 {
		w.calls, w.first = append(w.calls[:0], w.calls[w.first:]...), 0
	}
	w.calls = append(w.calls, s)
	n := int64(len(w.calls) - w.first)
	w.fullest.Calls++
	if n > w.fullest.Most {
		since := time.UnixMicro(w.calls[w.first].at).UTC()
		w.fullest.Most, w.fullest.Since = n, &since
		w.fullest.Gateway, w.fullest.Of, _ = strings.Cut(strings.TrimSuffix(w.series, "\x00"), "\x00")
	}
	if n <= w.limit.N {
		return
	}
	w.fullest.Over++
	if w.worst == nil {
		w.worst = &crowd{}
	}
	w.worst.over++
	if n > w.worst.most {
		w.worst.most, w.worst.first, w.worst.last = n, w.calls[w.first], s
	}
}

// crowded reports a period that is over.
func (c *checker) crowded(w *windows) {
	b := w.worst
	if b == nil {
		return
	}
	w.worst = nil
	of, with, _ := strings.Cut(strings.TrimSuffix(w.series, "\x00"), "\x00")
	text := fmt.Sprintf("%d calls within %s from %s, %d over %s", b.most, w.limit.Window, moment(b.first.at), b.most-w.limit.N, w.limit)
	if w.limit.By != "" && w.limit.Only == "" {
		text += fmt.Sprintf(" of %q", with)
	}
	if b.over > 1 {
		text += fmt.Sprintf("; %d calls came while the window was full", b.over)
	}
	c.found(Finding{Kind: Window, Gateway: of, Text: text, Where: []Place{c.place(b.first.file, b.first.line), c.place(b.last.file, b.last.line)}})
}

func fullestOf(all []*windows) []*Fullest {
	list := make([]*Fullest, len(all))
	for i, w := range all {
		list[i] = &w.fullest
	}
	return list
}

// Limit allows N calls in every window (t-Window, t].
type Limit struct {
	Gateway string // applies only to this gateway; empty: to each one individually
	N       int64
	Window  time.Duration // whole microseconds
	// By is what calls counted together have in common: path, or header:NAME. Empty: all are counted together.
	By string
	// Only is the only path or value whose calls are counted. Empty: each has its own limit.
	Only string
}

const (
	byPath   = "path"
	byHeader = "header:"
)

var (
	units   = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	gateway = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
)

// ParseLimit parses 100/s, 5000/m or 300/10s; path=25/s or header:Stripe-Account=5/s, for the calls to each
// path or with each value; path:/v1/refunds=5/s or header:Stripe-Account:acct_1=5/s, for those of one; each
// optionally followed by @GATEWAY.
func ParseLimit(text string) (Limit, error) {
	bad := func(what string) (Limit, error) { return Limit{}, fmt.Errorf("%q is not a limit: %s", text, what) }
	by, rest := "", text
	if i := strings.LastIndex(text, "="); i >= 0 {
		by, rest = text[:i], text[i+1:]
	}
	rest, of, at := strings.Cut(rest, "@")
	if at && !gateway.MatchString(of) {
		return bad("name a gateway behind the @, like 100/s@stripe")
	}
	count, per, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(count, 10, 64)
	window, isUnit := units[per]
	if !isUnit {
		var wrong error
		if window, wrong = time.ParseDuration(per); wrong != nil {
			err = wrong
		}
	}
	if err != nil || n < 1 || window < time.Microsecond || window%time.Microsecond != 0 {
		return bad("write it like 100/s, 5000/m or 300/10s, with whole microseconds")
	}
	l := Limit{Gateway: of, N: n, Window: window, By: by}
	switch path, isPath := strings.CutPrefix(by, byPath+":"); {
	case by == "" && rest != text && strings.HasPrefix(text, "="):
		return bad("write what it counts by before the =")
	case by == "", by == byPath:
	case isPath && path != "":
		l.By, l.Only = byPath, path
	case strings.HasPrefix(by, byHeader) && len(by) > len(byHeader):
		name, value, _ := strings.Cut(strings.TrimPrefix(by, byHeader), ":")
		l.By, l.Only = byHeader+name, value
	default:
		return bad("calls are counted by path, path:/v1/refunds, header:NAME or header:NAME:VALUE")
	}
	return l, nil
}

// String returns the form that ParseLimit parses.
func (l Limit) String() string {
	text := fmt.Sprintf("%d/%s", l.N, l.Window)
	for unit, window := range units {
		if l.Window == window {
			text = fmt.Sprintf("%d/%s", l.N, unit)
		}
	}
	if l.By != "" {
		by := l.By
		if l.Only != "" {
			by += ":" + l.Only
		}
		text = by + "=" + text
	}
	if l.Gateway != "" {
		text += "@" + l.Gateway
	}
	return text
}

// of returns the call's value of what the limit counts by.
func (l Limit) of(c call) string {
	if name, is := strings.CutPrefix(l.By, byHeader); is {
		for n, v := range c.headers {
			if strings.EqualFold(n, name) {
				return v
			}
		}
		return ""
	}
	if l.By == byPath {
		return c.path
	}
	return ""
}

// counts reports whether the limit counts a call, and in which group.
func (l Limit) counts(c call) (with string, is bool) {
	if l.Gateway != "" && l.Gateway != c.gateway {
		return "", false
	}
	with = l.of(c)
	return with, l.Only == "" || l.Only == with
}
