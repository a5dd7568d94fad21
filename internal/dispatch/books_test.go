package dispatch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// Admission can keep every configuration that config accepts, and the highest cost of a job depends on admission and on the leak.
func TestEveryAlgorithmIsWired(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	for admission, most := range map[string]int64{
		"{algorithm: token-bucket, burst: 70}":                      70,
		"{algorithm: token-bucket, burst: 6000}":                    100,
		"{algorithm: token-bucket, limits: [1/365d], burst: 71}":    71,
		"{algorithm: leaky-bucket, burst: 8}":                       8,
		"{algorithm: leaky-bucket, limits: [1/365d], burst: 71}":    71,
		"{algorithm: leaky-bucket, limits: [70368744177664/1us]}":   100,
		"{algorithm: fixed-window, limits: [50/s, 40/m]}":           40,
		"{algorithm: sliding-window, limits: [9/h], precision: 1}":  9,
		"{algorithm: sliding-window, precision: 1000}":              100,
		"{algorithm: sliding-log, limits: [70368744177664/365d]}":   100,
		"{limits: [1/s, 2/m, 3/h, 4/d, 5/2d, 6/3d, 7/4d, 8/5d]}":    100,
		"{algorithm: sliding-log, limits: [1000/d]}":                100,
		"{algorithm: token-bucket, limits: [1/1us], burst: 100000}": 100,
	} {
		file := filepath.Join(t.TempDir(), "dispatcher.yaml")
		text := fmt.Sprintf("gateways:\n  g:\n    request: {url: https://api.example.com/}\n    leak: {limits: [100/s]}\n    admission: %s\n", admission)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(file, config.Options{})
		if err != nil {
			t.Errorf("%s: %v", admission, err)
			continue
		}
		if err := bookkeeping(nil, cfg.Gateways[0]).Unkept; err != nil || MaxCost(cfg.Gateways[0]) != most {
			t.Errorf("%s: %v, a cost of up to %d, want %d", admission, err, MaxCost(cfg.Gateways[0]), most)
		}
		tried[cfg.Gateways[0].Admission.Algorithm] = true
	}
	if len(tried) != len(job.Algorithms()) {
		t.Errorf("only %v were tried", tried)
	}
}

// Admission with a configuration that can't be kept, and that config refuses, admits nothing and says why. Everything else works.
func TestAdmissionThatCanNotBeKeptSaysSo(t *testing.T) {
	t.Parallel()
	db, g := testkit.Client(t), config.Gateway{Name: testkit.Gateway(t), Admission: config.Admission{Algorithm: "guess"}, Dedupe: time.Hour}
	books := Books(db, g)
	_, _, err := testkit.Accept(t.Context(), books, job.Ticket{Sequence: "l", Number: 1}, []job.Newcomer{{Job: job.Job{ID: "a", Cost: 1, Payload: []byte("{}")}, Digest: "d"}}, "park")
	if err == nil || !strings.Contains(err.Error(), g.Name) || !strings.Contains(err.Error(), "guess") {
		t.Errorf("a newcomer: %v", err)
	}
	if _, _, err := books.Readmit(t.Context(), []job.Return{{ID: "a", Generation: 1, Reason: job.Rejected}}); err == nil || !strings.Contains(err.Error(), "guess") {
		t.Errorf("a parked job: %v", err)
	}
	if _, err := books.Look(t.Context()); err != nil {
		t.Error(err)
	}
}
