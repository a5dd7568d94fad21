package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOAuth2(t *testing.T) {
	t.Parallel()
	const least = `token_url: https://x.example/token, client_id: "${STRIPE_KEY}", client_secret: "${CANARY}"`
	want := OAuth2{On: true, TokenURL: "https://x.example/token", ClientID: canary, ClientSecret: canary, Auth: AuthHeader}
	if got := parse(t, withRequest("oauth2: {"+least+"}")).Gateways[0].Request.OAuth2; got != want {
		t.Errorf("got %+v", got)
	}
	want.Scope, want.Audience, want.Auth = "a b", "https://a.example", AuthBody
	if got := parse(t, withRequest("oauth2: {"+least+`, scope: a b, audience: "https://a.example", auth: body}`)).Gateways[0].Request.OAuth2; got != want {
		t.Errorf("got %+v", got)
	}
	for wrong, rule := range map[string]string{
		`{}`:                                     "",
		`{token_url: "https://x.example/token"}`: "oauth2.client_id: is missing: write the id",
		`{token_url: "https://x.example/token", client_id: a}`:                                 "oauth2.client_secret: is missing: name the variable or file",
		`{client_id: a, client_secret: "${CANARY}"}`:                                           "oauth2.token_url: is missing: write where access tokens are asked for",
		`{token_url: "https://x.example/{id}", client_id: a}`:                                  "oauth2.token_url: \"https://x.example/{id}\" has a brace in it",
		`{token_url: "https://me:sk_canary@x.example/", client_id: a}`:                         "has a user or password in it: write them as client_id and client_secret",
		`{token_url: x.example, client_id: a, client_secret: "${CANARY}"}`:                     "does not begin with http:// or https://",
		`{` + least + `, auth: basic}`:                                                         `oauth2.auth: "basic" is not a way to send credentials: use one of header, body`,
		`{` + strings.Replace(least, "CANARY", "NOT_SET", 1) + `}`:                             "oauth2.client_secret: ${NOT_SET} is not set",
		`{` + strings.Replace(least, "CANARY", "CANARY_LINE", 1) + `}`:                         "has a line end in it, which HTTP refuses",
		`{` + least + `, secret: a}`:                                                           "oauth2.secret",
		`{` + least + "}\n      headers: {authorization: Bearer x}":                            "headers.authorization: Authorization carries the access token of oauth2",
		`{` + least + "}\n      headers: {Authorization: \"Bearer {payload.token}\"}":          "headers.Authorization: Authorization carries the access token of oauth2",
		`{` + least + "}\n      idempotency_header: Authorization":                             "Authorization carries the access token of oauth2: use another header",
		`{` + least + "}\n      sign: {header: Authorization, secret: a, content: \"{body}\"}": "sign.header: Authorization carries the access token of oauth2",
	} {
		_, err := Parse("x.yaml", []byte(withRequest("oauth2: "+wrong)), Options{Secrets: true, Env: testEnv})
		if rule == "" {
			if err != nil {
				t.Errorf("%s: %v", wrong, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), rule) || !strings.Contains(wrong, canary) && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want %s", wrong, err, rule)
		}
	}
}

// A command that makes no calls needs no secret, and still knows that there is a token.
func TestOAuth2WithoutItsSecrets(t *testing.T) {
	t.Parallel()
	c, err := Parse("x.yaml", []byte(withRequest(`oauth2: {token_url: "${NOT_SET}", client_id: "${NOT_SET}", client_secret: "${NOT_SET}"}`)), Options{Env: testEnv})
	if err != nil || !c.Gateways[0].Request.OAuth2.On {
		t.Errorf("%v", err)
	}
}

// The token_url of a pack alone has no effect, because a gateway may have a token of its own. With credentials it is used, unless the file has another one.
func TestThePackKnowsTheTokenURL(t *testing.T) {
	t.Parallel()
	const like = "gateways:\n  p:\n    like: paypal/payments-v2\n    leak: {limits: [1/s]}\n    request:\n      url: https://x.example/\n"
	if g := parse(t, like+"      headers: {Authorization: Bearer x}\n").Gateways[0]; g.Request.OAuth2.On {
		t.Error("a pack turned access tokens on")
	}
	const credentials = "      oauth2: {client_id: a, client_secret: b"
	for text, want := range map[string]string{
		"}\n": "https://api-m.paypal.com/v1/oauth2/token",
		", token_url: \"https://api-m.sandbox.paypal.com/v1/oauth2/token\"}\n": "https://api-m.sandbox.paypal.com/v1/oauth2/token",
	} {
		if o := parse(t, like+credentials+text).Gateways[0].Request.OAuth2; !o.On || o.TokenURL.Reveal() != want {
			t.Errorf("%s: %+v", text, o)
		}
	}
	if _, err := Parse("x.yaml", []byte(like+"      oauth2: {client_id: a}\n"), Options{Secrets: true, Env: testEnv}); err == nil || !strings.Contains(err.Error(), "client_secret: is missing") {
		t.Errorf("%v", err)
	}
}

// config show does not show the secret, even if it is in the file itself.
func TestTheClientSecretIsNotWrittenOut(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := withRequest(`oauth2: {token_url: "https://x.example/token", client_id: me, client_secret: ` + canary + `}`)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Written(file, nil); err != nil || strings.Contains(string(got), canary) || !strings.Contains(string(got), "client_secret: <secret>") {
		t.Errorf("%s, %v", got, err)
	}
}
