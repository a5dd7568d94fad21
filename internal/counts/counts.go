// Package counts has per-gateway counters for Prometheus. A process may serve thousands of gateways with dozens
// of counters each, which all start at zero, because a rate needs a first value. In a prometheus.CounterVec
// they would be most of what the garbage collector scans: each is half a kilobyte in half a dozen objects. Here
// a gateway's counters of one name are a single object, and become metrics at each scrape.
package counts

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Counter is a counter. It is safe for concurrent use.
type Counter struct{ n atomic.Uint64 }

// Inc adds one.
func (c *Counter) Inc() { c.n.Add(1) }

// Add adds n, which must not be negative.
func (c *Counter) Add(n int64) { c.n.Add(uint64(max(n, 0))) }

// Value returns the count.
func (c *Counter) Value() uint64 { return c.n.Load() }

// Vec is the counters of one name, by gateway and, optionally, by a label with known values. It is safe for
// concurrent use.
type Vec struct {
	desc   *prometheus.Desc
	values []string         // of the label; a single empty one if there is none
	labels []*dto.LabelPair // of each value

	mu  sync.Mutex
	all map[string][]Counter // by gateway, in the order of values
}

// New returns counters by gateway, and registers them. With a nil registerer they are not registered.
func New(reg prometheus.Registerer, name, help string) *Vec {
	return register(reg, &Vec{desc: prometheus.NewDesc(name, help, []string{"gateway"}, nil), values: []string{""}})
}

// NewBy returns counters by gateway and a label with exactly these values, and registers them.
func NewBy(reg prometheus.Registerer, name, help, label string, values []string) *Vec {
	v := &Vec{desc: prometheus.NewDesc(name, help, []string{"gateway", label}, nil), values: values}
	for _, value := range values {
		v.labels = append(v.labels, Label(label, value))
	}
	return register(reg, v)
}

func register(reg prometheus.Registerer, v *Vec) *Vec {
	v.all = make(map[string][]Counter)
	if reg != nil {
		reg.MustRegister(v)
	}
	return v
}

// Of returns the counter of a gateway. All counters of the gateway exist from then on, at zero.
func (v *Vec) Of(gateway string) *Counter { return &v.of(gateway)[0] }

// By returns the counter of a gateway and a label value; nil for an unknown value.
func (v *Vec) By(gateway, value string) *Counter {
	i := slices.Index(v.values, value)
	if i < 0 {
		return nil
	}
	return &v.of(gateway)[i]
}

func (v *Vec) of(gateway string) []Counter {
	v.mu.Lock()
	defer v.mu.Unlock()
	own := v.all[gateway]
	if own == nil {
		own = make([]Counter, len(v.values))
		v.all[gateway] = own
	}
	return own
}

// Forget removes the counters of a gateway. Counters still in use are no longer exported.
func (v *Vec) Forget(gateway string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.all, gateway)
}

// Describe implements prometheus.Collector.
func (v *Vec) Describe(out chan<- *prometheus.Desc) { out <- v.desc }

// Collect implements prometheus.Collector.
func (v *Vec) Collect(out chan<- prometheus.Metric) {
	for _, m := range v.metrics() {
		out <- m
	}
}

func (v *Vec) metrics() []prometheus.Metric {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]prometheus.Metric, 0, len(v.all)*len(v.values))
	for gateway, own := range v.all {
		of := Gateway(gateway)
		for i := range own {
			labels := of
			if len(v.labels) > 0 {
				labels = of.With(v.labels[i])
			}
			all = append(all, &Sample{Of: v.desc, Labels: labels, Value: float64(own[i].Value()), Counts: true})
		}
	}
	return all
}

// Labels are the labels of a sample, sorted by name. Samples may share them.
type Labels []*dto.LabelPair

// Label returns a label.
func Label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// Gateway returns the labels of a gateway's metrics.
func Gateway(name string) Labels { return Labels{Label("gateway", name)} }

// With returns labels with one more.
func (l Labels) With(more *dto.LabelPair) Labels {
	i, _ := slices.BinarySearchFunc(l, more, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return slices.Insert(l[:len(l):len(l)], i, more)
}

// Sample is a metric at the time of a scrape. With shared labels it takes a fifth of the memory of
// prometheus.MustNewConstMetric, which matters with hundreds of thousands of samples for thousands of gateways.
type Sample struct {
	Of     *prometheus.Desc // with these labels
	Labels Labels
	Value  float64
	Counts bool // a counter; otherwise a gauge
}

// Desc implements prometheus.Metric.
func (s *Sample) Desc() *prometheus.Desc { return s.Of }

// Write implements prometheus.Metric.
func (s *Sample) Write(out *dto.Metric) error {
	out.Label = s.Labels
	if s.Counts {
		out.Counter = &dto.Counter{Value: &s.Value}
	} else {
		out.Gauge = &dto.Gauge{Value: &s.Value}
	}
	return nil
}
