package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/double"
)

// like makes one charge as Stripe expects it. It returns the status, or 0 if the connection was cut.
func (p *playing) like(key, job string) int {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/v1/payment_intents", strings.NewReader("amount=1250&currency=eur&metadata[job]="+job))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Bearer sk_test_1")
	r.Header.Set("Idempotency-Key", key)
	r.Close, r.GetBody = true, nil // net/http would send it again by itself
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func TestProviderLikeAGateway(t *testing.T) {
	t.Parallel()
	p := play(t, "--like", "stripe/v1", "--service", "0s", "--fate", "saved-500=job=inv-1,charge=true", "--fate", "cut-after-charge=job=inv-2", "-o", "json")
	got := []int{p.like("inv-1", "inv-1"), p.like("inv-1", "inv-1"), p.like("inv-2", "inv-2"), p.like("inv-2", "inv-2"), p.like("inv-3", "inv-3")}
	for i, want := range []int{500, 500, 0, 200, 200} {
		if got[i] != want {
			t.Errorf("call %d: %d, want %d", i+1, got[i], want)
		}
	}
	ledger, err := http.Get(p.url + "/_double/ledger")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := io.ReadAll(ledger.Body)
	_ = ledger.Body.Close()
	if n := bytes.Count(lines, []byte("\n")); err != nil || n != 3 || !bytes.Contains(lines, []byte(`"job":"inv-2","key":"inv-2","id":"pi_00000002"`)) {
		t.Errorf("the ledger has %d lines, %v:\n%s", n, err, lines)
	}
	var s double.Stats
	if err := json.Unmarshal([]byte(p.end()), &s); err != nil || s.Gateway != "stripe/v1" || s.Calls != 5 || s.Repeats != 2 || s.Cut != 1 || s.Charged != 3 || s.ChargedTwice != 0 || s.States["paid"] != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

// At a million times its speed a day takes 86.4 ms. So the double of Stripe has forgotten a key when a call of 100 ms ends.
func TestProviderTimeScale(t *testing.T) {
	t.Parallel()
	p := play(t, "--like", "stripe/v1", "--service", "100ms", "--time-scale", "1000000")
	p.like("inv-1", "inv-1")
	p.like("inv-1", "inv-1")
	if out := p.end(); !strings.Contains(out, "jobs charged twice\t1\n") || !strings.Contains(out, "charges that are paid\t2\n") {
		t.Errorf("it says\n%s", out)
	}
}

func TestProviderGivesTokens(t *testing.T) {
	t.Parallel()
	p := play(t, "--like", "mangopay/v2", "--token-life", "1h", "--token-client", "shop:secret", "-o", "json")
	for client, want := range map[string]int{"shop:secret": 200, "shop:another": 401} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v2.01/oauth/token", strings.NewReader("grant_type=client_credentials"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		id, secret, _ := strings.Cut(client, ":")
		r.SetBasicAuth(id, secret)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want || err != nil || want == 200 && !bytes.Contains(body, []byte(`"expires_in":3600`)) {
			t.Errorf("%s: %d %s, %v, want %d", client, answer.StatusCode, body, err, want)
		}
	}
	var s double.Stats
	if err := json.Unmarshal([]byte(p.end()), &s); err != nil || s.Tokens != (double.TokenStats{Requests: 2, Given: 1, Alive: 1}) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestProviderLikeAskedWrongly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"--like strip/v1", `there is no double of "strip/v1"; did you mean stripe/v1?; there are adyen/v72`},
		{"--like stripe/v1 --limit 100/s", "the double of stripe/v1 knows from its documents what --limit would say"},
		{"--like stripe/v1 --fate share=5%,status=500", `there is no fate "share"`},
		{"--like stripe/v1 --fate saved-500=share=200%", "not a share of jobs"},
		{"--like stripe/v1 --fate 409-done=share=5%", "stripe/v1 has no fate 409-done"},
		{"--like stripe/v1 --time-scale 0", "time can't stand still"},
		{"--time-scale 10", "--time-scale is that of a double"},
		{"--token-life 20s", "--token-life is that of a double"},
		{"--like stripe/v1 --token-life 20s", "stripe/v1 has no token endpoint"},
		{"--like mangopay/v2 --token-life -1s", "time can't stand still or go back"},
		{"--like mangopay/v2 --token-client shop", "the client is written ID:SECRET"},
		{"--fate saved-500=share=5%", "invalid argument"},
	} {
		var out, errOut bytes.Buffer
		s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut}
		code := cli.Main(name, newCommand, append([]string{"provider", "--listen", "127.0.0.1:0"}, strings.Fields(c.args)...), s)
		if code != cli.ExitUsage || !strings.Contains(errOut.String(), c.says) || out.Len() > 0 {
			t.Errorf("provider %s: exit %d, said %q, want %d and %q", c.args, code, errOut.String(), cli.ExitUsage, c.says)
		}
	}
}

// The help and the documentation name each gateway and each fate.
func TestDoublesAreListed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/doubles.md")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := cli.Main(name, newCommand, []string{"provider", "--help"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for _, word := range append(double.Names(), double.FateNames()...) {
		if !strings.Contains(string(page), "`"+word+"`") {
			t.Errorf("docs/doubles.md does not name %s", word)
		}
		if !strings.Contains(out.String(), word) {
			t.Errorf("the help does not name %s", word)
		}
	}
}
