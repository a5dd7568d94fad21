package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/record"
)

// A look-up carries its job's lane, as the call did, so the gateway counts both. Together they keep the lane's limit, and neither waits for ever.
func TestLookUpsKeepTheLimitsOfLanes(t *testing.T) {
	t.Parallel()
	c := newCashier()
	beforeVirtually(t, c, strings.Replace(asked, "lookup:", `lanes: {key: lane, limits: [5/s], header: {Merchant: "{lane}"}}
lookup:`, 1), func(t *testing.T, r *rig) {
		name := r.cfg.Gateways[0].Name
		var jobs []job.Job
		for i := range 12 {
			id := fmt.Sprintf("lost-%d", i)
			jobs = append(jobs, job.Job{ID: id, Gateway: name, Lane: "m", Payload: fmt.Appendf(nil, `{"id":%q}`, id), Cost: 1})
		}
		if _, err := Door(r.db.Client, r.cfg, patience).Admit(t.Context(), name, jobs, admission.Park); err != nil {
			t.Fatal(err)
		}
		r.serve()
		r.until("done", func(s record.Standing) bool { return s.Done == int64(len(jobs)) })
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.looks) < len(jobs) {
			t.Fatalf("%d look-ups of %d jobs", len(c.looks), len(jobs))
		}
		for i, at := range c.all {
			n := 1
			for n <= i && at-c.all[i-n] < time.Second.Microseconds() {
				n++
			}
			if n > 5 {
				t.Errorf("%d calls and look-ups of one lane in a second, at %d of %v", n, i, c.all)
			}
		}
	})
}
