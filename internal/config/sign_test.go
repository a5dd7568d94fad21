package config

import (
	"strings"
	"testing"
)

// withRequest is a configuration whose sixth line has what is given.
func withRequest(line string) string {
	return "gateways:\n  stripe:\n    leak: {limits: [1/s]}\n    request:\n      url: https://x.example/\n      " + line + "\n"
}

func TestSign(t *testing.T) {
	t.Parallel()
	const timed = `header: X-Signature, secret: "${CANARY}", timestamp_header: X-Time`
	want := Sign{Header: "X-Signature", Value: "{signature}", Secret: canary, Algorithm: "sha256", Content: "{timestamp}.{body}", Encoding: "hex",
		TimestampHeader: "X-Time", Timestamp: "unix"}
	if got := parse(t, withRequest("sign: {"+timed+"}")).Gateways[0].Request.Sign; got != want {
		t.Errorf("got %+v", got)
	}
	for _, right := range []string{
		`header: X-Hub-Signature-256, secret: "${CANARY}", content: "{body}", value: "sha256={signature}"`,
		`header: S, secret: "${CANARY}", value: "t={timestamp},v1={signature}", algorithm: sha512, encoding: base64, timestamp: rfc3339`,
	} {
		parse(t, withRequest("sign: {"+right+"}"))
	}
	if got := parse(t, withRequest("sign: {"+strings.Replace(timed, "${CANARY}", "c2tfY2FuYXJ5", 1)+", secret_encoding: base64}")); got.Gateways[0].Request.Sign.Secret != canary {
		t.Error("the secret is not decoded")
	}
	for wrong, rule := range map[string]string{
		`header: S, secret: "${NOT_SET}", content: "{body}"`:                   "sign.secret: ${NOT_SET} is not set",
		`secret: a, content: "{body}"`:                                         "sign.header: is missing: name the header",
		`header: S, content: "{body}"`:                                         "sign.secret: is missing: name the variable",
		`header: S, secret: "", content: "{body}"`:                             `sign.secret: "" is empty`,
		`header: S, secret: "${CANARY}"`:                                       `sign.header: a {timestamp} is signed (the default) that the gateway never gets to see`,
		`header: S, secret: a, content: "{Body}"`:                              `sign.content: "{Body}" has {Body} in it, which is unknown: {timestamp} {method}`,
		`header: S, secret: a, content: ""`:                                    `sign.content: "" is empty`,
		`header: S, secret: a, content: "{body}", value: v1`:                   `sign.value: "v1" has no {signature} in it`,
		`header: S, secret: a, content: "{body}", value: "{signature}{nonce}"`: `sign.value: "{signature}{nonce}" has {nonce} in it`,
		timed + `, algorithm: md5`:                                             `sign.algorithm: "md5" is not an algorithm of signatures: use one of sha256, sha512, rs256`,
		timed + `, encoding: base46`:                                           `sign.encoding: "base46" is not an encoding of a signature: did you mean base64?`,
		timed + `, secret_encoding: hex`:                                       `sign.secret: is not hex, as secret_encoding says`,
		timed + `, timestamp: iso`:                                             `sign.timestamp: "iso" is not a way to write a time: use one of unix, unix-ms, rfc3339`,
		`header: "X Y", secret: a, content: "{body}"`:                          `sign.header: "X Y" is not a header's name`,
		`header: idempotency-key, secret: a, content: "{body}"`:                "sign.header: idempotency-key is the idempotency header",
		`header: S, secret: a, timestamp_header: s`:                            "sign.timestamp_header: S carries the signature",
		`header: X-Own, secret: a, content: "{body}"}, headers: {x-own: "1"`:   "sign.header: X-Own is among headers too",
	} {
		text := withRequest("sign: {" + wrong + "}")
		if strings.Contains(wrong, "headers:") {
			text = strings.Replace(text, "}, headers:", "}\n      headers:", 1)
		}
		_, err := Parse("x.yaml", []byte(text), Options{Secrets: true, Env: testEnv})
		if err == nil || !strings.Contains(err.Error(), rule) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want %s", wrong, err, rule)
		}
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	if got := parse(t, withRequest(`proxy: "http://user:${CANARY}@proxy:3128"`)).Gateways[0].Request.Proxy; got.Reveal() != "http://user:"+canary+"@proxy:3128" {
		t.Errorf("got %q", got.Reveal())
	}
	for wrong, rule := range map[string]string{
		"https://user:sk_canary@proxy:3128": `6:14: gateways.stripe.request.proxy: <secret> is not an HTTP proxy: its address begins with http://`,
		"http://user:sk_canary@proxy":       "is not a proxy's address: write http://user:password@host:port",
		"http://user:sk_canary/@proxy:3128": "is not a proxy's address",
		"sk_canary":                         "is not a proxy's address",
		"http://proxy:3128/path":            "is not a proxy's address",
		"http://${NOT_SET}@proxy:3128":      "${NOT_SET} is not set",
	} {
		_, err := Parse("x.yaml", []byte(withRequest(`proxy: "`+wrong+`"`)), Options{Secrets: true, Env: testEnv})
		if err == nil || !strings.Contains(err.Error(), rule) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want %s", wrong, err, rule)
		}
	}
	if _, err := Parse("x.yaml", []byte(withRequest(`proxy: "http://${NOT_SET}@proxy:3128"`)), Options{Env: testEnv}); err != nil {
		t.Errorf("a command that makes no calls needs no proxy: %v", err)
	}
}
