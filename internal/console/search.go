package console

import (
	"net/http"
	"net/url"
	"strings"

	"spillway/internal/desk"
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

// search shows the jobs whose ids begin with a prefix.
func (c *Console) search(w http.ResponseWriter, r *http.Request, prefix string) error {
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
