package desk

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// Many ids that are not parked are told once each, and are not compared with one another.
func TestManyUnknownIDsAreFoundMissingAtOnce(t *testing.T) {
	t.Parallel()
	ids := make([]string, 0, 300_001)
	for i := range 300_000 {
		ids = append(ids, fmt.Sprintf("2026-11/customer-%d/invoice", 100_000+i))
	}
	ids = append(ids, ids[7])
	begun := time.Now()
	if got := unmet(ids, map[string]bool{ids[3]: true}); len(got) != 299_999 || got[3] != ids[4] || slices.Contains(got, ids[3]) {
		t.Errorf("%d: %v …", len(got), got[:5])
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	g := one(t)
	if err := g.Store.ParkUnreadable(t.Context(), "parked", []byte("x"), "foreign"); err != nil {
		t.Fatal(err)
	}
	s := Selection{Desk: &Desk{Gateways: []*Gateway{g}}, Filter: deadletter.Filter{IDs: []string{"none", "parked", "nor", "none"}}}
	var met []string
	missing, err := s.Each(t.Context(), func(_ *Gateway, r job.Record) error {
		met = append(met, r.Job.ID)
		return nil
	})
	if err != nil || !slices.Equal(met, []string{"parked"}) || !slices.Equal(missing, []string{"none", "nor"}) {
		t.Errorf("met %v, missing %v: %v", met, missing, err)
	}
}
