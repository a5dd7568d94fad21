package console

import (
	"net/http"
	"net/url"
	"strings"

	"spillway/internal/desk"
)

type searchView struct {
	base
	desk.Prefixed
	Prefix string
	More   string // address that goes on; empty where all was looked at
}

// search shows the jobs whose ids begin in some way.
func (c *Console) search(w http.ResponseWriter, r *http.Request, prefix string) error {
	v := &searchView{base: base{Title: "Jobs " + prefix + "*"}, Prefix: prefix}
	var err error
	if v.Prefixed, err = c.desk().Prefixed(r.Context(), prefix, r.URL.Query().Get("after")); err != nil {
		return err
	}
	if v.Next != "" {
		v.More = "/jobs?" + url.Values{"id": {prefix + "*"}, "after": {v.Next}}.Encode()
	}
	c.show(w, r, http.StatusOK, "search.html", v)
	return nil
}

// prefixOf returns the beginning of an id that is asked for with a star behind it.
func prefixOf(id string) (prefix string, is bool) {
	prefix, is = strings.CutSuffix(id, "*")
	return prefix, is && prefix != ""
}
