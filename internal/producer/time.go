package producer

import (
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

const maxDays = 36500

// ParseTime parses a time as typed in a flag: RFC 3339, "2006-01-02 15:04[:05]" and "2006-01-02" (midnight) in
// the zone of now, or relative to now, as in "+90m", "+2d", "+1d12h" and "-1h". A day has 24 hours.
func ParseTime(s string, now time.Time) (time.Time, error) {
	if strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") {
		if d, ok := relative(s[1:]); ok && s[0] == '+' {
			return now.Add(d), nil
		} else if ok {
			return now.Add(-d), nil
		}
		return time.Time{}, noTime(s)
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, noTime(s)
}

// ZoneTaken says for a person how a time without a zone was interpreted: "--at is 2026-11-30 18:00 CET". It is
// empty if the text has a zone or needs none. name is the flag's name.
func ZoneTaken(name, text string, now time.Time) string {
	if _, err := time.Parse(time.RFC3339, text); err == nil || strings.ContainsAny(text, "hmsd+") {
		return ""
	}
	t, err := ParseTime(text, now)
	if err != nil {
		return ""
	}
	return name + " is " + job.Clock(t)
}

// relative parses a duration that may start with days.
func relative(s string) (time.Duration, bool) {
	var d time.Duration
	if days, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil || n > maxDays {
			return 0, false
		}
		d, s = time.Duration(n)*24*time.Hour, rest
		if s == "" {
			return d, true
		}
	}
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	more, err := time.ParseDuration(s)
	return d + more, err == nil && more <= maxDays*24*time.Hour
}

func noTime(s string) error {
	return usage(`write 2026-11-30T18:00:00Z, "2026-11-30 18:00", 2026-11-30, or from now on +90m or +2d; without a zone it is local time`, "%q is not a time", s)
}
