package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"mime"
	"net/http"

	"spillway/internal/job"
)

// SearchQuery says which jobs are searched for. It is posted: what stands in payloads has no place in an address, which logs have.
type SearchQuery struct {
	ID       string            `json:"id,omitempty"`       // the beginning of the id
	Fields   map[string]string `json:"fields,omitempty"`   // what stands in the payload, by "payload.customer"
	Gateways []string          `json:"gateways,omitempty"` // none means all
	Limit    int               `json:"limit,omitempty"`    // about how many jobs a page has; 0: 100
	After    string            `json:"after,omitempty"`    // the next of the page before
}

// searchMost is how many jobs a page of a search may have.
const searchMost = 1000

// search answers with what "dispatcher find -o json" prints, a page at a time.
func (a *API) search(w http.ResponseWriter, r *http.Request) {
	q, wrong := searchQuery(w, r)
	if wrong == nil {
		wrong = a.unknown(q.Gateways)
	}
	if wrong != nil {
		wrong.answer(w)
		return
	}
	a.show(w, r, func(ctx context.Context) (any, error) { return a.cfg.Search(ctx, q) })
}

func searchQuery(w http.ResponseWriter, r *http.Request) (q SearchQuery, wrong *problem) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		drain(w, r)
		return q, new(newProblem(codeMedia, "the Content-Type is not application/json", ""))
	}
	text, wrong := body(r.Body, r.ContentLength)
	if wrong != nil {
		return q, wrong
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil || d.More() {
		return q, new(newProblem(codeRequest, "the body is not a search", `send {"id":"inv-2026","fields":{"payload.customer":"cus_1"}}; the values are texts`))
	}
	if q.Limit < 0 || q.Limit > searchMost {
		return q, new(newProblem(codeRequest, "limit is no number from 1 to "+job.CountText(searchMost), ""))
	}
	return q, nil
}
