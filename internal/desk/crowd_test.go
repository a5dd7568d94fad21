package desk

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// Each view of 300 gateways takes as few round trips as one of a few gateways.
func TestALookAtManyGatewaysTakesAFewRoundTrips(t *testing.T) {
	t.Parallel()
	const all = 300
	gateways := make([]config.Gateway, all)
	prefix := testkit.Gateway(t)
	for i := range gateways {
		gateways[i] = config.DefaultGateway()
		gateways[i].Name = fmt.Sprint(prefix, "-", i)
		gateways[i].Leak.Limits = []job.Limit{{N: 5, Window: 1e9}}
		gateways[i].Admission.Limits = gateways[i].Leak.Limits
	}
	c := testkit.Client(t)
	count := testkit.Trips(c)
	d := New(c, gateways)
	for what, look := range map[string]func() (int, error){
		"status": func() (int, error) { s, err := d.Status(t.Context()); return len(s), err },
		"well":   func() (int, error) { s, err := d.StatusOfWell(t.Context()); return len(s), err },
		"watch":  func() (int, error) { s, damaged, err := d.Watch(t.Context()); return len(s), errors.Join(damaged, err) },
		"needs": func() (int, error) {
			s, err := d.Status(t.Context())
			if err != nil {
				return 0, err
			}
			for i := range s {
				s[i].Parked = map[string]int64{"refused": 1} // a batch may have stopped itself
			}
			_, _, err = d.Needs(t.Context(), s, nil)
			return len(s), err
		},
		"calls": func() (int, error) {
			s, err := d.Status(t.Context())
			if err != nil {
				return 0, err
			}
			calls, err := d.Calls(t.Context(), s)
			return len(calls), err
		},
		"call history": func() (int, error) {
			h, err := d.CallHistory(t.Context(), time.Time{}, ByGateway)
			return all + len(h.Rows), err
		},
		"job": func() (int, error) {
			_, err := d.Find(t.Context(), "nobody's")
			if job.CodeOf(err) != job.CodeNotFound {
				return 0, err
			}
			return all, nil
		},
		"batch": func() (int, error) {
			if _, err := d.Batch(t.Context(), "nobody's"); job.CodeOf(err) != job.CodeNotFound {
				return 0, err
			}
			return all, nil
		},
	} {
		count.Store(0)
		n, err := look()
		if err != nil || n != all {
			t.Errorf("%s: %d gateways, %v", what, n, err)
		}
		if trips := count.Load(); trips > 40 {
			t.Errorf("%s: %d round trips for %d gateways, want 40 at most", what, trips, all)
		}
	}
}
