package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"spillway/internal/oidc"
	"spillway/internal/roles"
	"spillway/internal/testkit"
)

// The access of a login ends when its rule or its provider is removed, or when the login ends. A new rule does not end it.
func TestWhatALoginWasLetInForEnds(t *testing.T) {
	t.Parallel()
	i := testkit.NewIssuer(t)
	rules := func(all ...roles.Rule) Access {
		return Access{Provider: oidc.New(oidc.Config{Issuer: i.URL, ClientID: "spillway", Name: "email", Rules: all})}
	}
	support, ops := roles.Rule{Claim: "groups", Is: "support", Role: roles.Viewer}, roles.Rule{Claim: "groups", Is: "ops", Role: roles.Operator}
	g := NewGuard("")
	g.Use(rules(support))
	ask := func(claims map[string]any) (credential, *problem) {
		r := httptest.NewRequest(http.MethodGet, "/v1/status", nil)
		r.Header.Set("Authorization", "Bearer "+i.Token(claims))
		return g.who(r, false)
	}
	c, no := ask(map[string]any{"groups": []string{"support", "ops"}})
	if no != nil || !g.still(c) || c.who.Role != roles.Viewer {
		t.Fatal(no)
	}
	ended := c
	ended.login = &oidc.Login{Name: c.login.Name, Has: c.login.Has, Ends: time.Now().Add(-time.Minute)}
	if g.still(ended) {
		t.Error("it goes on after its end")
	}
	scoped := support
	scoped.Gateways = []string{"one"}
	for name, a := range map[string]struct {
		access Access
		still  bool
	}{
		"the same": {rules(support), true}, "one more rule": {rules(support, ops), true}, "no such rule": {rules(ops), false}, "one gateway": {rules(scoped), false},
		"no provider": {Access{Token: "t0ken"}, false}, "another provider": {Access{Provider: oidc.New(oidc.Config{Issuer: "https://other", ClientID: "spillway", Name: "email", Rules: []roles.Rule{support}})}, false},
	} {
		g.Use(a.access)
		if g.still(c) != a.still {
			t.Errorf("%s: still let in: %t", name, !a.still)
		}
	}
}
