package httpapi

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A parameter that a path does not know is refused, whatever it is, and those that it knows are the ones that are described.
func TestUnknownParametersAreRefused(t *testing.T) {
	t.Parallel()
	doc := description(t)
	for _, r := range New(Config{}).routes() {
		if r.query == nil {
			continue // it looks itself, or takes all
		}
		for method := range r.by {
			var described []string
			for _, p := range doc.Paths.Value(r.path).GetOperation(method).Parameters {
				if p.Value.In == "query" {
					described = append(described, p.Value.Name)
				}
			}
			slices.Sort(described)
			if !slices.Equal(described, r.query) {
				t.Errorf("%s %s knows %v, and %v are described", method, r.path, r.query, described)
			}
			w := httptest.NewRecorder()
			path := strings.NewReplacer("{gateway}", "g", "{id}", "x").Replace(r.path)
			New(Config{}).ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path+"?gatway=stripe", strings.NewReader("{}")))
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `there is no parameter \"gatway\"`) {
				t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
		}
	}
}
