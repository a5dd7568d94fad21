package provider

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limit allows N calls in every window (t-Window, t].
type Limit struct {
	N      int
	Window time.Duration
}

var units = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// ParseLimit reads N/unit: 100/s, 5000/m, 300/10s, 1/10ms.
func ParseLimit(s string) (Limit, error) {
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
	return Limit{N: n, Window: window}, nil
}

// String writes the limit as ParseLimit reads it.
func (l Limit) String() string {
	for unit, window := range units {
		if l.Window == window {
			return fmt.Sprintf("%d/%s", l.N, unit)
		}
	}
	return fmt.Sprintf("%d/%s", l.N, l.Window)
}

// rate is the limit in calls a second.
func (l Limit) rate() float64 { return float64(l.N) / l.Window.Seconds() }

// place returns where t goes into sorted times, after its equals. Arrivals come nearly in order: it looks from the end.
func place(times []int64, t int64) int {
	i := len(times)
	for i > 0 && times[i-1] > t {
		i--
	}
	return i
}

// fits says whether one more call at t, to be put at place i, leaves every window with at most N calls. Only runs of
// N+1 calls that t is one of can be too close together; in order of arrival that is one.
func (l Limit) fits(times []int64, i int, t int64) bool {
	at := func(j int) int64 { // as if t were in
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
