// Package console serves the operator's pages of a running dispatcher: every gateway at a glance, its dead
// letters with replay, discard and resolve, pause and limits, the batches, and everything known of one job.
// Pages are rendered on the server and work without JavaScript; with it they stay up to date.
//
// A GET changes nothing. Every action on dead letters or limits is first previewed, with a form that does
// exactly what was shown. Payloads are shown only on request, and never logged.
package console

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/doctor"
	"spillway/internal/job"
	"spillway/internal/pan"
	"spillway/internal/roles"
	"spillway/internal/tracing"
)

// Config configures a Console.
type Config struct {
	Redis redis.UniversalClient
	// Gateways are the gateways that it shows and acts on.
	Gateways []config.Gateway
	// Listed returns the names of all configured gateways; gateways with jobs that are not among them are
	// listed. Nil: those are not searched.
	Listed func() []string
	// Guard is the HTTP server's, which is in front of the console. Without a token, only requests to a
	// loopback address are answered.
	Guard Guard
	// Log logs every action: who, what and why, never a payload.
	Log *slog.Logger
	// Queues says that /queues/ has asynq's own monitor, to link to.
	Queues bool
	// Examiner runs the doctor's checks. Nil: none.
	Examiner *doctor.Examiner
	// Traces records the jobs that a replay admits. Nil: not traced.
	Traces *tracing.Tracer
}

// Console is an http.Handler for everything under /. It is safe for concurrent use.
type Console struct {
	cfg   Config
	inner http.Handler
	ctx   context.Context // for what runs longer than its request
	halt  context.CancelFunc
	acts  acts[*act]
	// batchActs are the acts on batches.
	batchActs acts[*batchAct]
	running   sync.WaitGroup
	served    atomic.Pointer[shownGateways]
	pages     []Page
}

// Page is a page or form of the console, as a pattern of http.ServeMux, with the role that it needs.
type Page struct {
	Pattern string
	Need    roles.Need
}

// Pages returns all pages. Some need more if payloads are requested.
func (c *Console) Pages() []Page { return c.pages }

// shownGateways are the gateways shown, and their desk.
type shownGateways struct {
	all  []config.Gateway
	desk *desk.Desk
}

// New returns the console.
func New(cfg Config) *Console {
	pages() // so that a fault in one shows at the start
	c := &Console{cfg: cfg}
	c.Use(cfg.Gateways)
	c.ctx, c.halt = context.WithCancel(context.Background())
	inside := http.NewServeMux()
	page := func(pattern string, need roles.Need, show func(http.ResponseWriter, *http.Request) error) {
		c.pages = append(c.pages, Page{pattern, need})
		inside.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := lacking(r, need)
			if err == nil {
				err = show(w, r)
			}
			if err != nil {
				c.fail(w, r, err)
			}
		})
	}
	page("GET /{$}", roles.View, c.overview)
	page("GET /hours", roles.View, c.hours)
	page("GET /health", roles.View, c.health)
	page("GET /runbook", roles.View, c.runbook)
	page("GET /gateways/{gateway}", roles.View, c.gatewayPage)
	page("GET /gateways/{gateway}/answers", roles.View, c.answers)
	page("GET /gateways/{gateway}/clear", roles.Operate, c.preview)
	page("POST /gateways/{gateway}/clear", roles.Operate, c.clear)
	page("POST /gateways/{gateway}/pause", roles.Operate, c.pause)
	page("POST /gateways/{gateway}/resume", roles.Operate, c.resume)
	page("GET /gateways/{gateway}/limit", roles.Operate, c.limitPreview)
	page("POST /gateways/{gateway}/limit", roles.Operate, c.setLimit)
	page("GET /gateways/{gateway}/park", roles.Operate, c.parkPreview)
	page("POST /gateways/{gateway}/park", roles.Operate, c.park)
	page("GET /batches", roles.View, c.batches)
	page("GET /batches/{name}", roles.View, c.batchPage)
	page("POST /batches", roles.Operate, c.batchDo)
	page("GET /approvals", roles.View, c.approvals)
	page("POST /approvals", roles.Approve, c.approve)
	page("GET /search", roles.View, c.searchForm)
	page("POST /search", roles.View, c.searchPayloads)
	page("GET /jobs", roles.Read, c.jobPage)
	page("GET /jobs/{id...}", roles.Read, c.jobPage)
	page("GET /", roles.AnyRole, func(http.ResponseWriter, *http.Request) error { return notFound("there is no such page") })
	page("POST /logout", roles.AnyRole, c.logout)
	c.inner = c.Protect(inside, policy)
	return c
}

// Use sets the gateways, for requests from now on.
func (c *Console) Use(gateways []config.Gateway) {
	d := desk.New(c.cfg.Redis, gateways)
	if c.cfg.Listed != nil {
		d.Of(c.cfg.Redis, c.cfg.Listed())
	}
	c.served.Store(&shownGateways{gateways, d})
}

// desk returns the desk of the gateways visible to the user.
func (c *Console) desk(ctx context.Context) *desk.Desk {
	s, who := c.served.Load(), whoAsks(ctx)
	if !who.Scoped() {
		return s.desk
	}
	return desk.New(c.cfg.Redis, slices.DeleteFunc(slices.Clone(s.all), func(g config.Gateway) bool { return !who.Sees(g.Name) }))
}

// ServeHTTP answers.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, known := roles.Of(r.Context()); !known && c.cfg.Guard.Open() {
		r = r.WithContext(roles.With(r.Context(), roles.Everybody()))
	}
	c.inner.ServeHTTP(w, r)
}

// Stop ends what is in progress between two steps, so that nothing is lost, and waits for it until ctx ends.
// What was done by then stays done, and is recorded.
func (c *Console) Stop(ctx context.Context) error {
	c.halt()
	over := make(chan struct{})
	go func() {
		c.running.Wait()
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pageTime bounds a page's use of Redis.
const pageTime = 10 * time.Second

// mostForm bounds the size of a form, in bytes: filters and reasons are short.
const mostForm = 64 << 10

// policy allows only the console's own style and script.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Protect keeps out other sites' pages, and what a browser should never do; policy is next's
// Content-Security-Policy.
func (c *Console) Protect(next http.Handler, policy string) http.Handler {
	crossing := http.NewCrossOriginProtection()
	crossing.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, &refusal{http.StatusForbidden, "this was sent by a page of another site, so nothing was done"})
	}))
	next = crossing.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if c.cfg.Guard.Open() && !loopback(r.Host) {
			c.fail(w, r, &refusal{http.StatusForbidden, "without a token, the console answers to a loopback address alone: open http://127.0.0.1 or set a token"})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		ctx, cancel := context.WithTimeout(r.Context(), pageTime)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// gateway returns the gateway named in the path.
func (c *Console) gateway(ctx context.Context, name string) (*desk.Gateway, error) {
	if g := c.desk(ctx).Gateway(name); g != nil {
		return g, nil
	}
	return nil, notFound("this dispatcher serves no gateway of that name")
}

func notFound(what string) error { return &job.Error{Code: job.CodeNotFound, Message: what} }

func wrong(what, hint string) error {
	return &job.Error{Code: job.CodeUsage, Message: what, Hint: hint}
}

// typed returns a text typed into a form: one line, trimmed, with card numbers masked.
func typed(r *http.Request, field string) string {
	text := strings.Join(strings.Fields(r.PostFormValue(field)), " ")
	if field == "who" || field == "why" {
		return pan.MaskString(text)
	}
	return text
}

// look returns a gateway's status, with the calls of the last minutes.
func look(ctx context.Context, g *desk.Gateway) (glance, error) {
	s, err := g.Status(ctx)
	if err != nil {
		return glance{}, err
	}
	calls, err := g.Calls(ctx, s)
	return newGlance(s, calls), err
}
