package console

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// filter is which dead letters are meant, as typed and as understood.
type filter struct {
	Reasons                         []job.Reason
	Batch, IDs, Match, Since, Until string

	means deadletter.Filter
}

// parseFilter reads a filter from a query or a form. An empty field chooses nothing.
func parseFilter(q url.Values, now time.Time) (filter, error) {
	text := func(field string) string { return strings.TrimSpace(q.Get(field)) }
	f := filter{Batch: text("batch"), IDs: text("id"), Match: text("match"), Since: text("since"), Until: text("until")}
	f.means = deadletter.Filter{Batch: f.Batch, IDs: strings.Fields(f.IDs)}
	for _, name := range q["reason"] {
		if name == "" {
			continue
		}
		r := job.Reason(name)
		if !slices.Contains(job.Reasons(), r) {
			return f, wrong("no job is parked for the reason "+strconv.Quote(name), "choose one of the list")
		}
		f.Reasons = append(f.Reasons, r)
	}
	f.means.Reasons = f.Reasons
	var err error
	if f.means.Since, err = moment(f.Since, now); err != nil {
		return f, err
	}
	if f.means.Until, err = moment(f.Until, now); err != nil {
		return f, err
	}
	if !f.means.Since.IsZero() && !f.means.Until.IsZero() && !f.means.Until.After(f.means.Since) {
		return f, wrong("the second time is not later than the first, so no job is meant", "let the second be later, or leave it out")
	}
	if f.Match != "" {
		if f.means.Match, err = regexp.Compile(f.Match); err != nil {
			return f, wrong("the pattern for errors can't be read: "+err.Error(), `put \ before a character like ( or [ that stands for itself`)
		}
	}
	return f, nil
}

// moment reads a time. What has no sign and is a duration means so long ago.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := producer.ParseTime(text, now); err == nil {
		return t, nil
	}
	t, err := producer.ParseTime("-"+text, now)
	if err != nil {
		return t, wrong(strconv.Quote(text)+" is not a time", "write 24h or 2d for so long ago, 2026-11-30, 2026-11-30 18:00 or 2026-11-30T18:00:00Z; without a zone it is UTC")
	}
	return t, nil
}

// Any says that something is filtered out.
func (f filter) Any() bool { return f.text() != "" }

// Typed says that a person chose something. The moment up to which a preview counts is nobody's choice.
func (f filter) Typed() bool {
	return len(f.Reasons) > 0 || f.Batch+f.IDs+f.Match+f.Since+f.Until != ""
}

// query is the filter as it stands in an address, with times that stay what they are.
func (f filter) query() url.Values {
	q := url.Values{}
	set := func(field, value string) {
		if value != "" {
			q.Set(field, value)
		}
	}
	for _, r := range f.Reasons {
		q.Add("reason", string(r))
	}
	set("batch", f.Batch)
	set("id", f.IDs)
	set("match", f.Match)
	set("since", stamp(f.means.Since))
	set("until", stamp(f.means.Until))
	return q
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// text is the filter as flags of the command line that choose the same jobs, as the trail has them.
func (f filter) text() string {
	var parts []string
	add := func(flag, value string) {
		if value != "" {
			parts = append(parts, "--"+flag+" "+value)
		}
	}
	quoted := func(text string) string {
		if text == "" {
			return ""
		}
		return strconv.Quote(text)
	}
	for _, r := range f.Reasons {
		add("reason", string(r))
	}
	add("batch", quoted(f.Batch))
	add("since", stamp(f.means.Since))
	add("until", stamp(f.means.Until))
	for _, id := range f.means.IDs {
		add("id", id)
	}
	add("match", quoted(f.Match))
	return strings.Join(parts, " ")
}

// field is a hidden field of a form.
type field struct{ Name, Value string }

func fields(q url.Values) []field {
	var all []field
	for name, values := range q {
		for _, v := range values {
			all = append(all, field{name, v})
		}
	}
	slices.SortFunc(all, func(a, b field) int { return strings.Compare(a.Name+" "+a.Value, b.Name+" "+b.Value) })
	return all
}
