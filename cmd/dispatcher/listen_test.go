package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/httpapi"
	"spillway/internal/roles"
	"spillway/internal/testkit"
)

const (
	firstToken  = "canary-of-the-first-token"
	secondToken = "canary-of-the-second-token"
)

// An address that other machines can reach needs a token that can't be guessed. On loopback a short token is only warned of.
func TestWhichTokenAnAddressNeeds(t *testing.T) {
	t.Parallel()
	type want struct{ refused, warned string }
	for _, one := range []struct {
		at address
		want
	}{
		{address{text: "127.0.0.1:1"}, want{}},
		{address{text: "0.0.0.0:1"}, want{refused: "there is no token"}},
		{address{text: ":1", access: httpapi.Access{Token: "fifteen-bytes.."}}, want{refused: "can be guessed"}},
		{address{text: "[::]:1", access: httpapi.Access{Token: firstToken, Previous: "short"}}, want{refused: "can be guessed"}},
		{address{text: "0.0.0.0:1", access: httpapi.Access{Token: "sixteen-bytes..."}}, want{warned: "in clear over the network"}},
		{address{text: "10.0.0.1:1", access: httpapi.Access{Token: firstToken, Previous: secondToken}}, want{warned: "in clear over the network"}},
		{address{text: "localhost:1", access: httpapi.Access{Token: "short"}}, want{warned: "can be guessed"}},
		{address{text: "[::1]:1", access: httpapi.Access{Token: firstToken, Previous: "short"}}, want{warned: "can be guessed"}},
		{address{text: "127.0.0.1:1", access: httpapi.Access{Token: firstToken}}, want{}},
		{address{text: "0.0.0.0:1", access: httpapi.Access{Tokens: []roles.Token{{Name: "ann", Length: 15}}}}, want{refused: "can be guessed"}},
		{address{text: "0.0.0.0:1", access: httpapi.Access{Tokens: []roles.Token{{Name: "ann", Length: 16}, {Name: "bob"}}}}, want{warned: "in clear over the network"}},
	} {
		var log bytes.Buffer
		at, c := one.at, one.want
		err := at.guarded()
		if (err != nil) != (c.refused != "") || err != nil && (!strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "short")) {
			t.Errorf("%+v: %v", at, err)
		}
		if err != nil {
			continue
		}
		at.warn(slog.New(slog.NewTextHandler(&log, nil)))
		if (log.Len() > 0) != (c.warned != "") || !strings.Contains(log.String(), c.warned) || strings.Contains(log.String(), "canary") {
			t.Errorf("%+v: %s", at, log.String())
		}
	}
}

// A new token in the file takes effect with SIGHUP, and both tokens are valid in between. The test is not parallel: SIGHUP reaches all runs of this
// process.
func TestSIGHUPTakesTheTokenOver(t *testing.T) {
	r := newRunning(t)
	r.write("gateway.key", oldKey)
	r.write("token", firstToken)
	r.write("previous", firstToken)
	const one, two = "token: \"${file:token}\"\n", "token: \"${file:token}\"\ntoken_previous: \"${file:previous}\"\n"
	r.configure("50/s", one)
	r.run()
	code := func(token string) int {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url()+"/v1/status", nil)
		r.must(err)
		q.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(q)
		r.must(err)
		resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests { // the same refusal, after many others
			return http.StatusUnauthorized
		}
		return resp.StatusCode
	}
	become := func(what string, first, second int) {
		t.Helper()
		r.reload()
		testkit.Eventually(t, 30*time.Second, what, func() bool {
			a, b := code(firstToken), code(secondToken)
			return a == first && b == second
		})
	}
	if a, b := code(firstToken), code(secondToken); a != 200 || b != 401 {
		t.Errorf("before: %d, %d", a, b)
	}
	r.write("token", secondToken)
	r.configure("50/s", two)
	become("both to be let in", 200, 200)
	r.configure("50/s", one)
	become("the first one to be worthless", 401, 200)
	r.configure("50/s", "")
	r.reload()
	r.says("token, tokens and oidc, which are new or gone", 1)
	if a, b := code(firstToken), code(secondToken); a != 401 || b != 200 {
		t.Errorf("a file without a token: %d, %d", a, b)
	}
	if text := r.log.String(); strings.Contains(text, firstToken) || strings.Contains(text, secondToken) {
		t.Error("the log shows a token")
	}
}
