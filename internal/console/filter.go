package console

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
)

// filter selects dead letters, as typed and as parsed.
type filter struct {
	Reasons                         []job.Reason
	Batch, IDs, Match, Since, Until string
	Lane, Route                     string

	means deadletter.Filter
}

// parseFilter parses a filter from a query or form. An empty field selects nothing.
func parseFilter(q url.Values, now time.Time) (f filter, err error) {
	text := func(field string) string { return strings.TrimSpace(q.Get(field)) }
	f = filter{Batch: text("batch"), IDs: text("id"), Lane: text("lane"), Route: text("route"), Match: text("match"), Since: text("since"), Until: text("until")}
	reasons := slices.DeleteFunc(slices.Clone(q["reason"]), func(r string) bool { return r == "" })
	f.means, err = desk.ParseFilter(url.Values{"reason": reasons, "batch": {f.Batch}, "lane": {f.Lane}, "route": {f.Route}, "id": strings.Fields(f.IDs), "match": {f.Match}, "since": {f.Since}, "until": {f.Until}}, now,
		func(field string) string { return field })
	f.Reasons = f.means.Reasons
	return f, err
}

// Any reports whether anything is filtered out.
func (f filter) Any() bool { return desk.FilterText(f.means) != "" }

// Typed reports whether a person selected something. The time up to which a preview counts does not count.
func (f filter) Typed() bool {
	return len(f.Reasons) > 0 || f.Batch+f.IDs+f.Lane+f.Route+f.Match+f.Since+f.Until != ""
}

// query returns the filter for an address, with absolute times.
func (f filter) query() url.Values {
	q := desk.FilterValues(f.means)
	if ids := q["id"]; len(ids) > 0 {
		q.Set("id", strings.Join(ids, " "))
	}
	return q
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
