package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"spillway/internal/job"
)

// job answers with the output of "dispatcher job ID -o json", without the payload.
func (a *API) job(w http.ResponseWriter, r *http.Request) {
	gateway, id := r.PathValue("gateway"), r.PathValue("id")
	if _, ok := a.known(r)[gateway]; !ok {
		noGateway(gateway).answer(w)
		return
	}
	a.show(w, r, func(ctx context.Context) (any, error) { return a.cfg.Job(ctx, gateway, id) })
}

func (a *API) show(w http.ResponseWriter, r *http.Request, look func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), lookTime)
	defer cancel()
	v, err := look(ctx)
	if err != nil {
		a.problemOf(r, err).answer(w)
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		a.problemOf(r, err).answer(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n'))
}

// problemOf returns what the caller may know of an error, and logs the rest.
func (a *API) problemOf(r *http.Request, err error) problem {
	if r.Context().Err() != nil { // the caller has gone
		return newProblem(codeUnavailable, "the caller has gone", "")
	}
	p := problemOf(err)
	if p.Status == http.StatusInternalServerError {
		a.cfg.Log.Error("a request failed", "method", r.Method, "route", r.Pattern, "error", err)
	}
	return p
}

func noGateway(name string) problem {
	if err := job.CheckGateway(name); err != nil {
		return newProblem(codeGateway, err.Error(), "")
	}
	return newProblem(codeGateway, "no gateway "+name+" in the configuration", "GET /v1/status lists those that there are")
}

func notReady(err error) string {
	if e, ok := errors.AsType[*job.Error](err); ok {
		return e.Message
	}
	return "Redis does not answer"
}
