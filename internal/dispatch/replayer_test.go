package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// costly offers n jobs of this cost. Those that find no room are parked as rejected.
func (r *rig) costly(name string, n int, cost int64) {
	r.t.Helper()
	var jobs []job.Job
	for i := range n {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("%s%04d", name, i), Gateway: r.cfg.Gateways[0].Name, Payload: []byte(`{}`), Cost: cost})
	}
	if _, err := Door(r.db.Client, r.cfg, patience).Admit(r.t.Context(), r.cfg.Gateways[0].Name, jobs, admission.Park); err != nil {
		r.t.Fatal(err)
	}
}

// Admission was made smaller, and some parked jobs cost more than it can ever grant. However many they are, they delay neither the jobs behind them nor
// newcomers, and the log reports all of them once.
func TestJobsThatNeverFitHoldNobodyUp(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [10000/s]}\nadmission: {limits: [1/h], burst: 40}")
	g := &r.cfg.Gateways[0]
	r.costly("first", 1, 40)
	const dear, cheap = 449, 100
	r.costly("dear", 30, 30)
	r.costly("before", cheap, 1)
	r.costly("very", dear-30, 35)
	r.costly("behind", cheap, 1)
	g.Admission.Limits, g.Admission.Burst = []job.Limit{{N: 10000, Window: time.Second}}, 20
	var log bytes.Buffer
	d, err := New(Params{DB: r.db, Gateways: r.cfg.Gateways, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&log, nil)), Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, "those that fit to be done", func() bool { return r.standing(0).Done == 2*cheap+1 })
	testkit.Eventually(t, 20*time.Second, "newcomers to pass", func() bool {
		before := r.standing(0).Parked[job.Rejected]
		r.costly(fmt.Sprintf("new%d", time.Now().UnixNano()), 1, 1)
		return r.standing(0).Parked[job.Rejected] == before
	})
	if s := r.standing(0); s.Parked[job.Rejected] < dear {
		t.Errorf("%+v", s)
	}

	g.Admission.Burst = 100 // raised again: they are looked at again, and go in
	if _, err := d.Reload(t.Context(), r.cfg.Gateways); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 40*time.Second, "all to go in", func() bool {
		s := r.standing(0)
		return s.Parked[job.Rejected] == 0 && s.Done >= 2*cheap+1+dear
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	d.Stop(ctx)
	if n := strings.Count(log.String(), "admission can ever grant"); n != 1 || !strings.Contains(log.String(), fmt.Sprint("jobs=", dear)) {
		var warned []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=WARN") {
				warned = append(warned, line)
			}
		}
		t.Errorf("the log says it %d times: %s", n, warned)
	}
}
