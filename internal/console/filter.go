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

// filter is which dead letters are meant, as typed and as understood.
type filter struct {
	Reasons                         []job.Reason
	Batch, IDs, Match, Since, Until string
	Lane, Route                     string

	means deadletter.Filter
}

// parseFilter reads a filter from a query or a form. An empty field chooses nothing.
func parseFilter(q url.Values, now time.Time) (f filter, err error) {
	text := func(field string) string { return strings.TrimSpace(q.Get(field)) }
	f = filter{Batch: text("batch"), IDs: text("id"), Lane: text("lane"), Route: text("route"), Match: text("match"), Since: text("since"), Until: text("until")}
	reasons := slices.DeleteFunc(slices.Clone(q["reason"]), func(r string) bool { return r == "" })
	f.means, err = desk.ParseFilter(url.Values{"reason": reasons, "batch": {f.Batch}, "lane": {f.Lane}, "route": {f.Route}, "id": strings.Fields(f.IDs), "match": {f.Match}, "since": {f.Since}, "until": {f.Until}}, now,
		func(field string) string { return field })
	f.Reasons = f.means.Reasons
	return f, err
}

// Any says that something is filtered out.
func (f filter) Any() bool { return desk.FilterText(f.means) != "" }

// Typed says that a person chose something. The moment up to which a preview counts is nobody's choice.
func (f filter) Typed() bool {
	return len(f.Reasons) > 0 || f.Batch+f.IDs+f.Lane+f.Route+f.Match+f.Since+f.Until != ""
}

// query is the filter as it stands in an address, with times that stay what they are.
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
