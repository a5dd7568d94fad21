package outcome

import (
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// usualMax is the longest pause that an answer can ask for, unless the table sets another: a wrong header must
// not stop a gateway for days.
const usualMax = 15 * time.Minute

// ages is the longest wait that can be represented here.
const ages = 100 * 365 * 24 * time.Hour

var decimal = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?$`)

// HoldHint returns how long an answer's headers ask to wait, at most most, and whether they ask. Retry-After
// precedes RateLimit (with nothing remaining), which precedes X-RateLimit-Reset. The latter counts with a 429,
// or if nothing remains. Dates are measured against the answer's Date header, or received without one.
// Malformed headers are ignored. A time in the past is 0.
func HoldHint(h map[string][]string, status int, received time.Time, most time.Duration) (time.Duration, bool) {
	d, ok := hint(h, status, received)
	return min(d, most), ok
}

func hint(header http.Header, status int, received time.Time) (time.Duration, bool) {
	if d, ok := retryAfter(header, received); ok {
		return d, true
	}
	if d, ok := rateLimit(header); ok {
		return d, true
	}
	return reset(header, status, received)
}

// retryAfter parses retry-after-ms and Retry-After. The longest of several values counts.
func retryAfter(h http.Header, received time.Time) (time.Duration, bool) {
	best, found := time.Duration(0), false
	for _, v := range h.Values("Retry-After-Ms") {
		if ms, ok := number(v); ok {
			best, found = max(best, bounded(ms/1000)), true
		}
	}
	if found {
		return best, true
	}
	for _, v := range h.Values("Retry-After") {
		if d, ok := retryAfterValue(v, h, received); ok {
			best, found = max(best, d), true
		}
	}
	return best, found
}

// retryAfterValue parses seconds, whole or not (rounded up), or one of HTTP's three date formats. A number is
// never a date.
func retryAfterValue(v string, h http.Header, received time.Time) (time.Duration, bool) {
	if s, ok := number(v); ok {
		return bounded(math.Ceil(s)), true
	}
	at, err := http.ParseTime(strings.TrimSpace(v))
	if err != nil {
		return 0, false
	}
	return until(at, h, received)
}

// rateLimit parses RateLimit as in the IETF draft (`"burst";r=0;t=30`) and in its older versions (`limit=100,
// remaining=0, reset=30`). Only a limit with nothing remaining asks to wait; the longest of several counts.
func rateLimit(h http.Header) (time.Duration, bool) {
	best, found := time.Duration(0), false
	note := func(left, wait string) {
		r, okLeft := number(left)
		t, okWait := number(wait)
		if okLeft && okWait && r <= 0 {
			best, found = max(best, bounded(math.Ceil(t))), true
		}
	}
	for _, line := range h.Values("Ratelimit") {
		whole := map[string]string{}
		for _, item := range splitQuoted(line, ',') {
			p := params(item)
			note(p["r"], p["t"])
			if name, value, ok := strings.Cut(item, "="); ok && len(splitQuoted(item, ';')) == 1 {
				whole[strings.TrimSpace(name)] = strings.TrimSpace(value)
			}
		}
		note(whole["remaining"], whole["reset"])
	}
	return best, found
}

// params returns the parameters of one item of a structured-field list.
func params(item string) map[string]string {
	p := map[string]string{}
	for _, part := range splitQuoted(item, ';')[1:] {
		if name, value, ok := strings.Cut(part, "="); ok {
			p[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return p
}

// splitQuoted splits at sep outside double quotes.
func splitQuoted(s string, sep byte) []string {
	var parts []string
	quoted, from := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quoted:
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			parts, from = append(parts, s[from:i]), i+1
		}
	}
	return append(parts, s[from:])
}

// reset parses X-RateLimit-Reset, RateLimit-Reset and X-RateLimit-Reset-After: seconds, a time as Unix seconds or
// milliseconds, one of HTTP's dates, or such numbers for several windows, with commas between.
func reset(h http.Header, status int, received time.Time) (time.Duration, bool) {
	left := leftOf(h)
	if status != http.StatusTooManyRequests && !slices.ContainsFunc(left, func(n float64) bool { return n <= 0 }) {
		return 0, false
	}
	for _, name := range []string{"X-Ratelimit-Reset-After", "Ratelimit-Reset", "X-Ratelimit-Reset", "X-Rate-Limit-Reset"} {
		v := strings.TrimSpace(h.Get(name))
		if at, err := http.ParseTime(v); err == nil {
			return until(at, h, received)
		}
		if all, ok := numbers(v); ok {
			return windows(all, left, h, received)
		}
	}
	return 0, false
}

// windows returns the longest wait for a window that is used up. If none is said to be, it returns the shortest
// wait of all.
func windows(resets, left []float64, h http.Header, received time.Time) (time.Duration, bool) {
	most, least, found, usedUp := time.Duration(0), ages, false, false
	for i, v := range resets {
		d, ok := resetAt(v, h, received)
		if !ok {
			continue
		}
		found, least = true, min(least, d)
		if len(left) == len(resets) && left[i] <= 0 {
			usedUp, most = true, max(most, d)
		}
	}
	if usedUp {
		return most, true
	}
	return least, found
}

func resetAt(v float64, h http.Header, received time.Time) (time.Duration, bool) {
	switch {
	case v > 1e12:
		return until(time.UnixMilli(int64(min(v, 1e15))), h, received)
	case v > 1e9:
		return until(time.UnixMilli(int64(v*1000)), h, received)
	}
	return bounded(math.Ceil(v)), true
}

// leftOf returns how many calls are left, in each window; nil if unknown.
func leftOf(h http.Header) []float64 {
	for _, name := range []string{"X-Ratelimit-Remaining", "Ratelimit-Remaining", "X-Rate-Limit-Remaining"} {
		if all, ok := numbers(h.Get(name)); ok {
			return all
		}
	}
	return nil
}

// numbers parses numbers with commas between. ok is false if one is malformed.
func numbers(text string) (all []float64, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		n, ok := number(part)
		if !ok {
			return nil, false
		}
		all = append(all, n)
	}
	return all, true
}

// until returns the time from the answer's Date, or its arrival, to at. Both dates come from the same clock, so
// a wrong clock at the gateway does no harm.
func until(at time.Time, h http.Header, received time.Time) (time.Duration, bool) {
	from, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		from = received
	}
	if from.IsZero() {
		return 0, false
	}
	return max(at.Sub(from), 0), true
}

func number(v string) (float64, bool) {
	v = strings.TrimSpace(v)
	if !decimal.MatchString(v) {
		return 0, false
	}
	f, err := strconv.ParseFloat(v, 64)
	// A number out of range is still valid: a very long wait.
	return f, err == nil || math.IsInf(f, 0)
}

func bounded(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), ages.Seconds()) * float64(time.Second))
}
