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

// ParseFilter reads which parked jobs are meant, from the flags of a command or the fields of a form: reason and id as often as need be, batch, lane, route, since,
// until and match. Where one of the last six is empty it chooses nothing. A time without a sign that is a duration means so long ago, from now. name is how errors call a field.
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

// ParseAgo reads a time; what has no sign and is a duration means so long before now. Empty is zero. name is how errors call the field.
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

// ParseBy reads the time by which a batch is to be through: +2h, or a moment, in UTC unless it says otherwise.
func ParseBy(text string, now time.Time) (time.Time, error) {
	t, err := producer.ParseTime(text, now.UTC())
	if err != nil {
		return t, usage(`write +2h, 2026-11-30, "2026-11-30 18:00" or 2026-11-30T18:00:00Z; without a zone it is UTC`, "%q is not a time", text)
	}
	return t, nil
}

// meantReason says which reason was meant: one whose words for people were typed, or whose name is much the same.
func meantReason(text string) string {
	if strings.NewReplacer("_", " ", "-", " ").Replace(text) == job.ForRoom {
		text = string(job.Rejected)
	}
	return job.DidYouMean(text, "", job.Texts(job.Reasons()))
}

// FilterValues is the filter as ParseFilter reads it, with times that stay what they are. ParseFilter reads no limit.
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

// Stamp is a moment as requests and filters have it; empty where it is zero.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// flag is a flag of the command line for a shell. Batches and patterns are quoted in any case.
func flag(name, value string) string {
	if (name == "batch" || name == "match") && !strings.ContainsAny(value, "$`!") { // in double quotes a shell reads these
		return "--" + name + " " + strconv.Quote(value)
	}
	return "--" + name + " " + dispatch.ShellWord(value)
}

// FilterText is the filter as flags of the command line that choose the same jobs later on, without -g; empty if it means all. The trail has it.
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
