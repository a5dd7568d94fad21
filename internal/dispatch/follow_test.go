package dispatch

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

const (
	atLeisure = "leak: {limits: [2/h]}\nadmission: {algorithm: %s%s}"
	swift     = 1000 // a second; at 2/h the tests would take a day
)

func (r *rig) set(limits ...job.Limit) {
	r.t.Helper()
	if err := SetLimits(r.t.Context(), r.db.Client, r.cfg.Gateways[0], limits); err != nil {
		r.t.Fatal(err)
	}
}

// If the file has no limits for admission, jobs that wait for room are admitted at the limits that are set live, whatever the
// algorithm.
func TestAdmissionFollowsLimitsSetLive(t *testing.T) {
	t.Parallel()
	for algorithm, burst := range map[string]string{"token-bucket": ", burst: 2", "leaky-bucket": ", burst: 2", "fixed-window": "", "sliding-window": "", "sliding-log": ""} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			r := setup(t, fmt.Sprintf(atLeisure, algorithm, burst))
			r.serve()
			r.put(0, 40)
			if n := r.standing(0).Parked[job.Rejected]; n != 38 {
				t.Fatalf("%d jobs parked at 2/h, want 38", n)
			}
			r.set(job.Limit{N: swift, Window: time.Second})
			testkit.Eventually(t, 30*time.Second, "all jobs to be let in", func() bool { return r.standing(0).Parked[job.Rejected] == 0 })
		})
	}
}

// A producer that waits for room follows limits set live, too. After a reset, the file's limits apply to its next offer.
func TestAProducerAtTheDoorFollowsLimitsSetLive(t *testing.T) {
	t.Parallel()
	r := setup(t, fmt.Sprintf(atLeisure, "token-bucket", ", burst: 2"))
	name := r.cfg.Gateways[0].Name
	door := Door(r.db.Client, r.cfg, patience)
	offer := func(mode admission.Mode, prefix string) []admission.Answer {
		var jobs []job.Job
		for i := range 40 {
			jobs = append(jobs, job.Job{ID: fmt.Sprint(prefix, i), Gateway: name})
		}
		answers, err := door.Admit(t.Context(), name, jobs, mode)
		if err != nil {
			t.Error(err)
		}
		return answers
	}
	all := make(chan []admission.Answer)
	go func() { all <- offer(admission.Wait, "a") }()
	testkit.Eventually(t, 30*time.Second, "the first jobs to be in", func() bool { return r.standing(0).Queued == 2 })
	r.set(job.Limit{N: swift, Window: time.Second})
	<-all
	if n := r.standing(0).Queued; n != 40 {
		t.Errorf("%d jobs queued, want 40", n)
	}
	r.set()
	testkit.Eventually(t, 30*time.Second, "no room for forty at once", func() bool {
		offer(admission.Fail, fmt.Sprint("b", time.Now().UnixNano()))
		n := 0
		for _, a := range offer(admission.Fail, fmt.Sprint("c", time.Now().UnixNano())) {
			if a.Outcome == job.Full && a.RetryAfter > time.Minute {
				n++
			}
		}
		return n == 40
	})
}

// Limits that the file has for admission hold, whatever is set live.
func TestAdmissionsOwnLimitsStay(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [100/s]}\nadmission: {limits: [2/h], burst: 2}")
	r.set(job.Limit{N: swift, Window: time.Second})
	r.put(0, 40)
	if n := r.standing(0).Parked[job.Rejected]; n != 38 {
		t.Errorf("%d jobs parked at admission's own 2/h, want 38", n)
	}
}
