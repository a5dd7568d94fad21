package httpapi

import (
	"cmp"
	"context"
	_ "embed" // for the description
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"spillway/internal/job"
	"spillway/internal/roles"
)

// who says how a route is authenticated, and the role that it needs.
type who struct {
	cookie bool // a browser's cookie is accepted, too
	need   roles.Need
	whole  bool // it shows all gateways: a token for some of them is refused
}

var everybody = who{need: roles.Nothing}

// programs authenticate by the header, people by the cookie, too.
func programs(need roles.Need) who { return who{need: need} }
func people(need roles.Need) who   { return who{cookie: true, need: need} }

// route is one path with its handlers by method.
type route struct {
	path string
	who  who
	by   map[string]http.HandlerFunc
	// query are the parameters that it knows: any other is refused. Nil: the handler checks them itself.
	query []string
}

func (a *API) routes() []route {
	get := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: h}
	}
	all := []route{
		{"/v1/gateways/{gateway}/jobs", programs(roles.Submit), map[string]http.HandlerFunc{http.MethodPost: a.post}, []string{"on_full"}},
		{"/v1/gateways/{gateway}/jobs/{id}", people(roles.Read), get(a.job), []string{}},
		{"/v1/gateways/{gateway}/outcomes", people(roles.Read), get(a.outcomes), nil},
		{"/v1/gateways/{gateway}/outcomes/ack", programs(roles.Submit), map[string]http.HandlerFunc{http.MethodPost: a.ackOutcomes}, nil},
		{"/metrics", who{cookie: true, need: roles.Scrape, whole: true}, get(a.metrics), nil},
		{"/healthz", everybody, get(a.healthy), nil},
		{"/readyz", everybody, get(a.ready), nil},
		{"/openapi.json", everybody, get(describe), nil},
		{"/v1/login", everybody, get(a.howToLogIn), []string{}},
		{"/v1/whoami", people(roles.AnyRole), get(a.whoami), []string{}},
		{"/v1/", people(roles.AnyRole), nil, nil},
	}
	for _, o := range a.cfg.Operations {
		r := route{o.Path, who{cookie: !o.Act, need: o.Need, whole: o.Whole}, map[string]http.HandlerFunc{o.Method: a.operation(o)}, nil}
		all = append(all, r)
	}
	return all
}

func (r route) handler(g *Guard) http.Handler {
	var h http.Handler = http.HandlerFunc(r.serve)
	if r.who.whole {
		h = forAll(h)
	}
	switch {
	case r.who.need == roles.Nothing:
		return h
	case r.who.cookie:
		return g.Person(false, r.who.need, h)
	}
	return g.Program(r.who.need, h)
}

// forAll refuses a token for some gateways.
func forAll(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := roles.Of(r.Context())
		if p := partial(who); p != nil {
			p.answer(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (r route) serve(w http.ResponseWriter, req *http.Request) {
	h, ok := r.by[req.Method]
	if req.Method == http.MethodHead {
		h, ok = r.by[http.MethodGet]
	}
	switch {
	case ok:
		if _, err := url.ParseQuery(req.URL.RawQuery); err != nil && strings.HasPrefix(r.path, "/v1/") { // otherwise a part of it would be ignored
			drain(w, req)
			newProblem(codeRequest, "the query can't be read", "write % & ; and other special characters as %XX").answer(w)
			return
		}
		if name, is := r.stranger(req); is {
			drain(w, req)
			newProblem(codeRequest, fmt.Sprintf("there is no parameter %.40q", name), "use "+cmp.Or(strings.Join(r.query, ", "), "none")).answer(w)
			return
		}
		h(w, req)
	case len(r.by) == 0:
		noPath(w, req)
	default:
		allowed := strings.Join(slices.Sorted(maps.Keys(r.by)), ", ")
		w.Header().Set("Allow", allowed)
		newProblem(codeMethod, req.Method+" is not for this path", "use "+allowed).answer(w)
	}
}

// stranger returns a parameter that the route does not know: a typing mistake must not widen a query.
func (r route) stranger(req *http.Request) (name string, is bool) {
	if r.query == nil {
		return "", false
	}
	for _, name := range slices.Sorted(maps.Keys(req.URL.Query())) {
		if !slices.Contains(r.query, name) {
			return name, true
		}
	}
	return "", false
}

func (a *API) metrics(w http.ResponseWriter, r *http.Request) { a.cfg.Metrics.ServeHTTP(w, r) }

//go:embed openapi.json
var openapi []byte

// describe answers with the OpenAPI document. A test compares it with the routes.
func describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapi)
}

// sameSite refuses requests that a foreign page makes a browser send. Without tokens, only loopback protects,
// and a page whose name was made to point at loopback would be of the same origin; so a name in Host must then
// be localhost.
func sameSite(g *Guard, next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := foreign.Check(r); err != nil {
			newProblem(codeForeign, "a page of another site sent this", "").answer(w)
			return
		}
		if g.Open() && !local(r.Host) {
			newProblem(codeForeign, "without a token this answers only to localhost and to addresses, not to the name in Host",
				"use 127.0.0.1, or set token in the configuration").answer(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(name) != nil
}

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
	p := tellable(r, err)
	a.logFault(r, p, err)
	return p
}

// tellable returns what the caller may know of an error.
func tellable(r *http.Request, err error) problem {
	if r.Context().Err() != nil { // the caller has gone
		return newProblem(codeUnavailable, "the caller has gone", "")
	}
	return problemOf(err)
}

// logFault logs an error of which the caller is told only that there was one.
func (a *API) logFault(r *http.Request, p problem, err error) {
	if p.Status == http.StatusInternalServerError {
		a.cfg.Log.Error("a request failed", "method", r.Method, "route", r.Pattern, "error", err)
	}
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
