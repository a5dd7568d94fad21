package doctor

import (
	"strings"
	"testing"

	"spillway/internal/config"
)

// Gateways with the same address and the same credentials are named once, with the setting that makes ids unique among them.
func TestGatewaysOfOneAccountAreNamed(t *testing.T) {
	t.Parallel()
	gateway := func(name, url, request string) string {
		return "  " + name + ":\n    request: {url: \"https://" + url + "\", idempotency_prefix: " + name + "-, " + request + "}\n    leak: {limits: [1/s]}\n"
	}
	const key = `headers: {Authorization: "Bearer hunter2"}`
	look := func(head string, gateways ...string) Report {
		t.Helper()
		cfg, err := config.Parse("d.yaml", []byte("redis: redis://127.0.0.1:1/0\n"+head+"gateways:\n"+strings.Join(gateways, "")), config.Options{Secrets: true})
		if err != nil {
			t.Fatal(err)
		}
		x := &examination{p: Params{Config: cfg, Gateways: cfg.Gateways}}
		x.sharedAccounts()
		return x.Report
	}
	one := gateway("one", "pay.example/charges", key)
	r := look("", one, gateway("two", "pay.example/charges", key), gateway("three", "pay.example/charges", key), gateway("four", "pay.example/charges", key))
	expect(t, r, "dedupe_scope", Warn, "the gateways one, two, three and 1 more call the same address with the same credentials", "dedupe_scope: all")
	if len(r.Checks) != 1 || strings.Contains(list(r), "hunter2") {
		t.Errorf("want one warning without a secret:\n%s", list(r))
	}
	for name, other := range map[string]string{
		"another address":    gateway("two", "pay.example/refunds", key),
		"another credential": gateway("two", "pay.example/charges", `headers: {Authorization: "Bearer other"}`),
		"none":               gateway("two", "pay.example/charges", `headers: {X-Version: "2"}`),
		"accounts of jobs":   gateway("two", "pay.example/charges", `headers: {Authorization: "Bearer hunter2", Stripe-Account: "{payload.account}"}`),
	} {
		if r := look("", one, other); len(r.Checks) != 0 {
			t.Errorf("%s:\n%s", name, list(r))
		}
	}
	if r := look("", gateway("one", "pay.example/", `headers: {X-Version: "2"}`), gateway("two", "pay.example/", `headers: {X-Version: "2"}`)); len(r.Checks) != 0 {
		t.Errorf("nothing says whose account it is:\n%s", list(r))
	}
	if r := look("dedupe_scope: all\n", one, gateway("two", "pay.example/charges", key)); len(r.Checks) != 0 {
		t.Errorf("ids are known to all:\n%s", list(r))
	}
}
