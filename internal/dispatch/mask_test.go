package dispatch

import (
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/outcome"
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
	m = newMask(config.Request{Headers: map[string]config.Secret{"Authorization": "Basic c2tfbGl2ZV84Og==", "X-Key": `a/b+c"d&e`}}) // sk_live_8:
	for _, said := range []string{`sk_live_8`, `c2tfbGl2ZV84Og==`, `a\/b+c\"d\u0026e`, `a%2Fb%2Bc%22d%26e`} {
		if got := string(m.hide([]byte(said))); got != "<secret>" {
			t.Errorf("%s became %s", said, got)
		}
	}
	if got := (mask{}).hide([]byte("as it is")); string(got) != "as it is" {
		t.Errorf("without secrets: %s", got)
	}
}

// The number of a merchant stands in a header and, as a number, in every answer: with <secret> in its place the answer would be no JSON,
// its rule would not be met, and a payment that the gateway put off would count as made.
func TestWhatAnAnswerMeansIsJudgedByTheAnswerAsItCame(t *testing.T) {
	t.Parallel()
	j, err := table(config.Gateway{Reference: "id",
		Request: config.Request{Headers: map[string]config.Secret{"X-Merchant": "7345612"}},
		Answers: config.Answers{Rules: []config.Rule{{Status: 200, Body: map[string]string{"code": "301"}, Then: "hold"}}}})
	if err != nil {
		t.Fatal(err)
	}
	say := func(body string) outcome.Judgement {
		return j.Judge(outcome.Input{Result: job.Result{Stage: job.Answered, Status: 200, Body: []byte(body)}})
	}
	if got := say(`{"merchant":7345612,"code":"301"}`); got.Verdict != job.VerdictHold || got.Error != `HTTP 200: {"merchant":<secret>,"code":"301"}` {
		t.Errorf("%+v", got)
	}
	if got := say(`{"merchant":7345612,"id":"7345612-pay-1"}`); got.Verdict != job.VerdictDone || got.Reference != "<secret>-pay-1" {
		t.Errorf("%+v", got)
	}
}
