//go:build monitoring

package test

import (
	"os/exec"
	"testing"
)

func TestPromtoolIsContentWithTheRules(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"check", "rules", "../deploy/prometheus/alerts.yml"},
		{"test", "rules", "../deploy/prometheus/alerts_test.yml"},
		{"check", "config", "--syntax-only", "../deploy/prometheus/prometheus.yml"},
	} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
