package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// BatchQuery says which batches are listed.
type BatchQuery struct {
	Gateways []string // none means all
	Limit    int
	After    string
	Active   bool
}

const (
	batchesShown = 100
	batchesMost  = 1000
)

// batches answers with what "dispatcher batch list -o json" prints, a page at a time.
func (a *API) batches(w http.ResponseWriter, r *http.Request) {
	q, wrong := batchQuery(r.URL.Query())
	if wrong == nil {
		wrong = a.unknown(q.Gateways)
	}
	if wrong != nil {
		wrong.answer(w)
		return
	}
	a.show(w, r, func(ctx context.Context) (any, error) { return a.cfg.Batches(ctx, q) })
}

func batchQuery(q url.Values) (of BatchQuery, wrong *problem) {
	of = BatchQuery{Gateways: q["gateway"], Limit: batchesShown, After: q.Get("after")}
	var err error
	if text := q.Get("limit"); text != "" {
		if of.Limit, err = strconv.Atoi(text); err != nil || of.Limit < 1 || of.Limit > batchesMost {
			p := newProblem(codeRequest, "limit is no number from 1 to "+strconv.Itoa(batchesMost), "")
			return of, &p
		}
	}
	if text := q.Get("active"); text != "" {
		if of.Active, err = strconv.ParseBool(text); err != nil {
			p := newProblem(codeRequest, "active is neither true nor false", "")
			return of, &p
		}
	}
	return of, nil
}

// unknown returns a problem if one of the gateways is not in the configuration.
func (a *API) unknown(gateways []string) *problem {
	for _, name := range gateways {
		if _, ok := a.known()[name]; !ok {
			p := noGateway(name)
			return &p
		}
	}
	return nil
}
