package counts

import (
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Prometheus reads the same as from a CounterVec of the same names, at zero from the start.
func TestCountersAreThereAtZeroAndCount(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	plain := New(reg, "calls_total", "Calls.")
	by := NewBy(reg, "ends_total", "Ends.", "how", []string{"well", "badly"})
	plain.Of("a")
	plain.Of("b").Add(2)
	plain.Of("b").Inc()
	plain.Of("b").Add(-5)
	by.By("b", "badly").Inc()
	if by.By("b", "oddly") != nil {
		t.Error("there is a counter of a value that the label does not have")
	}
	plain.Of("gone").Inc()
	plain.Forget("gone")
	const want = `
# HELP calls_total Calls.
# TYPE calls_total counter
calls_total{gateway="a"} 0
calls_total{gateway="b"} 3
# HELP ends_total Ends.
# TYPE ends_total counter
ends_total{gateway="b",how="badly"} 1
ends_total{gateway="b",how="well"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// Counters that come and go while they are read and counted lose nothing that is counted for a gateway that stays.
func TestCountersAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	v, done := New(nil, "calls_total", "Calls."), sync.WaitGroup{}
	for range 4 {
		done.Go(func() {
			for range 1000 {
				v.Of("stays").Inc()
				v.Of("goes").Inc()
				v.Forget("goes")
				v.metrics()
			}
		})
	}
	done.Wait()
	if n := v.Of("stays").Value(); n != 4000 {
		t.Errorf("%d, want 4000", n)
	}
}

// Labels are sorted by name, in whatever order they come, and label sets that share some have their own others.
func TestLabelsAreInOrder(t *testing.T) {
	t.Parallel()
	of := Gateway("g")
	for want, l := range map[string]Labels{
		"gateway=g": of, "class=c gateway=g": of.With(Label("class", "c")), "gateway=g reason=r": of.With(Label("reason", "r")),
		"currency=EUR gateway=g reason=r": of.With(Label("reason", "r")).With(Label("currency", "EUR")),
	} {
		var got []string
		for _, pair := range l {
			got = append(got, pair.GetName()+"="+pair.GetValue())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s, want %s", s, want)
		}
	}
}
