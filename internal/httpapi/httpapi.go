// Package httpapi is the HTTP side of a running dispatcher: jobs in and looked up, status, metrics and health, and the
// place for what people look at. It is beside step 1 of 8: what it takes in goes through the same door as a billing file.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/roles"
	"spillway/internal/tracing"
)

// Door is the way into the queues.
type Door interface {
	Admit(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) ([]admission.Answer, error)
}

// Config is what the HTTP side shows.
type Config struct {
	// Guard lets in who shows the token. Nil: nobody needs one.
	Guard *Guard
	// Gateways are all that jobs may be posted to, by name.
	Gateways map[string]Gateway
	// Door takes the jobs in.
	Door Door
	// State returns where a job stands.
	State func(ctx context.Context, gateway, id string) (job.State, error)
	// Job returns everything known of a job but its payload, to be written as JSON.
	Job func(ctx context.Context, gateway, id string) (any, error)
	// Outcomes returns the outcome feed of a gateway. An error with the code not_found says that it has none.
	Outcomes func(gateway string) (Outcomes, error)
	// Operations are what operators see and do, beside what has a function here.
	Operations []Operation
	// Once remembers the answers of acts. Nil: nobody does, and no Idempotency-Key is taken.
	Once Once
	// Metrics answers /metrics.
	Metrics http.Handler
	// Ready says whether the dispatcher can do its work: Redis answers, and its data is what was seen of it. The message of a
	// coded error is shown, as it is safe to; any other error means that Redis does not answer.
	Ready func(context.Context) error
	// Console answers / and everything below it that nobody else answers. Nil: there is none.
	Console http.Handler
	// Login answers LoginPath, what is below it, and what its page needs, /assets/, for everybody: it asks a person for the token and calls Guard.LogIn, or Guard.BeginLogin and FinishLogin.
	// Nil: there is none.
	Login http.Handler
	// Queues answers /queues/ and everything below it. Nil: there is none.
	Queues http.Handler
	// Log hears of each request, and of what failed here. Nil: nobody does.
	Log *slog.Logger
	// Requests counts the requests. Nil: nobody does.
	Requests *Metrics
	// Traces hears of each request to the API and of the jobs taken in. Nil: nobody does.
	Traces *tracing.Tracer
}

// API is the HTTP side.
type API struct {
	cfg      Config
	gather   *gather
	bulks    chan struct{} // one for each chunk of many jobs at the door
	handler  http.Handler
	stopping atomic.Bool
	gateways atomic.Pointer[map[string]Gateway]
	times    times
	bodies   budget          // of what is under way of bodies
	spools   budget          // of what waits of answers
	over     context.Context // ends when this dispatcher stops
	end      context.CancelFunc
}

const bulksAtOnce = 4

// New returns the HTTP side.
func New(cfg Config) *API {
	if cfg.Guard == nil {
		cfg.Guard = NewGuard("")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{cfg: cfg, gather: newGather(cfg.Door), bulks: make(chan struct{}, bulksAtOnce), times: defaultTimes(),
		bodies: budget{most: bodiesMost}, spools: budget{most: spoolsMost}}
	a.over, a.end = context.WithCancel(context.Background())
	a.Use(cfg.Gateways)
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		mux.Handle(r.path, r.handler(cfg.Guard))
	}
	pages(mux, cfg)
	a.handler = a.observed(sameSite(cfg.Guard, mux))
	return a
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// Use replaces what is known of the gateways, for the requests that come from now on.
func (a *API) Use(gateways map[string]Gateway) { a.gateways.Store(&gateways) }

// known are the gateways that exist for who sends a request.
func (a *API) known(r *http.Request) map[string]Gateway {
	all := *a.gateways.Load()
	who, _ := roles.Of(r.Context())
	if !who.Scoped() {
		return all
	}
	some := make(map[string]Gateway, len(who.Gateways))
	for _, name := range who.Gateways {
		if g, ok := all[name]; ok {
			some[name] = g
		}
	}
	return some
}

// Stopping makes every POST of jobs, and what is left of one under way, be answered with "come again", ends acts that take their time, and makes the process not ready.
func (a *API) Stopping() {
	a.stopping.Store(true)
	a.end()
}

// pages mounts what people look at.
func pages(mux *http.ServeMux, cfg Config) {
	if cfg.Login != nil {
		mux.Handle(LoginPath, cfg.Login)
		mux.Handle(LoginPath+"/", cfg.Login)
		mux.Handle("/assets/", cfg.Login)
	}
	if cfg.Queues != nil {
		mux.Handle("/queues/", cfg.Guard.Person(cfg.Login != nil, roles.View, forAll(cfg.Queues)))
	}
	if cfg.Console != nil {
		mux.Handle("/", cfg.Guard.Person(cfg.Login != nil, roles.AnyRole, cfg.Console))
		return
	}
	mux.HandleFunc("/", noPath)
}

func noPath(w http.ResponseWriter, _ *http.Request) {
	newProblem(codePath, "there is nothing at this path", "the paths are in /openapi.json").answer(w)
}

// readyTime bounds the question behind /readyz, lookTime that behind a look at jobs and gateways.
const (
	readyTime = 2 * time.Second
	lookTime  = 10 * time.Second
)

func (a *API) healthy(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	if a.stopping.Load() {
		stopping().answer(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	if err := a.cfg.Ready(ctx); err != nil {
		p := newProblem(codeUnavailable, notReady(err), "")
		p.RetryAfter = seconds(leastRetry)
		p.answer(w)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

func stopping() problem {
	return newProblem(codeStopping, "this dispatcher is stopping and takes nothing more in", "send it to another one, or again when it is back")
}
