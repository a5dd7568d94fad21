package outcome

import (
	"net/http"
	"testing"
	"time"

	"spillway/internal/job"
)

var received = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// headers builds a header from names and values in turn.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestHoldHint(t *testing.T) {
	t.Parallel()
	const none = -1
	for _, c := range []struct {
		name   string
		h      http.Header
		status int
		want   time.Duration
	}{
		{"nothing", headers(), 429, none},
		{"seconds", headers("Retry-After", "120"), 429, 2 * time.Minute},
		{"seconds with space", headers("Retry-After", " 5 "), 429, 5 * time.Second},
		{"zero", headers("Retry-After", "0"), 429, 0},
		{"negative", headers("Retry-After", "-5"), 429, 0},
		{"a fraction is rounded up", headers("Retry-After", "1.5"), 429, 2 * time.Second},
		{"beyond the cap", headers("Retry-After", "86400"), 429, 15 * time.Minute},
		{"beyond all numbers", headers("Retry-After", "99999999999999999999999999999"), 429, 15 * time.Minute},
		{"milliseconds", headers("retry-after-ms", "250"), 429, 250 * time.Millisecond},
		{"milliseconds beside seconds", headers("Retry-After", "1", "retry-after-ms", "523"), 429, 523 * time.Millisecond},
		{"the longest of two", headers("Retry-After", "3", "Retry-After", "9"), 429, 9 * time.Second},
		{"RFC 1123 date, their clock", headers("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT", "Date", "Sun, 06 Nov 1994 08:49:07 GMT"), 503, 30 * time.Second},
		{"RFC 850 date", headers("Retry-After", "Sunday, 06-Nov-94 08:49:37 GMT", "Date", "Sun, 06 Nov 1994 08:49:07 GMT"), 503, 30 * time.Second},
		{"asctime date", headers("Retry-After", "Sun Nov  6 08:49:37 1994", "Date", "Sun, 06 Nov 1994 08:49:07 GMT"), 503, 30 * time.Second},
		{"date without Date", headers("Retry-After", received.Add(40*time.Second).Format(http.TimeFormat)), 503, 40 * time.Second},
		{"past date", headers("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"), 503, 0},
		{"malformed", headers("Retry-After", "soon"), 429, none},
		{"a number is never a date", headers("Retry-After", "20261101"), 429, 15 * time.Minute},
		{"hex, NaN and the like", headers("Retry-After", "0x10", "Retry-After", "NaN", "Retry-After", "1e3", "Retry-After", ""), 429, none},
		{"malformed gives way", headers("Retry-After", "soon", "RateLimit", `"x";r=0;t=8`), 429, 8 * time.Second},
		{"Retry-After goes first", headers("Retry-After", "3", "RateLimit", `"x";r=0;t=8`), 429, 3 * time.Second},
		{"RateLimit with nothing left", headers("RateLimit", `"default";r=0;t=30`), 200, 30 * time.Second},
		{"RateLimit with something left", headers("RateLimit", `"default";r=5;t=30`), 429, none},
		{"RateLimit, several", headers("RateLimit", `"burst";r=9;t=1, "a,b;r=0;t=99";r=0;t=12,"c";r=0;t=4`), 429, 12 * time.Second},
		{"RateLimit, older", headers("RateLimit", `limit=100, remaining=0, reset=50`), 429, 50 * time.Second},
		{"RateLimit, broken", headers("RateLimit", `";r=0;t=`), 429, none},
		{"reset, seconds", headers("X-RateLimit-Reset", "17"), 429, 17 * time.Second},
		{"reset, epoch", headers("X-RateLimit-Reset", "1793534460"), 429, time.Minute},
		{"reset, epoch ms", headers("X-RateLimit-Reset", "1793534460000"), 429, time.Minute},
		{"reset, absurd", headers("X-RateLimit-Reset", "1e400"), 429, none},
		{"reset, far", headers("X-RateLimit-Reset", "99999999999999999999"), 429, 15 * time.Minute},
		{"reset beside a success", headers("X-RateLimit-Reset", "17", "X-RateLimit-Remaining", "3"), 200, none},
		{"reset where nothing is left", headers("X-RateLimit-Reset", "17", "X-RateLimit-Remaining", "0"), 200, 17 * time.Second},
		// GoCardless says when as a date, and Mangopay has a value for each of its windows.
		{"reset, a date", headers("RateLimit-Reset", received.Add(40*time.Second).Format(http.TimeFormat), "RateLimit-Remaining", "0"), 429, 40 * time.Second},
		{"reset, a past date", headers("RateLimit-Reset", received.Add(-time.Second).Format(http.TimeFormat)), 429, 0},
		{"reset, a date where something is left", headers("RateLimit-Reset", received.Add(40*time.Second).Format(http.TimeFormat), "RateLimit-Remaining", "7"), 200, none},
		{"resets of windows, one used up", headers("X-RateLimit-Reset", "1793534460,1793534700, 1793537000,1793620800", "X-RateLimit-Remaining", "12,0,6500,103300"), 429, 5 * time.Minute},
		{"resets of windows, two used up", headers("X-RateLimit-Reset", "60,300,3600", "X-RateLimit-Remaining", "0,0,9"), 429, 5 * time.Minute},
		{"resets of windows, none said to be used up", headers("X-RateLimit-Reset", "60,30,3600", "X-RateLimit-Remaining", "1,1,1"), 429, 30 * time.Second},
		{"resets of windows, nothing said of what is left", headers("X-RateLimit-Reset", "60,30,3600"), 429, 30 * time.Second},
		{"resets of windows, and another number of what is left", headers("X-RateLimit-Reset", "60,30,3600", "X-RateLimit-Remaining", "0,1"), 429, 30 * time.Second},
		{"resets of windows with something left", headers("X-RateLimit-Reset", "60,30", "X-RateLimit-Remaining", "1,1"), 200, none},
		{"resets of windows, one malformed", headers("X-RateLimit-Reset", "60,soon"), 429, none},
		{"RateLimit-Reset", headers("RateLimit-Reset", "6", "RateLimit-Remaining", "0"), 503, 6 * time.Second},
	} {
		got, ok := HoldHint(c.h, c.status, received, usualMax)
		if !ok {
			got = none
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func FuzzHoldHint(f *testing.F) {
	f.Add("120", `"a";r=0;t=1`, "1793534460", "Sun, 06 Nov 1994 08:49:37 GMT", 429)
	f.Add("Sun Nov  6 08:49:37 1994", "limit=1, remaining=0, reset=5", "-9", "x", 200)
	f.Add("1.5", `"\`, "99999999999999999999", "", 503)
	f.Fuzz(func(t *testing.T, after, limit, reset, date string, status int) {
		h := headers("Retry-After", after, "Retry-After-Ms", reset, "RateLimit", limit, "X-RateLimit-Reset", reset, "Date", date)
		d, ok := HoldHint(h, status, received, usualMax)
		if d < 0 || d > usualMax || !ok && d != 0 {
			t.Errorf("%v %v", d, ok)
		}
	})
}

// How long one answer can stop a gateway is for its configuration to say; whatever the header, and in whatever form.
func TestAnAnswerAsksForNoLongerAWaitThanTheTableAllows(t *testing.T) {
	t.Parallel()
	table, err := Profile("default")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, h := range []map[string][]string{headers("Retry-After", "86400"), headers("Retry-After", now.Add(24*time.Hour).Format(http.TimeFormat)),
		headers("RateLimit", `"day";r=0;t=86400`), headers("X-RateLimit-Reset", "86400")} {
		for most, want := range map[time.Duration]time.Duration{0: 15 * time.Minute, time.Minute: time.Minute, 2 * time.Hour: 2 * time.Hour, 48 * time.Hour: 24 * time.Hour} {
			in := Input{Result: job.Result{Stage: job.Answered, Status: 429, Header: h}, Received: now}
			if got := table.Holding(most).Judge(in).HoldFor; got != want {
				t.Errorf("%v, at most %s: %s, want %s", h, most, got, want)
			}
		}
	}
}
