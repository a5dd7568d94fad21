package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/job"
)

// Metrics are the worker's instruments.
type Metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	parks   *prometheus.CounterVec
	backs   *prometheus.CounterVec
	tries   *prometheus.CounterVec
	limited *prometheus.CounterVec
}

// NewMetrics registers the worker's instruments, zero from the start for each gateway.
func NewMetrics(reg prometheus.Registerer, gateways []string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"gateway"}, labels...))
		reg.MustRegister(v)
		return v
	}
	m := &Metrics{
		calls:   counter("spillway_calls_total", "Calls by what their outcome meant.", "verdict"),
		parks:   counter("spillway_parked_total", "Jobs this process parked, by reason.", "reason"),
		backs:   counter("spillway_given_back_total", "Jobs put back at the head of the queue uncalled, their slot having passed."),
		tries:   counter("spillway_record_retries_total", "Times that writing an outcome down had to be tried again."),
		limited: counter("spillway_too_many_requests_total", "Answers with status 429."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_call_duration_seconds",
			Help: "Time from the write of a call to its end.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 14)}, []string{"gateway"}),
	}
	reg.MustRegister(m.seconds)
	for _, g := range gateways {
		m.zero(g)
	}
	return m
}

func (m *Metrics) zero(gateway string) {
	for _, v := range job.Verdicts() {
		m.calls.WithLabelValues(gateway, string(v))
	}
	for _, r := range job.Reasons() {
		m.parks.WithLabelValues(gateway, string(r))
	}
	for _, c := range []*prometheus.CounterVec{m.backs, m.tries, m.limited} {
		c.WithLabelValues(gateway)
	}
	m.seconds.WithLabelValues(gateway)
}

func (m *Metrics) called(gateway string, v job.Verdict, res job.Result) {
	m.calls.WithLabelValues(gateway, string(v)).Inc()
	if res.Stage != job.NotSent {
		m.seconds.WithLabelValues(gateway).Observe(res.Took.Seconds())
	}
	if res.Status == 429 {
		m.limited.WithLabelValues(gateway).Inc()
	}
}

func (m *Metrics) parked(gateway string, r job.Reason) {
	m.parks.WithLabelValues(gateway, string(r)).Inc()
}

func (m *Metrics) givenBack(gateway string)  { m.backs.WithLabelValues(gateway).Inc() }
func (m *Metrics) unrecorded(gateway string) { m.tries.WithLabelValues(gateway).Inc() }
