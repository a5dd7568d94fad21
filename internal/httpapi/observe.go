package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"spillway/internal/roles"
	"spillway/internal/tracing"
)

// Metrics count the requests answered.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	conns    prometheus.Gauge
	crowded  prometheus.Counter
	wrong    prometheus.Counter
}

// otherRoutes are those outside of the API: the console is all of /.
var otherRoutes = []string{"/", LoginPath, "/assets/", "/queues/"}

// noRoute stands for a request refused before its path was matched.
const noRoute = "none"

// NewMetrics registers the HTTP metrics. The most common ones start at zero.
func NewMetrics(reg prometheus.Registerer, operations ...Operation) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_http_requests_total",
			Help: "Requests that were answered, by the pattern of their path, method and status."}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_http_request_duration_seconds",
			Help: "Time from the head of a request to the end of its answer.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"route"}),
	}
	m.conns = prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillway_http_connections", Help: "Connections of callers that are open."})
	m.crowded = prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_http_connections_closed_total",
		Help: "Connections that were closed to make room for another one: more were open than there may be."})
	m.wrong = prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_http_wrong_tokens_total",
		Help: "Tokens that were shown to the API or typed in at the console, and that were rejected: wrong or expired."})
	reg.MustRegister(m.requests, m.seconds, m.conns, m.crowded, m.wrong)
	for _, r := range (&API{cfg: Config{Operations: operations}}).routes() {
		m.seconds.WithLabelValues(r.path)
		for method := range r.by {
			m.zero(r.path, method)
		}
	}
	for _, route := range otherRoutes {
		m.seconds.WithLabelValues(route)
		m.zero(route, http.MethodGet)
	}
	return m
}

func (m *Metrics) zero(route, method string) {
	codes := []int{http.StatusOK, http.StatusInternalServerError, http.StatusServiceUnavailable}
	if method == http.MethodPost {
		codes = append(codes, http.StatusAccepted, http.StatusTooManyRequests)
	}
	for _, code := range codes {
		m.requests.WithLabelValues(route, method, strconv.Itoa(code))
	}
}

// answered counts one request.
func (m *Metrics) answered(route, method string, code int, took time.Duration) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(route, knownMethod(method), strconv.Itoa(code)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// connections sets how many are open.
func (m *Metrics) connections(n int) {
	if m != nil {
		m.conns.Set(float64(n))
	}
}

// wrongToken counts a rejected token.
func (m *Metrics) wrongToken() {
	if m != nil {
		m.wrong.Inc()
	}
}

// crowdedOut counts a connection closed to make room.
func (m *Metrics) crowdedOut() {
	if m != nil {
		m.crowded.Inc()
	}
}

// knownMethod keeps invented methods out of the labels.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// observed counts and logs each request, without its query, headers and body.
func (a *API) observed(next http.Handler) http.Handler {
	cfg := a.cfg
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		method, path := r.Method, r.URL.Path
		seen := &answer{ResponseWriter: w, r: r, refuse: a.times.refuse}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close") // the length is lost by now; a proxy could take the rest for another request
		}
		v := &visitor{span: trace.SpanFromContext(r.Context())}
		if cfg.Traces != nil && strings.HasPrefix(path, "/v1/") {
			v.begin = cfg.Traces.Request
		}
		r = r.WithContext(context.WithValue(r.Context(), noted{}, v))
		defer func() { // an answer that breaks off ends in a panic
			took, route := time.Since(begun), routeOf(r)
			cfg.Requests.answered(route, method, seen.status(), took)
			tracing.Answered(v.span, knownMethod(method), route, seen.status())
			cfg.Log.LogAttrs(context.WithoutCancel(trace.ContextWithSpan(r.Context(), v.span)), accessLevel(route, seen.status()), LineRequest, slog.String("method", method),
				slog.String("route", route), slog.String("path", clip(path)), slog.Int("status", seen.status()),
				slog.Duration("took", took.Round(10*time.Microsecond)), slog.Int64("bytes", seen.bytes), slog.String("remote", r.RemoteAddr), slog.String("who", v.who))
		}()
		next.ServeHTTP(seen, r)
	})
}

type noted struct{}

// visitor is what is learnt about a request: its sender, and its span, which starts with authentication.
type visitor struct {
	who   string
	span  trace.Span
	begin func(*http.Request) (context.Context, trace.Span) // nil: not traced
}

// note records the sender of a request for the access log.
func note(r *http.Request, who roles.Identity) {
	if v, is := r.Context().Value(noted{}).(*visitor); is {
		v.who = who.Name
	}
}

// traced starts the span of an authenticated request. The caller's own trace (traceparent) counts only from
// there: a refused caller creates no spans and has no influence on sampling.
func traced(r *http.Request) *http.Request {
	v, is := r.Context().Value(noted{}).(*visitor)
	if !is || v.begin == nil {
		return r
	}
	var ctx context.Context
	ctx, v.span = v.begin(r)
	return r.WithContext(ctx)
}

// routeOf returns the pattern that matched the request, as the mux recorded it.
func routeOf(r *http.Request) string {
	_, path, ok := strings.Cut(r.Pattern, " ")
	if !ok {
		path = r.Pattern
	}
	return cmp.Or(path, noRoute)
}

// LineRequest is the log message of a request.
const LineRequest = "request"

// accessLevel keeps the periodic requests of machines out of the log, unless they fail.
func accessLevel(route string, status int) slog.Level {
	switch route {
	case "/metrics", "/healthz", "/readyz", "/assets/":
		if status < http.StatusInternalServerError {
			return slog.LevelDebug
		}
	}
	return slog.LevelInfo
}

// longestPath is the longest path in the log, in bytes: more than any id needs.
const longestPath = 512

func clip(path string) string {
	if len(path) > longestPath {
		return path[:longestPath] + "…"
	}
	return path
}

// answer is a ResponseWriter that remembers the status.
type answer struct {
	http.ResponseWriter
	r      *http.Request
	refuse time.Duration
	code   int
	bytes  int64
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK { // informational responses (100, 103) are not the answer
		a.code = code
		if refused(a.r, code) {
			refuse(a.ResponseWriter, a.refuse)
		}
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (a *answer) Write(b []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// status returns the status; net/http sends 200 if none was written.
func (a *answer) status() int { return cmp.Or(a.code, http.StatusOK) }
