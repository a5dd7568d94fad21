package console

import (
	"net/url"
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/job"
)

// encrypt makes the console and the door use this key.
func (r *rig) encrypt(id, fill string) {
	r.t.Helper()
	e := &config.Encryption{Active: id, Keys: []config.EncryptionKey{{ID: id, Secret: config.Secret(strings.Repeat(fill, 32))}}}
	r.cfg.Gateways[0].Encryption, r.g.Encryption = e, e
	r.start("")
}

// The console shows a sealed payload only if it is asked for, and only with the key. The money is shown without the key.
func TestASealedPayloadIsShownWhenAskedFor(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.encrypt("k1", "a")
	r.park(1, `{"amount":1050,"currency":"EUR","card":"CANARY"}`, job.Refused, "HTTP 402")
	pages := []string{"/jobs/j0000?gateway=" + r.g.Name, "/gateways/" + r.g.Name + "?reason=refused"}
	for _, page := range pages {
		if _, body := r.get(page); strings.Contains(body, "CANARY") {
			t.Errorf("%s shows the payload", page)
		}
		if _, body := r.get(page + "&payload=1"); !strings.Contains(body, "CANARY") {
			t.Errorf("%s does not show the payload that was asked for", page)
		}
	}
	r.encrypt("k2", "b")
	for _, page := range pages {
		if _, body := r.get(page + "&payload=1"); strings.Contains(body, "CANARY") || !strings.Contains(body, "sealed with the key k1, which is not known here") {
			t.Errorf("%s without the key:\n%s", page, body)
		}
	}
	preview := "/gateways/" + r.g.Name + "/clear?" + url.Values{"do": {"discard"}, "reason": {"refused"}}.Encode()
	if _, body := r.get(preview); !strings.Contains(body, "EUR 10.50") {
		t.Errorf("the preview does not know the money:\n%s", body)
	}
}
