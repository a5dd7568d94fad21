package job

import "time"

// Moment is a moment in text for people: in UTC, which the Z at its end says. Every time that is printed for people goes through Moment or Clock.
func Moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Clock is a moment as the clocks of its zone show it, with the zone's name: what somebody has typed, or what a clock of this machine says. Seconds are
// left out where there are none.
func Clock(t time.Time) string {
	if t.Second() == 0 {
		return t.Format("2006-01-02 15:04 MST")
	}
	return t.Format(time.DateTime + " MST")
}

// ClockTime is Clock without its day.
func ClockTime(t time.Time) string { return t.Format(time.TimeOnly + " MST") }
