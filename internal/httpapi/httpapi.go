// Package httpapi is the HTTP server of a running dispatcher: it accepts jobs, looks them up, serves status,
// metrics and health, and mounts the pages for people. It is an alternative to step 1 of 8: its jobs go through
// the same door as those of a billing file.
package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/roles"
	"spillway/internal/tracing"
)

// Door admits jobs into the queues.
type Door interface {
	Admit(ctx context.Context, gateway string, jobs []job.Job, mode admission.Mode) ([]admission.Answer, error)
}

// Config configures an API.
type Config struct {
	// Guard authenticates requests. Nil: everyone has access.
	Guard *Guard
	// Gateways are the gateways to which jobs may be posted, by name.
	Gateways map[string]Gateway
	// Door admits the jobs.
	Door Door
	// State returns the state of a job.
	State func(ctx context.Context, gateway, id string) (job.State, error)
	// Job returns everything known of a job but its payload, to be written as JSON.
	Job func(ctx context.Context, gateway, id string) (any, error)
	// Outcomes returns the outcome feed of a gateway. An error with code not_found says that it has none.
	Outcomes func(gateway string) (Outcomes, error)
	// Operations are further things that operators see and do.
	Operations []Operation
	// Once stores the results of acts. Nil: not stored, and an Idempotency-Key is refused.
	Once Once
	// Metrics answers /metrics.
	Metrics http.Handler
	// Ready returns nil if the dispatcher can work: Redis answers, and its data is what was seen of it. The
	// message of a coded error is safe to show. Any other error means that Redis does not answer.
	Ready func(context.Context) error
	// Console serves / and everything below it that has no other handler. Nil: none.
	Console http.Handler
	// Login serves, without authentication, LoginPath, everything below it, and /assets/ for its page. It asks
	// for the token and calls Guard.LogIn, or Guard.BeginLogin and FinishLogin. Nil: none.
	Login http.Handler
	// Queues serves /queues/ and everything below it. Nil: none.
	Queues http.Handler
	// Log logs each request, and errors. Nil: none.
	Log *slog.Logger
	// Requests counts the requests. Nil: none.
	Requests *Metrics
	// Traces records each request to the API and the jobs accepted. Nil: not traced.
	Traces *tracing.Tracer
}

// API is the HTTP server's handler.
type API struct {
	cfg      Config
	gather   *gather
	bulks    chan struct{} // a token for each chunk of many jobs being admitted
	handler  http.Handler
	stopping atomic.Bool
	gateways atomic.Pointer[map[string]Gateway]
	times    times
	bodies   budget          // bytes of bodies in progress
	spools   budget          // bytes of answers waiting to be read
	over     context.Context // done when this dispatcher stops
	end      context.CancelFunc
}

const bulksAtOnce = 4

// New returns an API.
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

// Use replaces the gateways, for requests from now on.
func (a *API) Use(gateways map[string]Gateway) { a.gateways.Store(&gateways) }

// known returns the gateways visible to the sender of a request.
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

// Stopping answers every POST of jobs, and the rest of one in progress, with "come again", ends long acts, and
// makes the process not ready.
func (a *API) Stopping() {
	a.stopping.Store(true)
	a.end()
}

// pages mounts the pages for people.
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

// readyTime bounds the check of /readyz, lookTime the reading of jobs and gateways.
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

// Policy is one limit of admission, as answers describe it.
type Policy struct {
	Name string // as in the configuration: 100/s
	// Quota is how many units of cost are available if nothing is in use.
	Quota int64
	// Window is how long it takes until a used-up quota is whole again.
	Window time.Duration
}

// Gateway is what the API knows of one gateway.
type Gateway struct {
	MaxCost int64 // a higher cost can never be granted
	Amount  job.AmountRule
	Cards   job.CardRule
	// Policies returns the limits in force at admission, in the order of job.Room.Left. Nil: answers don't
	// mention them.
	Policies func(context.Context) []Policy
}

// The longest and shortest Retry-After if there is no room.
const (
	leastRetry = time.Second
	mostRetry  = time.Minute
)

// retryAfter returns when there may be room. Behind parked jobs that is unknown, and it returns when all of the
// room is back.
func retryAfter(room job.Room) time.Duration {
	wait := room.Retry
	if wait == 0 {
		wait = min(room.Reset, mostRetry)
	}
	if wait < 0 {
		wait = mostRetry
	}
	return max(wait, leastRetry)
}

// rateLimit writes the room at admission: RateLimit-Policy and RateLimit as in
// draft-ietf-httpapi-ratelimit-headers-10, with one item for each limit, and X-RateLimit-* for the limit with
// the least left.
func rateLimit(ctx context.Context, h http.Header, g Gateway, room *job.Room) {
	if room == nil || g.Policies == nil {
		return
	}
	held := g.Policies(ctx)
	if len(room.Left) != len(held) || len(held) == 0 {
		return
	}
	reset := seconds(room.Reset)
	policies, now := make([]string, len(held)), make([]string, len(held))
	tight := 0
	for i, p := range held {
		policies[i] = fmt.Sprintf("%q;q=%d;w=%d", p.Name, p.Quota, seconds(p.Window))
		now[i] = fmt.Sprintf("%q;r=%d;t=%d", p.Name, room.Left[i], reset)
		if room.Left[i] < room.Left[tight] {
			tight = i
		}
	}
	// Header names have no case, but these are written as in the drafts.
	h["RateLimit-Policy"] = []string{strings.Join(policies, ", ")}
	h["RateLimit"] = []string{strings.Join(now, ", ")}
	h["X-RateLimit-Limit"] = []string{strconv.FormatInt(held[tight].Quota, 10)}
	h["X-RateLimit-Remaining"] = []string{strconv.FormatInt(room.Left[tight], 10)}
	h["X-RateLimit-Reset-After"] = []string{strconv.FormatInt(reset, 10)}
}
