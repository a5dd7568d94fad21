package dispatch

import (
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// At its start, run warns once of all gateways that may charge twice if Redis forgets a call.
func TestKeylessGatewaysAreWarnedOfAtTheStart(t *testing.T) {
	t.Parallel()
	r := setup(t, quick, quick)
	r.cfg.Gateways[0].Request.Key.Name = ""
	forgets := r.cfg.Gateways[1]
	forgets.Request.KeyForgets = true
	if f := Keyless([]config.Gateway{forgets}, redisdb.Health{AOF: true, Fsync: "everysec"}, 0); f == nil || !strings.Contains(f.Message, forgets.Name) {
		t.Errorf("a key that covers no second call: %+v", f)
	}
	for fsync, want := range map[string]int{"everysec": 1, "always": 0} {
		r.on(testkit.Server(t, "--appendonly", "yes", "--appendfsync", fsync))
		found, err := LookForKeyless(t.Context(), r.db, r.cfg.Gateways, 0, patience)
		if err != nil || len(found) != want {
			t.Errorf("%s: %v, %v", fsync, found, err)
		}
		for _, f := range found {
			if !strings.Contains(f.Message, r.cfg.Gateways[0].Name+" carry no") || strings.Contains(f.Message, r.cfg.Gateways[1].Name) || f.Hint == "" {
				t.Errorf("%+v", f)
			}
		}
	}
}
