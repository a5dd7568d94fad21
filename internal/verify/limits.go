package verify

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

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
