package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/roles"
)

const providerSecret = canary + "_of_the_client"

// What a file says about logins with an OpenID provider, and the defaults.
func TestLoginsWithAProvider(t *testing.T) {
	t.Parallel()
	c := parse(t, "oidc:\n  issuer: https://login.example.com\n  client_id: spillway\n  client_secret: "+providerSecret+"\n  redirect: https://spillway.example.com/login/callback\n  roles:\n"+
		"    - {claim: groups, is: ops, role: operator, gateways: [stripe]}\n    - {claim: \"https://example.com/roles\", is: Support Team, role: viewer}\n"+oneGateway)
	o := c.OIDC
	if o == nil || !c.Guarded() || o.ClientSecret.Reveal() != providerSecret || o.Name != "email" || !slices.Equal(o.Scopes, []string{"profile", "email"}) || o.Session != 0 || len(o.Roles) != 2 {
		t.Fatalf("%+v", o)
	}
	if r := o.Roles[0]; r.Claim != "groups" || r.Is != "ops" || r.Role != roles.Operator || !slices.Equal(r.Gateways, []string{"stripe"}) {
		t.Errorf("%+v", r)
	}
	if text := fmt.Sprintf("%+v %#v", c, o); strings.Contains(text, canary) {
		t.Error("the secret is printed")
	}
	c = parse(t, "oidc: {issuer: \"http://127.0.0.1:5556/dex\", client_id: a, device_client_id: b, audiences: [c], scopes: [groups], name: preferred_username, session: 1h, roles: [{claim: a.b, is: c, role: admin}]}\n"+oneGateway)
	if o := c.OIDC; o.DeviceClientID != "b" || o.Audiences[0] != "c" || !slices.Equal(o.Scopes, []string{"groups"}) || o.Name != "preferred_username" || o.Session != time.Hour || o.Roles[0].Gateways != nil {
		t.Errorf("%+v", o)
	}
	text := "oidc: {issuer: \"https://a.example\", client_id: a, client_secret: \"${NO_SUCH_VARIABLE}\", redirect: \"https://b.example/login/callback\", roles: [{claim: a, is: b, role: admin}]}\n" + oneGateway
	if _, err := Parse("x.yaml", []byte(text), Options{Env: testEnv}); err != nil {
		t.Errorf("who does not serve needs no secret: %v", err)
	}
	if _, err := Parse("x.yaml", []byte(text), Options{Env: testEnv, Secrets: true}); err == nil {
		t.Error("who serves does without the secret")
	}
}

// Each fault is reported at its place, with what to do.
func TestFaultsOfAProvider(t *testing.T) {
	t.Parallel()
	whole := map[string]string{"issuer": "https://login.example.com", "client_id": "spillway", "client_secret": providerSecret, "redirect": "https://s.example/login/callback", "roles": "[{claim: groups, is: ops, role: operator}]"}
	for _, c := range []struct{ key, value, want string }{
		{"issuer", "", "oidc.issuer: is missing: write the provider's address"},
		{"client_id", "", "oidc.client_id: is missing"},
		{"roles", "", "oidc.roles: is missing: write each like {claim: groups"},
		{"client_secret", "", "oidc.client_secret: is missing: browsers that come back to redirect need it"},
		{"redirect", "", "oidc.redirect: is missing: write the console's address and /login/callback"},
		{"issuer", "http://login.example.com", "is http, so anyone on the way can log in as anybody: write https://"},
		{"issuer", "login.example.com", "does not begin with http:// or https://"},
		{"issuer", "\"https://login.example.com/?a=b\"", "has a character that such an address does not"},
		{"redirect", "http://s.example/login/callback", "is http"},
		{"redirect", "https://s.example/callback", "does not end with /login/callback behind the host"},
		{"redirect", "https://s.example/x/login/callback", "does not end with /login/callback behind the host"},
		{"client_secret", canary, "oidc.client_secret: <secret> has fewer than 16 bytes, and can be guessed"},
		{"session", "9h", "oidc.session: is too long: give at most 8h"},
		{"session", "1s", "is too short: give at least 1m"},
		{"name", "\"a b\"", "is not the name of a claim"},
		{"scopes", "[\"profile email\"]", "is not a scope: write one word for each"},
		{"roles", "[]", "the list is empty: write each like {claim: groups"},
		{"roles", "[{claim: groups, is: ops, role: boss}]", "is not a role"},
		{"roles", "[{claims: groups, is: ops, role: viewer}]", "oidc.roles[0].claims: unknown key: did you mean claim?"},
		{"roles", "[{claim: groups, is: ops}]", "oidc.roles[0].role: is missing"},
		{"roles", "[{is: ops, role: viewer}]", "oidc.roles[0].claim: is missing"},
		{"roles", "[{claim: groups, role: viewer}]", "oidc.roles[0].is: is missing"},
		{"roles", "[{claim: groups, is: \"\", role: viewer}]", "is empty: say what the claim has to be"},
		{"roles", "[{claim: groups, is: ops, role: viewer, gateways: [strip]}]", "oidc.roles[0]: the role is for gateway \"strip\", which the file does not have; did you mean stripe?"},
		{"group", "ops", "oidc.group: unknown key: use one of issuer, client_id, client_secret, redirect, device_client_id, audiences, scopes, name, session, roles"},
	} {
		var text strings.Builder
		text.WriteString("oidc:\n")
		for key, value := range whole {
			if key != c.key {
				text.WriteString("  " + key + ": " + value + "\n")
			}
		}
		if c.value != "" {
			text.WriteString("  " + c.key + ": " + c.value + "\n")
		}
		_, err := Parse("x.yaml", []byte(text.String()+oneGateway), Options{Env: testEnv, Secrets: true})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %s: %v, want %q", c.key, c.value, err, c.want)
		}
	}
}
