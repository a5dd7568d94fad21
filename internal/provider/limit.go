package provider

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limit allows N calls in every window (t-Window, t].
type Limit struct {
	N      int
	Window time.Duration
	// By is what calls must have in common to be counted together: ByPath, or ByHeader and the header's name. Empty: all calls are counted together.
	By string
}

// What calls of a limit may have in common. A missing header counts as an empty one.
const (
	ByPath   = "path"
	ByHeader = "header:"
)

// of returns a request's value of what a limit's calls have in common.
func of(r *http.Request, by string) string {
	if name, ok := strings.CutPrefix(by, ByHeader); ok {
		return r.Header.Get(name)
	}
	return r.URL.Path
}

// commons returns these values of a request, by the limits' By; nil if no limit has one.
func commons(r *http.Request, limits []Limit) (all map[string]string) {
	for _, l := range limits {
		if l.By == "" {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[l.By] = of(r, l.By)
	}
	return all
}

var units = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// ParseLimitBy reads what the calls of a limit have in common, and the limit: path=25/s, header:Stripe-Account=5/s.
func ParseLimitBy(s string) (Limit, error) {
	by, limit, ok := strings.Cut(s, "=")
	if !ok {
		return Limit{}, fmt.Errorf("%q is not a limit by something: write it like path=25/s or header:Stripe-Account=5/s", s)
	}
	return ParseLimit(limit + " by " + by)
}

// ParseLimit reads N/unit: 100/s, 5000/m, 300/10s, 1/10ms; and behind it, by path or by header:NAME.
func ParseLimit(s string) (Limit, error) {
	s, by, _ := strings.Cut(s, " by ")
	if name, header := strings.CutPrefix(by, ByHeader); by != "" && by != ByPath && (!header || name == "") {
		return Limit{}, fmt.Errorf("calls can't be counted by %q: write path, or header: and a header's name", by)
	}
	bad := fmt.Errorf("%q is not a limit: write it like 100/s, 5000/m or 300/10s", s)
	count, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 {
		return Limit{}, bad
	}
	window, isUnit := units[per]
	if !isUnit {
		if window, err = time.ParseDuration(per); err != nil || window <= 0 {
			return Limit{}, bad
		}
	}
	return Limit{N: n, Window: window, By: by}, nil
}

// String writes the limit as ParseLimit reads it.
func (l Limit) String() string {
	if l.By != "" {
		by := l.By
		l.By = ""
		return l.String() + " by " + by
	}
	for unit, window := range units {
		if l.Window == window {
			return fmt.Sprintf("%d/%s", l.N, unit)
		}
	}
	return fmt.Sprintf("%d/%s", l.N, l.Window)
}

// rate is the limit in calls a second.
func (l Limit) rate() float64 { return float64(l.N) / l.Window.Seconds() }

// place returns the index of t in sorted times, after equal ones. It searches from the end, since arrivals come nearly in order.
func place(times []int64, t int64) int {
	i := len(times)
	for i > 0 && times[i-1] > t {
		i--
	}
	return i
}

// fits reports whether every window has at most N calls with one more call at t, which gets the index i. Only rows of
// N+1 calls that include t can be too close together; for calls in order that is one row.
func (l Limit) fits(times []int64, i int, t int64) bool {
	at := func(j int) int64 { // as if t were among them
		switch {
		case j < i:
			return times[j]
		case j == i:
			return t
		}
		return times[j-1]
	}
	for first := max(i-l.N, 0); first <= i && first+l.N <= len(times); first++ {
		if at(first+l.N)-at(first) < int64(l.Window) {
			return false
		}
	}
	return true
}

// wait returns how long after t the next call would fit, if nothing else came.
func (l Limit) wait(times []int64, t int64) time.Duration {
	if len(times) < l.N {
		return 0
	}
	return time.Duration(max(times[len(times)-l.N]+int64(l.Window)-t, 0))
}

// most returns the largest number of times in any window.
func (l Limit) most(times []int64) int {
	best, from := 0, 0
	for i, t := range times {
		for t-times[from] >= int64(l.Window) {
			from++
		}
		best = max(best, i-from+1)
	}
	return best
}
