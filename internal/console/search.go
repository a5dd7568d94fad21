package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

type searchView struct {
	base
	desk.JobHits
	Prefix string
	More   string // address to continue; empty if everything was searched, or for a search of payloads
	// Searched says that there was a search.
	Searched bool
	// Posted is the search of payloads.
	Posted postedSearch
}

// postedSearch is a search of payloads as typed. It is sent in a form, because payload values must not be in
// addresses.
type postedSearch struct{ Prefix, Field, Value, Gateway string }

// search shows the jobs whose ids begin with a prefix. It needs the role of a viewer: a producer may read a job by
// its id, but not list the jobs of others.
func (c *Console) search(w http.ResponseWriter, r *http.Request, prefix string) error {
	if err := lacking(r, roles.View); err != nil {
		return err
	}
	v := &searchView{base: base{Title: "Jobs " + prefix + "*"}, Prefix: prefix, Searched: true}
	var err error
	if v.JobHits, err = c.desk(r.Context()).Search(r.Context(), desk.JobSearch{Prefix: prefix, After: r.URL.Query().Get("after"), Within: desk.ScanFor}); err != nil {
		return err
	}
	if v.Next != nil {
		v.More = "/jobs?" + url.Values{"id": {prefix + "*"}, "after": {*v.Next}}.Encode()
	}
	c.show(w, r, http.StatusOK, "search.html", v)
	return nil
}

// searchForm shows the form for a search of payloads.
func (c *Console) searchForm(w http.ResponseWriter, r *http.Request) error {
	c.show(w, r, http.StatusOK, "search.html", &searchView{base: base{Title: "Search"}})
	return nil
}

// searchPayloads shows the jobs with a field in their payloads.
func (c *Console) searchPayloads(w http.ResponseWriter, r *http.Request) error {
	p := postedSearch{typed(r, "id"), typed(r, "field"), typed(r, "value"), typed(r, "gateway")}
	p.Prefix = strings.TrimSuffix(p.Prefix, "*")
	v := &searchView{base: base{Title: "Search"}, Posted: p, Searched: true}
	q, d := desk.JobSearch{Prefix: p.Prefix, After: r.PostFormValue("after"), Within: desk.ScanFor}, c.desk(r.Context())
	if p.Field+p.Value != "" {
		if err := c.payloads(r); err != nil {
			return err
		}
		field, err := desk.NewField(p.Field, p.Value, "the field")
		if err != nil {
			return err
		}
		q.Fields = []desk.FieldIs{field}
	}
	if p.Gateway != "" {
		g, err := c.gateway(r.Context(), p.Gateway)
		if err != nil {
			return err
		}
		d = &desk.Desk{Gateways: []*desk.Gateway{g}}
	}
	var err error
	if v.JobHits, err = d.Search(r.Context(), q); err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "search.html", v)
	return nil
}

// prefixOf returns the prefix of an id typed with a trailing star.
func prefixOf(id string) (prefix string, is bool) {
	prefix, is = strings.CutSuffix(id, "*")
	return prefix, is && prefix != ""
}

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
