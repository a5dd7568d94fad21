package desk

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// ParseFilter parses which parked jobs are meant, from command flags or form fields: any number of reason and
// id, and batch, lane, route, since, until and match, which select nothing if empty. A time that is an unsigned
// duration means that long before now. name returns a field's name for errors.
func ParseFilter(q url.Values, now time.Time, name func(field string) string) (f deadletter.Filter, err error) {
	for _, one := range q["reason"] {
		if !slices.Contains(job.Reasons(), job.Reason(one)) {
			return f, usage("the reasons are "+strings.Join(job.Texts(job.Reasons()), ", "), "%s %q is not a reason for which a job is parked%s", name("reason"), one, meantReason(one))
		}
		f.Reasons = append(f.Reasons, job.Reason(one))
	}
	if f.IDs = q["id"]; slices.Contains(f.IDs, "") {
		return f, usage("name a job, or leave it out for all", "%s is empty", name("id"))
	}
	f.Batch, f.Lane, f.Route = q.Get("batch"), q.Get("lane"), q.Get("route")
	if f.Since, err = ParseAgo(q.Get("since"), now, name("since")); err != nil {
		return f, err
	}
	if f.Until, err = ParseAgo(q.Get("until"), now, name("until")); err != nil {
		return f, err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Until.After(f.Since) {
		return f, usage("let "+name("until")+" be later than "+name("since"), "no job was parked at or after %s and before %s",
			job.Clock(f.Since), job.Clock(f.Until))
	}
	if text := q.Get("match"); text != "" {
		if f.Match, err = regexp.Compile(text); err != nil {
			return f, usage(`put \ before a character like ( or [ that stands for itself, and 'quotes' around it all`, "%s: %v", name("match"), err)
		}
	}
	return f, nil
}

// ParseAgo parses a time; an unsigned duration means that long before now. Empty is zero. name is the field's
// name for errors.
func ParseAgo(text string, now time.Time, name string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := producer.ParseTime(text, now); err == nil {
		return t, nil
	}
	t, err := producer.ParseTime("-"+text, now)
	if err != nil {
		return t, usage(`write 24h or 2d for so long ago, 2026-11-30, "2026-11-30 18:00" or 2026-11-30T18:00:00Z; without a zone it is in `+now.Format("MST"),
			"%s %q is not a time", name, text)
	}
	return t, nil
}

// ParseBy parses the time by which a batch should be finished: +2h, or a time, in UTC unless it says otherwise.
func ParseBy(text string, now time.Time) (time.Time, error) {
	t, err := producer.ParseTime(text, now.UTC())
	if err != nil {
		return t, usage(`write +2h, 2026-11-30, "2026-11-30 18:00" or 2026-11-30T18:00:00Z; without a zone it is UTC`, "%q is not a time", text)
	}
	return t, nil
}

// meantReason returns the reason that text probably means: one whose words for people were typed, or with a
// similar name.
func meantReason(text string) string {
	if strings.NewReplacer("_", " ", "-", " ").Replace(text) == job.ForRoom {
		text = string(job.Rejected)
	}
	return job.DidYouMean(text, "", job.Texts(job.Reasons()))
}

// FilterValues returns the filter in the form that ParseFilter reads, with absolute times. Limit is not
// included.
func FilterValues(f deadletter.Filter) url.Values {
	q := url.Values{}
	add := func(field, value string) {
		if value != "" {
			q.Add(field, value)
		}
	}
	for _, r := range f.Reasons {
		add("reason", string(r))
	}
	add("batch", f.Batch)
	add("lane", f.Lane)
	add("route", f.Route)
	add("since", Stamp(f.Since))
	add("until", Stamp(f.Until))
	for _, id := range f.IDs {
		add("id", id)
	}
	if f.Match != nil {
		add("match", f.Match.String())
	}
	if f.Limit > 0 {
		add("limit", strconv.Itoa(f.Limit))
	}
	return q
}

// Stamp formats a time for requests and filters; empty if it is zero.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// flag formats a command-line flag for a shell. Batches and patterns are always quoted.
func flag(name, value string) string {
	if (name == "batch" || name == "match") && !strings.ContainsAny(value, "$`!") { // a shell interprets these in double quotes
		return "--" + name + " " + strconv.Quote(value)
	}
	return "--" + name + " " + dispatch.ShellWord(value)
}

// FilterText returns the filter as command-line flags that select the same jobs later, without -g; empty if it
// selects all. It is written to the audit trail.
func FilterText(f deadletter.Filter) string {
	q := FilterValues(f)
	var parts []string
	for _, field := range []string{"reason", "batch", "lane", "route", "since", "until", "id", "match", "limit"} {
		for _, value := range q[field] {
			parts = append(parts, flag(field, value))
		}
	}
	return strings.Join(parts, " ")
}
