package bucket

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/counts"
)

// Metrics are the pacer's metrics. One set serves all gateways of a process.
type Metrics struct {
	granted     *counts.Vec
	released    *counts.Vec
	late        *counts.Vec
	lost        *counts.Vec
	holds       *counts.Vec
	quarantines *counts.Vec
	opened      *counts.Vec
	circuit     *prometheus.GaugeVec
	lateness    *prometheus.HistogramVec
	fullest     *prometheus.GaugeVec
}

// NewMetrics registers the pacer's metrics. A nil reg leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) *counts.Vec { return counts.New(reg, "spillway_"+name, help) }
	m := &Metrics{
		granted:     counter("slots_granted_total", "Slots that Redis granted to this process."),
		released:    counter("slots_released_total", "Slots given back unused."),
		late:        counter("slots_late_total", "Calls written more than 2 ms after their slot (less for windows shorter than 400 ms)."),
		lost:        counter("slots_lost_total", "Slots that may have been charged without being used, as no answer came from Redis, or whose late write came to be known too late."),
		holds:       counter("holds_total", "Holds that this process set."),
		quarantines: counter("pacer_quarantines_total", "Pauses of one window after Redis had lost writes or its clock had jumped."),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "spillway_slot_lateness_seconds",
			Help:    "From the slot to the write of its call, at most.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, 1},
		}, []string{"gateway"}),
	}
	m.opened = counter("circuit_opened_total", "Times that a failure seen by this process opened the circuit.")
	m.circuit = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spillway_circuit_open", Help: "1 while the circuit is open, as far as this process knows; 0 else.",
	}, []string{"gateway"})
	m.fullest = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spillway_window_units_max",
		Help: "The most units that this process has written in any rolling window of a limit: its own audit. Never above the limit.",
	}, []string{"gateway", "window"})
	if reg != nil {
		reg.MustRegister(m.circuit, m.lateness, m.fullest)
	}
	return m
}

// Forget removes the metrics of a gateway that is no longer served.
func (m *Metrics) Forget(gateway string) {
	for _, c := range []*counts.Vec{m.granted, m.released, m.late, m.lost, m.holds, m.quarantines, m.opened} {
		c.Forget(gateway)
	}
	m.circuit.DeleteLabelValues(gateway)
	m.lateness.DeleteLabelValues(gateway)
	m.fullest.DeletePartialMatch(prometheus.Labels{"gateway": gateway})
}

// instruments are the metrics of one gateway. Every counter exists from the start, at zero; the histogram from
// the first call on.
type instruments struct {
	granted, released, late, lost, holds, quarantines, opened *counts.Counter

	circuit  *openGauge
	lateness func() prometheus.Observer // created when first used
	fullest  *prometheus.GaugeVec       // by window
}

func (m *Metrics) of(gateway string) instruments {
	return instruments{
		granted:     m.granted.Of(gateway),
		released:    m.released.Of(gateway),
		late:        m.late.Of(gateway),
		lost:        m.lost.Of(gateway),
		holds:       m.holds.Of(gateway),
		quarantines: m.quarantines.Of(gateway),
		opened:      m.opened.Of(gateway),
		circuit:     &openGauge{shown: m.circuit.WithLabelValues(gateway)},
		lateness:    sync.OnceValue(func() prometheus.Observer { return m.lateness.WithLabelValues(gateway) }),
		fullest:     m.fullest.MustCurryWith(prometheus.Labels{"gateway": gateway}),
	}
}
