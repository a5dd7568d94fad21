package console

import (
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/job"
)

func TestEachReasonIsExplained(t *testing.T) {
	t.Parallel()
	for _, r := range job.Reasons() {
		why, next := parkedWhy(&desk.Gateway{Gateway: config.Gateway{Name: "g"}}, job.Record{Reason: r})
		if strings.Contains(why, "does not know") || next == "" {
			t.Errorf("%s: %q, %q", r, why, next)
		}
	}
}
