package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limit allows at most N units in every window of the given length, wherever that window begins.
type Limit struct {
	// N is the number of units; a call takes its job's cost. 1 to 2^46.
	N int64
	// Window is a whole number of microseconds, at least 1.
	Window time.Duration
}

// maxCount is what a count may be at most: far above any use, and exact in Redis's scripts.
const maxCount = 1 << 46

const limitHint = "write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s"

// ParseLimit reads a limit, N/unit: 100/s, 5000/m, 10000/d, 300/10s, 1/10ms.
func ParseLimit(text string) (Limit, error) {
	bad := fmt.Errorf("%q is not a limit: %s", text, limitHint)
	number, unit, found := strings.Cut(strings.TrimSpace(text), "/")
	if !found || !decimal(number) {
		return Limit{}, bad
	}
	if unit == "s" || unit == "m" || unit == "h" || unit == "d" {
		unit = "1" + unit
	}
	window, err := ParseDuration(unit)
	if err != nil {
		return Limit{}, bad
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > maxCount {
		return Limit{}, fmt.Errorf("%q allows too few or too many calls: give a number from 1 to %d", text, int64(maxCount))
	}
	if window < time.Microsecond || window%time.Microsecond != 0 {
		return Limit{}, fmt.Errorf("%q has too short a window: give one of at least 1us, in whole microseconds", text)
	}
	return Limit{N: n, Window: window}, nil
}

// String returns the limit as a person writes it: 100/s, 300/10s, 1/10ms.
func (l Limit) String() string {
	window := FormatDuration(l.Window)
	if len(window) == 2 && window[0] == '1' {
		window = window[1:]
	}
	return strconv.FormatInt(l.N, 10) + "/" + window
}

// MarshalText returns String, so that JSON shows a limit as a person writes it.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText is ParseLimit, into l.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}

// decimal reports that text is made of digits alone, of which there is one at least.
func decimal(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
