package job

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Moment formats a time for people, in UTC with a trailing Z. Every time printed for people is formatted by
// Moment or Clock.
func Moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Clock formats a time in its own zone, with the zone's name: for a time that somebody has typed, or a clock of
// this machine. Seconds are left out if they are zero.
func Clock(t time.Time) string {
	if t.Second() == 0 {
		return t.Format("2006-01-02 15:04 MST")
	}
	return t.Format(time.DateTime + " MST")
}

// ClockTime is Clock without the date.
func ClockTime(t time.Time) string { return t.Format(time.TimeOnly + " MST") }

const durationHint = "write a number with a unit ns, us, ms, s, m, h or d, like 500ms, 30s, 1h30m or 30d"

// Day is a day of 24 hours.
const Day = 24 * time.Hour

var durationPart = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(ns|us|µs|μs|ms|s|m|h|d)`)

// ReadDuration parses Go durations, plus d for a day of 24 hours: 500ms, 1h30m, 30d, 1d12h. 0 needs no unit. If
// text is invalid, rule completes the message: it follows the text there.
func ReadDuration(text string) (total time.Duration, rule string) {
	if text == "0" {
		return 0, ""
	}
	if strings.HasPrefix(text, "-") {
		return 0, "is negative: " + durationHint
	}
	rest := text
	for more := true; more; more = rest != "" {
		m := durationPart.FindStringSubmatch(rest)
		if m == nil {
			return 0, "is not a duration: " + durationHint
		}
		part, err := parsePart(m[1], m[2])
		if err != nil || total > math.MaxInt64-part {
			return 0, "is too long: at most 106751d, which is 292 years, can be kept"
		}
		total, rest = total+part, rest[len(m[0]):]
	}
	return total, ""
}

func parsePart(number, unit string) (time.Duration, error) {
	if unit != "d" {
		return time.ParseDuration(number + unit)
	}
	if days, err := strconv.ParseInt(number, 10, 64); err == nil {
		if days > math.MaxInt64/int64(Day) {
			return 0, errors.New("overflow")
		}
		return time.Duration(days) * Day, nil
	}
	days, err := strconv.ParseFloat(number, 64)
	if err != nil || days*float64(Day) >= math.MaxInt64 {
		return 0, errors.New("overflow")
	}
	return time.Duration(days * float64(Day)), nil
}

// FormatDuration returns the duration in the largest unit that needs no fraction: 30d, 90m, 10ms.
func FormatDuration(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"d", Day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}}
	for _, u := range units {
		if d != 0 && d%u.size == 0 {
			return strconv.FormatInt(int64(d/u.size), 10) + u.name
		}
	}
	return d.String()
}
