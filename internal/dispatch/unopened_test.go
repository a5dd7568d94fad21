package dispatch

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/seal"
	"spillway/internal/testkit"
)

// encrypting returns the configuration of keys, of which the first one seals.
func encrypting(ids ...string) *config.Encryption {
	e := &config.Encryption{Active: ids[0]}
	for _, id := range ids {
		e.Keys = append(e.Keys, config.EncryptionKey{ID: id, Secret: config.Secret(bytes.Repeat([]byte(id[:1]), seal.KeyBytes))})
	}
	return e
}

// Jobs whose key is missing from the file are pulled once. Tried again each minute at a slot, a crowd of them would take every second slot of the good jobs, for as long as it waits. When the key is back,
// all of them are called.
func TestJobsWithoutTheirKeyTakeNoSlots(t *testing.T) {
	t.Parallel()
	const perSecond, unopened, good = 20, 800, 3200
	g := &till{}
	settings := fmt.Sprintf("leak: {limits: [%d/s], jitter: 1ms}\nadmission: {limits: [10000/s], burst: 20000}", perSecond)
	virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, settings, func(t *testing.T, r *rig) {
		r.cfg.Gateways[0].Encryption = encrypting("old")
		r.admit(several("u", 0, unopened, "")...)
		r.cfg.Gateways[0].Encryption = encrypting("new")
		d := r.serve()
		testkit.Eventually(t, time.Minute, "all to be put aside", func() bool { return r.standing(0).Retrying == unopened })
		for from := 0; from < good; from += 800 {
			r.admit(several("g", from, 800, "")...)
		}
		<-time.After(90 * time.Second) // by now all have been due again
		const long = 30 * time.Second
		before := strings.Count(g.called(), "g")
		<-time.After(long)
		if rate := float64(strings.Count(g.called(), "g")-before) / long.Seconds(); rate < 0.95*perSecond {
			t.Errorf("%.1f good jobs a second were called: those without their key took the other slots", rate)
		}
		if s := r.standing(0); s.Retrying != unopened || strings.Contains(g.called(), "u") {
			t.Errorf("%d of %d wait for their key", s.Retrying, unopened)
		}
		both := r.cfg.Gateways[0]
		both.Encryption = encrypting("new", "old")
		if _, err := d.Reload(t.Context(), []config.Gateway{both}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 5*time.Minute, "all to be called", func() bool { return r.standing(0).Done == unopened+good })
		r.clean()
	})
}
