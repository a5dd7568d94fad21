package dispatch

import (
	"strings"
	"testing"

	"spillway/internal/config"
)

func TestSecretsThatAGatewayRepeatsAreMasked(t *testing.T) {
	t.Parallel()
	m := newMask(config.Request{
		URL:   "https://user:url-password@pay.example/v1?api_key=key%2Fin+url&page=10000000&sig={payload.signature}",
		Proxy: "http://proxy:proxy-password@10.0.0.1",
		Headers: map[string]config.Secret{"Authorization": "Bearer sk_live_1", "X-Tenant": "tenant-secret", "Content-Type": "application/json",
			"Stripe-Version": "2024-06-20", "X-Short": "on"},
		Sign: config.Sign{Secret: "hmac-secret"},
	})
	said := `Bearer sk_live_1|sk_live_1|tenant-secret|key/in url|key%2Fin+url|url-password|proxy-password|hmac-secret`
	got := string(m.hide([]byte(said)))
	if rest := strings.ReplaceAll(got, "<secret>", ""); strings.Trim(rest, "|") != "" {
		t.Errorf("still there: %s", rest)
	}
	for _, kept := range []string{"application/json", "2024-06-20", "on", "10000000", "https://pay.example", "{payload.signature}"} {
		if got := string(m.hide([]byte(kept))); got != kept {
			t.Errorf("%s became %s", kept, got)
		}
	}
	if got := (mask{}).hide([]byte("as it is")); string(got) != "as it is" {
		t.Errorf("without secrets: %s", got)
	}
}
