package double

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// grant asks for a token: client is ID:SECRET for HTTP Basic, and form what is posted.
func (r *rig) grant(path, client, form string) said {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, r.url+path, strings.NewReader(form))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if id, secret, basic := strings.Cut(client, ":"); basic {
		req.SetBasicAuth(id, secret)
	}
	return r.do(req)
}

// bearer asks for a token and returns it as a header.
func (r *rig) bearer(path string) map[string]string {
	r.t.Helper()
	got := r.grant(path, "shop:secret", "grant_type=client_credentials")
	_, rest, _ := strings.Cut(got.body, `"access_token":"`)
	token, _, ok := strings.Cut(rest, `"`)
	if got.status != 200 || !ok {
		r.t.Fatalf("no token: %d %s", got.status, got.body)
	}
	return map[string]string{"Authorization": "Bearer " + token}
}

// Each gateway with OAuth has its own endpoint and its own life of tokens, and refuses an expired one with its own answer.
func TestTokensEndAfterTheirLife(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gateway, path string
		life          time.Duration
		says          string
	}{
		{"paypal/orders-v2", "/v1/oauth2/token", 9 * time.Hour, "invalid_token"},
		{"paypal/payments-v2", "/v1/oauth2/token", 9 * time.Hour, "invalid_token"},
		{"paypal/payouts-v1", "/v1/oauth2/token", 9 * time.Hour, "invalid_token"},
		{"mangopay/v2", "/v2.01/oauth/token", time.Hour, "invalid_token"},
		{"qonto/v2", "/oauth2/token", time.Hour, "unauthorized"},
		{"wise/v1", "/oauth/token", 12 * time.Hour, "invalid_token"},
	} {
		for _, set := range []time.Duration{0, 20 * time.Second} {
			r, life := newRig(t, c.gateway, Options{TokenLife: set}), set
			if set == 0 {
				life = c.life
			}
			header := r.bearer(c.path)
			r.hands.advance(life - 1)
			if got := r.pay(charge{job: "inv-1", key: keyOf("inv-1"), header: header}); got.status/100 != 2 {
				t.Errorf("%s, a good token: %d %s", c.gateway, got.status, got.body)
			}
			r.hands.advance(1)
			r.want(c.gateway+", one that has ended", r.pay(charge{job: "inv-2", key: keyOf("inv-2"), header: header}), 401, c.says)
			r.want(c.gateway+", one that never was", r.pay(charge{job: "inv-2", key: keyOf("inv-2"), header: map[string]string{"Authorization": "Bearer tok_99"}}), 401, c.says)
			if got := r.pay(charge{job: "inv-2", key: keyOf("inv-2")}); got.status/100 != 2 {
				t.Errorf("%s, a static credential: %d %s", c.gateway, got.status, got.body)
			}
			if n := r.made(); n != 2 {
				t.Errorf("%s: %d payments, want 2", c.gateway, n)
			}
		}
	}
}

func TestTheTokenEndpoint(t *testing.T) {
	t.Parallel()
	const path, good = "/v1/oauth2/token", "grant_type=client_credentials"
	r := newRig(t, "paypal/orders-v2", Options{Client: "shop:s%c:ret", TokenLife: 20 * time.Second})
	for _, c := range []struct {
		what, client, form string
		status             int
		says               string
	}{
		{"the client in HTTP Basic", "shop:s%25c%3Aret", good, 200, `"token_type":"Bearer","expires_in":20`},
		{"the client in the form", "", good + "&client_id=shop&client_secret=s%25c%3Aret", 200, `"access_token":"tok_2"`},
		{"nobody", "", good, 401, "invalid_client"},
		{"another client", "sho:s%25c%3Aret", good, 401, "invalid_client"},
		{"a wrong secret", "shop:secret", good, 401, "invalid_client"},
		{"no secret", "shop:", good, 401, "invalid_client"},
		{"both ways at once", "shop:s%25c%3Aret", good + "&client_secret=x", 400, "invalid_request"},
		{"another grant", "shop:s%25c%3Aret", "grant_type=password", 400, "unsupported_grant_type"},
		{"no grant", "shop:s%25c%3Aret", "", 400, "invalid_request"},
	} {
		got := r.grant(path, c.client, c.form)
		r.want(c.what, got, c.status, c.says)
		if got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: may be kept by a cache", c.what)
		}
		if challenged := got.header.Get("WWW-Authenticate") == "Basic"; challenged != (c.status == 401) {
			t.Errorf("%s: asks for HTTP Basic: %v", c.what, challenged)
		}
	}
	req := r.request(charge{path: path, noAuth: true})
	req.SetBasicAuth("shop", "s%25c%3Aret")
	r.want("JSON", r.do(req), 400, "invalid_request")
	if s := r.Stats(); s.Tokens != (TokenStats{Requests: 10, Given: 2, Alive: 2}) || s.Calls != 10 || s.Charged != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTokensAreRevoked(t *testing.T) {
	t.Parallel()
	r := newRig(t, "mangopay/v2", Options{})
	act := func(method string) said {
		req, err := http.NewRequestWithContext(context.Background(), method, r.url+"/_double/tokens", nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.do(req)
	}
	old := []map[string]string{r.bearer("/oauth/token"), r.bearer("/oauth/token")}
	r.want("two tokens", act("GET"), 200, `{"requests":2,"given":2,"alive":2}`)
	r.want("all are revoked", act("DELETE"), 204)
	r.want("none", act("GET"), 200, `{"requests":2,"given":2,"alive":0}`)
	for _, header := range old {
		r.want("a revoked one", r.pay(charge{job: "inv-1", key: keyOf("inv-1"), header: header}), 401, "invalid_token")
	}
	r.want("a new one", r.pay(charge{job: "inv-1", key: keyOf("inv-1"), header: r.bearer("/oauth/token")}), 200)
	r.want("the old ones stay revoked", r.pay(charge{job: "inv-2", key: keyOf("inv-2"), header: old[0]}), 401)
	r.charged("with the new one", 1)
}

func TestTokensOfAGatewayWithoutOAuth(t *testing.T) {
	t.Parallel()
	stripe, err := Load("stripe/v1")
	if err != nil {
		t.Fatal(err)
	}
	paypal, err := Load("paypal/orders-v2")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		table *Table
		o     Options
		says  string
	}{
		{stripe, Options{TokenLife: time.Second}, "stripe/v1 has no token endpoint"},
		{stripe, Options{Client: "a:b"}, "stripe/v1 has no token endpoint"},
		{paypal, Options{Client: "hush"}, "the client is written ID:SECRET"},
		{paypal, Options{TokenLife: -1}, "not negative"},
	} {
		if _, err := New(c.table, c.o); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%+v: %v, want %s", c.o, err, c.says)
		}
	}
}
