package deadletter

import "testing"

// Acts on a gateway, its lanes, routes and brakes concern no jobs, so no message speaks of "0 jobs" or of all jobs.
func TestActsUponGatewaysAreNoneUponJobs(t *testing.T) {
	t.Parallel()
	for what, steers := range map[string]bool{"pause": true, "resume": true, "limit set 5/s": true, "gateway rename a to b": true, "lane pause acct_1": true, "lane set m 5/s": true,
		"route resume refund": true, "brake lift 2h": true, "replay": false, "batch pause": false, "forget": false, "park": false} {
		if got := (Act{What: what}).Steers(); got != steers {
			t.Errorf("%s: %v", what, got)
		}
	}
}
