package access

import "github.com/prometheus/client_golang/prometheus"

// The results of requesting a token.
const (
	granted = "granted"
	refused = "refused" // the endpoint refused
	failed  = "failed"  // it could not be reached, or failed
)

// Metrics are the metrics of all keepers of a process.
type Metrics struct{ requests, drops *prometheus.CounterVec }

// NewMetrics registers the metrics. With a nil reg it registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_token_requests_total",
			Help: "Requests of this process for access tokens (OAuth 2), by result."}, []string{"gateway", "result"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_tokens_refused_total",
			Help: "Access tokens that this process dropped, since the gateway answered 401."}, []string{"gateway"}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.drops)
	}
	return m
}

// begin sets the metrics of a gateway to zero.
func (m *Metrics) begin(gateway string) {
	for _, result := range []string{granted, refused, failed} {
		m.requests.WithLabelValues(gateway, result)
	}
	m.drops.WithLabelValues(gateway)
}

// Forget removes the metrics of a gateway that is no longer served.
func (m *Metrics) Forget(gateway string) {
	m.requests.DeletePartialMatch(prometheus.Labels{"gateway": gateway})
	m.drops.DeletePartialMatch(prometheus.Labels{"gateway": gateway})
}

func (m *Metrics) asked(gateway string, got Answer, err error) {
	result := granted
	switch {
	case err != nil && got.Refused:
		result = refused
	case err != nil:
		result = failed
	}
	m.requests.WithLabelValues(gateway, result).Inc()
}

func (m *Metrics) dropped(gateway string) { m.drops.WithLabelValues(gateway).Inc() }
