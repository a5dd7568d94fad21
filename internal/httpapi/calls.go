package httpapi

import (
	"context"
	"net/http"
)

// CallsQuery says which calls are counted, as it was typed.
type CallsQuery struct {
	Gateways  []string // none means all
	Since, By string
}

// AnswersQuery says which answers are counted, as it was typed.
type AnswersQuery struct{ Since, Batch string }

// calls answers with what "dispatcher calls -o json" prints.
func (a *API) calls(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	of := CallsQuery{Gateways: q["gateway"], Since: q.Get("since"), By: q.Get("by")}
	if wrong := a.unknown(of.Gateways); wrong != nil {
		wrong.answer(w)
		return
	}
	a.show(w, r, func(ctx context.Context) (any, error) { return a.cfg.Calls(ctx, of) })
}

// answers answers with what "dispatcher answers -g GATEWAY -o json" prints.
func (a *API) answers(w http.ResponseWriter, r *http.Request) {
	gateway, q := r.PathValue("gateway"), r.URL.Query()
	if wrong := a.unknown([]string{gateway}); wrong != nil {
		wrong.answer(w)
		return
	}
	of := AnswersQuery{Since: q.Get("since"), Batch: q.Get("batch")}
	a.show(w, r, func(ctx context.Context) (any, error) { return a.cfg.Answers(ctx, gateway, of) })
}
