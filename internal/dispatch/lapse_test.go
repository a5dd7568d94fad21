package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Jobs that have expired take no slots: good jobs behind a crowd of them are called within seconds, at the limit. All of the others are parked as expired, but for one that may have been charged.
func TestExpiredJobsTakeNoSlots(t *testing.T) {
	t.Parallel()
	const expired, good = 2000, 20
	for name, settings := range map[string]string{
		"plain":   "",
		"classes": "\n" + classes,
		"lanes":   "\nlanes: {key: payload.m, limits: [50/s]}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &till{}
			virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, "leak: {limits: [50/s], jitter: 1ms}\nadmission: {limits: [10000/s], burst: 10000}"+settings, func(t *testing.T, r *rig) {
				var jobs []job.Job
				for i := range expired {
					jobs = append(jobs, job.Job{ID: fmt.Sprintf("e%04d", i), Payload: []byte(`{"m":"one"}`), Expires: time.Now().Add(-time.Minute)})
				}
				for i := range good {
					jobs = append(jobs, job.Job{ID: fmt.Sprintf("g%04d", i), Payload: []byte(`{"m":"one"}`)})
				}
				r.admit(jobs...)
				keys := redisdb.NewKeys(r.cfg.Gateways[0].Name)
				if err := r.db.Client.HSet(t.Context(), keys.Job("e1000"), record.Short("may_have_charged"), "1").Err(); err != nil {
					t.Fatal(err)
				}
				r.serve()
				begun := time.Now()
				testkit.Eventually(t, time.Minute, "the good jobs to be called", func() bool { return strings.Count(g.called(), "g") == good })
				if took := time.Since(begun); took > 3*time.Second {
					t.Errorf("the good jobs were called after %v: expired ones took the slots", took)
				}
				testkit.Eventually(t, time.Minute, "the others to be parked", func() bool {
					s := r.standing(0)
					return s.Done == good && s.Parked[job.Expired] == expired-1 && s.Parked[job.UnknownOutcome] == 1
				})
				if n := strings.Count(g.called(), "e"); n > 0 {
					t.Errorf("%d expired jobs were called", n)
				}
				if rec := r.found("e0999"); rec.Error != job.ExpiredUnsent {
					t.Errorf("an expired job is parked with %q", rec.Error)
				}
				r.clean()
			})
		})
	}
}
