package dispatch

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Somebody who can write to Redis but has no key replaces a sealed payload with a plain one. That job is never called. The other one is.
func TestAPlainPayloadInThePlaceOfASealedOneIsNotCalled(t *testing.T) {
	t.Parallel()
	r := setup(t, quick)
	g := &r.cfg.Gateways[0]
	secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	cfg, err := config.Parse("x.yaml", []byte("encryption: {keys: {k1: \"${KEY}\"}, active: k1}\ngateways: {g: {request: {url: \"http://x\"}, leak: {limits: [1/s]}}}"),
		config.Options{Payloads: true, Env: func(string) (string, bool) { return secret, true }})
	if err != nil {
		t.Fatal(err)
	}
	g.Encryption = cfg.Encryption
	r.put(0, 2)
	record := redisdb.NewKeys(g.Name).Job("j0000")
	if err := r.db.Client.HSet(t.Context(), record, "p", `{"amount":999999,"iban":"MULE"}`).Err(); err != nil {
		t.Fatal(err)
	}
	r.db.Client.HDel(t.Context(), record, "pn", "p1", "p2")
	r.serve()
	testkit.Eventually(t, 20*time.Second, "both to be at their ends", func() bool {
		s := r.standing(0)
		return s.Done+s.Parked[job.Unreadable] == 2
	})
	if s := r.standing(0); s.Done != 1 || r.count() != 1 {
		t.Errorf("%d calls, %+v", r.count(), s)
	}
}
