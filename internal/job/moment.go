package job

import "time"

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
