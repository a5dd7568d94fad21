package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// An unknown parameter is refused. The known parameters are those that are described.
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

// A query that net/http can only parse in part is refused: the rest of it might mean all gateways.
func TestAQueryThatCanNotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	a := acting(Document, func(context.Context) (any, error) { return "done", nil })
	for _, query := range []string{"gateway=%zz", "gateway=a;limit=1", "limit=1&%=2"} {
		for _, path := range []string{"/v1/gateways/g/jobs/x", "/v1/gateways/g/outcomes", "/v1/act"} {
			method := http.MethodGet
			if path == "/v1/act" {
				method = http.MethodPost
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path+"?"+query, nil))
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "the query can't be read") {
				t.Errorf("%s?%s: %d %s", path, query, w.Code, w.Body)
			}
		}
	}
}
