package job

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	units "github.com/docker/go-units"
)

// Limit allows at most N units in every window of the given length, wherever that window begins.
type Limit struct {
	// N is the number of units, 1 to 2^46. A call takes its job's cost.
	N int64
	// Window is a whole number of microseconds, from 1 µs to 365 days.
	Window time.Duration
}

// PerSecond returns the long-run rate that the limit allows, in units a second.
func (l Limit) PerSecond() float64 { return float64(l.N) / l.Window.Seconds() }

// PerSecond returns the long-run rate that all limits together allow, in units a second. Without limits it is
// infinite.
func PerSecond(limits []Limit) float64 {
	rate := math.Inf(1)
	for _, l := range limits {
		rate = min(rate, l.PerSecond())
	}
	return rate
}

// MaxCount is the largest count: far above any use, and exact in Redis's scripts.
const MaxCount = 1 << 46

// MaxWindow is the longest window that the pacer supports.
const MaxWindow = 365 * Day

const limitHint = "write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s"

// ParseLimit parses a limit, N/unit: 100/s, 5000/m, 10000/d, 300/10s, 1/10ms.
func ParseLimit(text string) (Limit, error) {
	l, rule := ReadLimit(text)
	if rule != "" {
		return Limit{}, fmt.Errorf("%q %s", text, rule)
	}
	return l, nil
}

// ReadLimit is like ParseLimit, but instead of an error it returns the rule that the text breaks, which follows
// the text in a message.
func ReadLimit(text string) (l Limit, rule string) {
	number, unit, found := strings.Cut(text, "/")
	if unit == "s" || unit == "m" || unit == "h" || unit == "d" {
		unit = "1" + unit
	}
	window, rule := ReadDuration(unit)
	switch {
	case !found || rule != "":
		return Limit{}, "is not a limit: " + limitHint
	case !Digits(number):
		return Limit{}, "is not a limit: " + fractionHint(number, window)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil || n > MaxCount:
		return Limit{}, "allows too many calls: give at most " + strconv.FormatInt(MaxCount, 10)
	case n == 0:
		return Limit{}, "lets no call through: give at least 1; to stop a gateway there is dispatcher pause"
	case window < time.Microsecond || window%time.Microsecond != 0:
		return Limit{}, "has a window that can't be kept: give at least 1us, in whole microseconds"
	case window > MaxWindow:
		return Limit{}, "has a window of more than a year: give at most 365d"
	}
	return Limit{N: n, Window: window}, ""
}

// fractionHint returns how to write a fractional number of calls as a limit, if number is one: 1.5/s is 3/2s.
func fractionHint(number string, window time.Duration) string {
	whole, fraction, found := strings.Cut(number, ".")
	if !found || !Digits(whole) || !Digits(fraction) || len(number) > 9 {
		return limitHint
	}
	rate, _ := new(big.Rat).SetString(number)
	n, parts := rate.Num().Int64(), rate.Denom().Int64()
	if n == 0 || window > MaxWindow/time.Duration(parts) {
		return limitHint
	}
	return fmt.Sprintf("calls are whole: write %s", Limit{N: n, Window: window * time.Duration(parts)})
}

// String returns the limit as it is configured: 100/s, 300/10s, 1/10ms.
func (l Limit) String() string {
	window := FormatDuration(l.Window)
	if len(window) == 2 && window[0] == '1' {
		window = window[1:]
	}
	return strconv.FormatInt(l.N, 10) + "/" + window
}

// MarshalText returns String, so that JSON shows a limit as it is configured.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText sets l to the limit that ParseLimit returns.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}

// Digits reports whether text consists of one or more digits.
func Digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// ParkedBound limits the parked jobs of a gateway, over all reasons. At the limit, no new job is parked.
type ParkedBound struct {
	Jobs  int64 // 0 = any number
	Bytes int64 // of payloads, as stored; 0 = any number
}

// Bounds reports whether there is a limit.
func (b ParkedBound) Bounds() bool { return b.Jobs > 0 || b.Bytes > 0 }

// Reached returns what is parked when a limit is reached, and the configuration key of that limit: "5000000
// jobs are parked, the most that parked.most allows".
func (b ParkedBound) Reached() (text, key string) {
	if b.Jobs > 0 {
		return fmt.Sprintf("%d jobs are parked, the most that parked.most allows", b.Jobs), "parked.most"
	}
	return fmt.Sprintf("with one more the payloads of the parked jobs would come to more than %s, which parked.bytes allows", units.BytesSize(float64(b.Bytes))), "parked.bytes"
}
