package incarnation

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of all watches of a process.
type Metrics struct{ doubted *prometheus.GaugeVec }

// NewMetrics registers the metrics, zero from the start for each gateway.
func NewMetrics(reg prometheus.Registerer, gateways []string) *Metrics {
	m := &Metrics{doubted: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_data_doubted",
		Help: "1 while nothing is called because Redis's data is older than what was seen of it, until run --after-restore."}, []string{"gateway"})}
	reg.MustRegister(m.doubted)
	for _, g := range gateways {
		m.set(g, 0)
	}
	return m
}

// Forget removes a gateway that is no longer served.
func (m *Metrics) Forget(gateway string) { m.doubted.DeleteLabelValues(gateway) }

func (m *Metrics) set(gateway string, v float64) { m.doubted.WithLabelValues(gateway).Set(v) }
