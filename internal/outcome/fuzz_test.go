package outcome

import (
	"math"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// plain is a decimal number by the letter: digits, perhaps a sign before and a fraction behind.
func plain(v string) (*big.Rat, bool) {
	whole, fraction, dot := strings.Cut(strings.TrimLeft(v, "+-"), ".")
	if len(v)-len(strings.TrimLeft(v, "+-")) > 1 || whole == "" || dot && fraction == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return nil, false
	}
	f, _ := strconv.ParseFloat(v, 64) // what is less than a float can tell, nobody waits for
	return new(big.Rat).SetFloat64(min(max(f, -math.MaxFloat64), math.MaxFloat64)), true
}

// wait is so many seconds, rounded up to whole ones, within the bounds of a hold.
func wait(seconds *big.Rat) time.Duration {
	if seconds.Sign() <= 0 {
		return 0
	}
	if seconds.Cmp(big.NewRat(int64(usualMax/time.Second), 1)) >= 0 {
		return usualMax
	}
	up := new(big.Int).Add(seconds.Num(), new(big.Int).Sub(seconds.Denom(), big.NewInt(1)))
	return time.Duration(up.Div(up, seconds.Denom()).Int64()) * time.Second
}

// FuzzRetryAfter: a number is seconds, a date is measured against the answer's own Date, and all else is ignored.
func FuzzRetryAfter(f *testing.F) {
	for _, after := range []string{"120", " 1.5 ", "-3", "+0.000001", "899.00000000000000001", "99999999999999999999", "1e3", "0x1p4", "٣", "Sun, 06 Nov 1994 08:49:37 GMT",
		"Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "20261101", ""} {
		f.Add(after, "Sun, 06 Nov 1994 08:49:07 GMT")
		f.Add(after, "")
	}
	f.Fuzz(func(t *testing.T, after, date string) {
		got, ok := HoldHint(headers("Retry-After", after, "Date", date), http.StatusTooManyRequests, received, usualMax)
		v, want, wantOK := strings.TrimSpace(after), time.Duration(0), false
		if seconds, number := plain(v); number {
			want, wantOK = wait(seconds), true
		} else if at, err := http.ParseTime(v); err == nil {
			from, err := http.ParseTime(date)
			if err != nil {
				from = received
			}
			want, wantOK = min(max(at.Sub(from), 0), usualMax), !from.IsZero()
		}
		if got != want && wantOK || ok != wantOK {
			t.Errorf("Retry-After %q, Date %q: %s %v, want %s %v", after, date, got, ok, want, wantOK)
		}
	})
}

// FuzzRateLimitHeader: with nothing left, a limit asks for its wait in the draft's form and in the older one, whatever else
// stands beside it; with something left it asks for nothing; and what it asks for is within bounds.
func FuzzRateLimitHeader(f *testing.F) {
	f.Add("default", int64(0), int64(30), "")
	f.Add(`a,b;r=0;t=9"\`, int64(-1), int64(0), `"x";r=0;t=99`)
	f.Add("burst", int64(5), int64(7), `";r=0;t=`)
	f.Add("", int64(0), int64(1e15), `limit=1, remaining=0, reset=4`)
	f.Fuzz(func(t *testing.T, name string, left, reset int64, beside string) {
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
		r, s := strconv.FormatInt(left, 10), strconv.FormatInt(reset, 10)
		want, wantOK := time.Duration(0), left <= 0
		if wantOK {
			want = wait(new(big.Rat).SetInt64(reset))
		}
		for _, line := range []string{quoted + ";r=" + r + ";t=" + s, quoted + "; t=" + s + "; qu=x;r=" + r, "limit=9, remaining=" + r + ", reset=" + s} {
			if got, ok := HoldHint(headers("RateLimit", line), http.StatusOK, received, usualMax); got != want || ok != wantOK {
				t.Errorf("RateLimit %s: %s %v, want %s %v", line, got, ok, want, wantOK)
			}
			got, ok := HoldHint(headers("RateLimit", beside, "RateLimit", line), http.StatusOK, received, usualMax)
			if got < want || got > usualMax || wantOK && !ok || !ok && got != 0 {
				t.Errorf("RateLimit %s, beside %q: %s %v, want at least %s", line, beside, got, ok, want)
			}
		}
	})
}
