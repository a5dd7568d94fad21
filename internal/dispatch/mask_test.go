package dispatch

import (
	"encoding/base64"
	"fmt"
	"html"
	"net/url"
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
		JobHeaders: map[string][]config.HeaderPart{"X-Auth": {{Text: "Bearer "}, {Variable: "sk_variable"}, {Text: " secret-in-the-file:"}, {Place: "payload.a"}},
			"X-Version": {{Text: "version-"}, {Place: "id"}}},
	})
	said := `sk_variable|secret-in-the-file:|Bearer sk_live_1|sk_live_1|tenant-secret|key/in url|key%2Fin+url|url-password|proxy-password|hmac-secret`
	got := string(m.hide([]byte(said)))
	if rest := strings.ReplaceAll(got, "<secret>", ""); strings.Trim(rest, "|") != "" {
		t.Errorf("still there: %s", rest)
	}
	for _, kept := range []string{"application/json", "2024-06-20", "on", "10000000", "Bearer", "version-", "payload.a", "https://pay.example", "{payload.signature}"} {
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

// Members of an answer that are secrets by their name are masked, although no configuration has them.
func TestMembersThatAreSecretsAreMasked(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		`{"id":"pi_1","client_secret": "pi_1_secret_x\"y","status":"requires_action"}`:                                         `{"id":"pi_1","client_secret": "<secret>","status":"requires_action"}`,
		`{"clientSecret":"a","b":{"access_token":"c","idToken":"d"}}`:                                                          `{"clientSecret":"<secret>","b":{"access_token":"<secret>","idToken":"<secret>"}}`,
		`{"raw":"{\"client_secret\":\"x\",\"n\":1}"}`:                                                                          `{"raw":"{\"client_secret\":\"<secret>\",\"n\":1}"}`,
		`{"cvc":123,"n":4,"cvv2" : 987}`:                                                                                       `{"cvc":<secret>,"n":4,"cvv2" : <secret>}`,
		`{"securityCode":"321","security_code":654,"card_code":"1","card":{"card_verification_value":"77"},"code":402,"id":7}`: `{"securityCode":"<secret>","security_code":<secret>,"card_code":"<secret>","card":{"card_verification_value":"<secret>"},"code":402,"id":7}`,
		`{"card":{"cvc":"123"},"secret":"cut of`:                                                                               `{"card":{"cvc":"<secret>"},"secret":"<secret>`,
		`{"secretary":"x","password_hint":"y","client_secret":null,"secret":""}`:                                               `{"secretary":"x","password_hint":"y","client_secret":null,"secret":""}`,
	} {
		if got := string(mask{}.hide([]byte(said))); got != want {
			t.Errorf("%s\nbecame %s\nwant   %s", said, got, want)
		}
	}
}

// The merchant number is in a header and, as a JSON number, in every answer. Rules are applied to the answer before masking: with <secret> in its place
// it would not be JSON, no rule would match, and a payment that the gateway postponed would count as done.
func TestWhatAnAnswerMeansIsJudgedByTheAnswerAsItCame(t *testing.T) {
	t.Parallel()
	j, err := table(config.Gateway{Reference: "id",
		Request: config.Request{Headers: map[string]config.Secret{"X-Merchant": "7345612"}},
		Answers: config.Answers{Rules: []job.Rule{{Status: 200, Body: map[string]string{"code": "301"}, Then: "hold"}}}})
	if err != nil {
		t.Fatal(err)
	}
	say := func(body string) outcome.Judgement {
		return j.Judge(outcome.Input{Result: job.Result{Stage: job.Answered, Status: 200, Body: []byte(body)}})
	}
	if got := say(`{"merchant":7345612,"code":"301"}`); got.Verdict != job.VerdictHold || got.Error != `HTTP 200, code is 301: {"merchant":<secret>,"code":"301"}` {
		t.Errorf("%+v", got)
	}
	if got := say(`{"merchant":7345612,"id":"7345612-pay-1"}`); got.Verdict != job.VerdictDone || got.Reference != "<secret>-pay-1" {
		t.Errorf("%+v", got)
	}
}

// Secrets are masked in every spelling: .NET writes %2b, Gson \u003d, an HTML page &#43;, a proxy base64.
func TestSecretsAreMaskedHoweverTheyAreSpelled(t *testing.T) {
	t.Parallel()
	const secret = "sk_live_ab+cd/ef==&<'x" // #nosec: it opens nothing
	m := newMask(config.Request{Headers: map[string]config.Secret{"Authorization": "Bearer " + secret}})
	var lower, upper, unicode, entities, hex, xs strings.Builder
	for _, c := range []byte(secret) {
		fmt.Fprintf(&lower, "%%%02x", c)
		fmt.Fprintf(&upper, "%%%02X", c)
		fmt.Fprintf(&unicode, `\u%04x`, c)
		fmt.Fprintf(&entities, "&#%d;", c)
		fmt.Fprintf(&hex, "&#x%X;", c)
		fmt.Fprintf(&xs, `\x%02x`, c)
	}
	form := url.QueryEscape(secret)
	for name, said := range map[string]string{
		"as it is": secret, "form": form, "form of .NET": strings.ToLower(form), "all in %": lower.String(), "all in % of capitals": upper.String(),
		"JSON": `sk_live_ab\u002bcd\/ef\u003d\u003d\u0026\u003c\u0027x`, "all in JSON": unicode.String(), "all in \\x": xs.String(),
		"HTML": html.EscapeString(secret), "HTML of Java": "sk_live_ab&#43;cd&#x2F;ef&equals;&#61;&amp;&lt;&apos;x", "all in HTML": entities.String(), "all in hexadecimal HTML": hex.String(),
		"form in a form": url.QueryEscape(form), "HTML in JSON": `sk_live_ab\u0026#43;cd/ef==\u0026amp;\u0026lt;\u0026#39;x`,
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "base64 for URLs": base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"base64 behind a name": base64.StdEncoding.EncodeToString([]byte(":" + secret)), "base64 behind two": base64.StdEncoding.EncodeToString([]byte("u:" + secret + ":x")),
		"digits": fmt.Sprintf("%x", secret), "digits of capitals": fmt.Sprintf("%X", secret), "digits of its beginning": fmt.Sprintf("%x", secret[:13]),
		"base64 in a form": url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(secret))),
		"its beginning":    secret[:8], "more of its beginning": secret[:13], "its beginning in a form": strings.ToLower(url.QueryEscape(secret[:13])),
	} {
		for _, frame := range [][2]string{{"", ""}, {`{"error":"key `, ` is wrong"}`}, {"é%zz&&\\ ", "\\u12 %2 &x"}} {
			if got, want := string(m.hide([]byte(frame[0]+said+frame[1]))), frame[0]+masked+frame[1]; got != want {
				t.Errorf("%s: %q became %q, want %q", name, frame[0]+said+frame[1], got, want)
			}
		}
	}
	for _, kept := range []string{"", "sk_live", "%", "%4", `\`, `\u`, `\u00`, "&", "&;", "&#;", "a+b=c&amp;d", `{"message":"caf\u00e9 \/ 100%"}`, "AAAAAAAAAAAA=="} {
		if got := string(m.hide([]byte(kept))); got != kept {
			t.Errorf("%q became %q", kept, got)
		}
	}
	letters := newMask(config.Request{Headers: map[string]config.Secret{"X-Merchant": "merchant-0042"}})
	if got := string(letters.hide([]byte(`{"merchant":"merchant-0042","a":"merchants"}`))); got != `{"merchant":"<secret>","a":"merchants"}` {
		t.Errorf("a word of the answer that begins as a secret does: %s", got)
	}
}

func FuzzHide(f *testing.F) {
	m := newMask(config.Request{Headers: map[string]config.Secret{"Authorization": "Bearer sk_live_ab+cd/ef==", "X-Key": "key in words"}})
	f.Add(`sk_live_ab%2bcd\/ef\u003d&#61;`, "x")
	f.Fuzz(func(t *testing.T, before, after string) {
		got := string(m.hide([]byte(before + " sk_live_ab%2bcd\\/ef\\u003d&#61; " + after)))
		if strings.Contains(got, "sk_live_ab") {
			t.Errorf("%q is left", got)
		}
	})
}
