package worker

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"

	"spillway/internal/counts"
	"spillway/internal/job"
	"spillway/internal/tracing"
)

// The names of the counters of calls, by gateway and verdict, and of jobs parked by this process, by gateway
// and reason.
const (
	MetricCalls  = "spillway_calls_total"
	MetricParked = "spillway_parked_total"
)

// Metrics are the worker's metrics.
type Metrics struct {
	calls   *counts.Vec
	seconds *prometheus.HistogramVec
	ends    *prometheus.HistogramVec
	needed  *prometheus.HistogramVec
	parks   *counts.Vec
	backs   *counts.Vec
	tries   *counts.Vec
	limited *counts.Vec
	sealed  *counts.Vec
	lost    *counts.Vec
}

// NewMetrics registers the worker's metrics. The counters of each gateway start at zero; its histograms exist
// from its first call on, because a histogram is a dozen series and few of thousands of gateways have calls.
func NewMetrics(reg prometheus.Registerer, gateways []string) *Metrics {
	counter := func(name, help string) *counts.Vec { return counts.New(reg, name, help) }
	m := &Metrics{
		calls:   counts.NewBy(reg, MetricCalls, "Calls by what their outcome meant.", "verdict", job.Texts(job.Verdicts())),
		parks:   counts.NewBy(reg, MetricParked, "Jobs this process parked, by reason.", "reason", job.Texts(job.Reasons())),
		backs:   counter("spillway_given_back_total", "Jobs put back at the head of the queue uncalled: their slot had passed and they got no other, this machine could not call, or there was no access token."),
		tries:   counter("spillway_record_retries_total", "Times that writing an outcome down had to be tried again."),
		sealed:  counter("spillway_unopened_payloads_total", "Times that a job was put aside uncalled, since its payload can't be opened here: its key is missing, or it is not sealed and must be."),
		lost:    counter("spillway_unrouted_total", "Times that a job was put aside uncalled, since its route is not in the configuration here."),
		limited: counter("spillway_too_many_requests_total", "Answers with status 429."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_call_duration_seconds",
			Help: "Time from the write of a call to its end.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 14)}, []string{"gateway"}),
	}
	m.ends = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_job_duration_seconds",
		Help: "From a job's acceptance, or the time that it was to wait for, until it is done.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 12)}, []string{"gateway"})
	m.needed = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_job_attempts",
		Help: "Calls of a job since it was last admitted when it was done, the last one included.", Buckets: []float64{1, 2, 3, 4, 6, 8, 12, 20}}, []string{"gateway"})
	reg.MustRegister(m.seconds, m.ends, m.needed)
	for _, g := range gateways {
		m.Begin(g)
	}
	return m
}

// Begin sets the counters of a gateway to zero.
func (m *Metrics) Begin(gateway string) {
	for _, c := range m.counters() {
		c.Of(gateway)
	}
}

// Forget removes the metrics of a gateway that is no longer served.
func (m *Metrics) Forget(gateway string) {
	for _, c := range m.counters() {
		c.Forget(gateway)
	}
	of := prometheus.Labels{"gateway": gateway}
	for _, h := range []*prometheus.HistogramVec{m.seconds, m.ends, m.needed} {
		h.DeletePartialMatch(of)
	}
}

func (m *Metrics) counters() []*counts.Vec {
	return []*counts.Vec{m.calls, m.parks, m.backs, m.tries, m.limited, m.sealed, m.lost}
}

// meters are the metrics of one gateway that every call needs.
type meters struct {
	calls                 func(job.Verdict) *counts.Counter // nil for an unknown verdict
	limited               *counts.Counter
	seconds, ends, needed func() prometheus.Observer // created on first use
}

func (m *Metrics) of(gateway string) meters {
	used := func(v *prometheus.HistogramVec) func() prometheus.Observer {
		return sync.OnceValue(func() prometheus.Observer { return v.WithLabelValues(gateway) })
	}
	return meters{calls: func(v job.Verdict) *counts.Counter { return m.calls.By(gateway, string(v)) }, limited: m.limited.Of(gateway),
		seconds: used(m.seconds), ends: used(m.ends), needed: used(m.needed)}
}

// done counts a job that succeeded at that time.
func (m *meters) done(a job.Attempt, at time.Time) {
	from := a.Accepted
	if a.Job.At.After(from) {
		from = a.Job.At
	}
	m.ends().Observe(max(at.Sub(from).Seconds(), 0))
	m.needed().Observe(float64(a.Calls + 1))
}

func (m *meters) called(v job.Verdict, res job.Result) {
	if c := m.calls(v); c != nil {
		c.Inc()
	}
	if res.Stage != job.NotSent {
		m.seconds().Observe(res.Took.Seconds())
	}
	if res.Status == 429 {
		m.limited.Inc()
	}
}

func (m *Metrics) parked(gateway string, r job.Reason) {
	if c := m.parks.By(gateway, string(r)); c != nil {
		c.Inc()
	}
}

func (m *Metrics) givenBack(gateway string)         { m.backs.Of(gateway).Inc() }
func (m *Metrics) unopened(gateway string, n int64) { m.sealed.Of(gateway).Add(n) }
func (m *Metrics) unrouted(gateway string, n int64) { m.lost.Of(gateway).Add(n) }
func (m *Metrics) unrecorded(gateway string)        { m.tries.Of(gateway).Inc() }

// traceOpen records how long it took to open the attempt.
func (w *Worker) traceOpen(ctx context.Context, begun time.Time, opening job.Opening) {
	if tracing.Traced(ctx) {
		tracing.Step(ctx, "open", false, begun, w.cfg.Clock.Now(), attribute.String("spillway.opening", string(opening)))
	}
}

// traceCall records how long the job then waited for its slot, and the call. The span has the status, never the
// answer's body.
func (w *Worker) traceCall(ctx context.Context, begun time.Time, res job.Result) {
	if !tracing.Traced(ctx) {
		return
	}
	if res.Wrote.IsZero() {
		tracing.Step(ctx, "slot", false, begun, w.cfg.Clock.Now(), attribute.String("spillway.stage", string(res.Stage)))
		return
	}
	tracing.Step(ctx, "slot", false, begun, res.Wrote)
	tracing.Step(ctx, "call", true, res.Wrote, res.Wrote.Add(res.Took),
		attribute.String("spillway.stage", string(res.Stage)), attribute.Int("http.response.status_code", res.Status))
}

// traceOutcome records how long it took to record the job's outcome: that of a call, or its parking.
func (w *Worker) traceOutcome(ctx context.Context, name string, begun time.Time, what string) {
	if tracing.Traced(ctx) {
		tracing.Step(ctx, name, false, begun, w.cfg.Clock.Now(), attribute.String("spillway.outcome", what))
	}
}

// noteAttempt adds to the attempt's span what its log line says.
func noteAttempt(ctx context.Context, a job.Attempt, e job.Ending, next string) {
	if !tracing.Traced(ctx) {
		return
	}
	tracing.Note(ctx, e.Verdict != job.VerdictDone, attribute.String("spillway.batch", a.Job.Batch), attribute.String("spillway.route", a.Job.Route), attribute.Int("spillway.attempt", a.Calls+1),
		attribute.String("spillway.verdict", string(e.Verdict)), attribute.Int("http.response.status_code", e.Status), attribute.String("spillway.next", next))
}
