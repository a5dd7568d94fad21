package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/job"
)

const clientSecret = "s3cret/+ &%"

func tokens(t *testing.T, cfg Config) *Tokens {
	t.Helper()
	tokens, err := NewTokens(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// What PayPal, Mangopay and others ask for goes over the wire (RFC 6749, sections 2.3.1 and 4.4.2).
func TestATokenIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		with          OAuth2
		body, id, key string // key: the secret in the header, form-encoded
	}{
		"header":   {OAuth2{}, "grant_type=client_credentials", "the+id", "s3cret%2F%2B+%26%25"},
		"scope":    {OAuth2{Scope: " a  b ", Audience: "https://a.example"}, "audience=https%3A%2F%2Fa.example&grant_type=client_credentials&scope=a+b", "the+id", "s3cret%2F%2B+%26%25"},
		"the body": {OAuth2{InBody: true}, "client_id=the+id&client_secret=s3cret%2F%2B+%26%25&grant_type=client_credentials", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				id, key, _ := r.BasicAuth()
				if r.Method != http.MethodPost || r.URL.RequestURI() != "/token?a=1" || string(body) != tc.body || id != tc.id || key != tc.key ||
					r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || r.Header.Get("User-Agent") != "spillway" {
					t.Errorf("%s %s %v\n%s", r.Method, r.URL, r.Header, body)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"access_token":"A.b-c_1","token_type":"bearer","expires_in":"32400","scope":"x"}`)
			}))
			t.Cleanup(srv.Close)
			tc.with.TokenURL, tc.with.ClientID, tc.with.ClientSecret = srv.URL+"/token?a=1", "the id", clientSecret
			token, life, err := tokens(t, Config{OAuth2: tc.with}).Fetch(t.Context())
			if token != "A.b-c_1" || life != 9*time.Hour || err != nil {
				t.Errorf("%q for %s, %v", token, life, err)
			}
		})
	}
}

// Whatever the endpoint answers, there is a token that can go, or an error that names the address and never what was sent or answered.
func TestWhatATokenEndpointAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		body   string
		says   string // empty: there is a token
		life   time.Duration
	}{
		"no life":      {200, `{"access_token":"A","token_type":"Bearer"}`, "", 0},
		"no type":      {200, `{"access_token":"A","expires_in":60}`, "", time.Minute},
		"no time":      {200, `{"access_token":"A","expires_in":0}`, "", 0},
		"negative":     {200, `{"access_token":"A","expires_in":-5}`, "", 0},
		"centuries":    {200, `{"access_token":"A","expires_in":99999999999}`, "", mostLife},
		"created":      {201, `{"access_token":"A","expires_in":60}`, "", time.Minute},
		"wrong secret": {401, `{"error":"invalid_client","error_description":"` + clientSecret + `"}`, "HTTP 401 from URL: invalid_client", 0},
		"a sentence":   {400, `{"error":"no client ` + clientSecret + `"}`, "HTTP 400 from URL", 0},
		"a page":       {503, `<html>` + clientSecret, "HTTP 503 from URL", 0},
		"error in 200": {200, `{"error":"invalid_scope"}`, "HTTP 200 from URL: invalid_scope", 0},
		"moved":        {302, ``, "HTTP 302 from URL", 0},
		"nothing":      {200, `{}`, "HTTP 200 from URL: no access token in it", 0},
		"a fraction":   {200, `{"access_token":"A","expires_in":3599.5}`, "HTTP 200 from URL: expires_in is not a whole number", 0},
		"no JSON":      {200, `A`, "HTTP 200 from URL: no access token in it", 0},
		"other type":   {200, `{"access_token":"A","token_type":"mac"}`, "HTTP 200 from URL: token of another type than Bearer", 0},
		"a line end":   {200, `{"access_token":"A\nX-Evil: 1"}`, "HTTP 200 from URL: token that no header can carry", 0},
		"too long":     {200, `{"access_token":"` + strings.Repeat("A", maxToken+1) + `"}`, "HTTP 200 from URL: token that no header can carry", 0},
		"endless":      {200, `{"access_token":"` + strings.Repeat("A", 2<<20) + `"}`, "HTTP 200 from URL: no access token in it", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					t.Error("a redirection was followed, with the secret")
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			t.Cleanup(srv.Close)
			at := srv.URL + "/token"
			token, life, err := tokens(t, Config{OAuth2: OAuth2{TokenURL: at + "?key=hidden", ClientID: "id", ClientSecret: clientSecret}}).Fetch(t.Context())
			if tc.says == "" {
				if token != "A" || life != tc.life || err != nil {
					t.Errorf("%q for %s, %v", token, life, err)
				}
				return
			}
			no, ok := errors.AsType[*Denial](err)
			if !ok || no.Status != tc.status || err.Error() != strings.Replace(tc.says, "URL", srv.URL, 1) {
				t.Errorf("%T %v", err, err)
			}
		})
	}
}

// An endpoint that gives no answer is given up in time, and what kept the request back is said as it is of calls.
func TestATokenEndpointThatCantBeReached(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			c.Close()
		}
	}))
	t.Cleanup(cut.Close)
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(hang) })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = quiet()
	t.Cleanup(untrusted.Close)
	for at, says := range map[string]string{
		silent.URL:                        "no answer from " + silent.URL + " within 2s",
		cut.URL:                           "the connection to " + cut.URL + " broke: the gateway closed it",
		"http://" + gone.Addr().String():  "connecting to " + gone.Addr().String() + " failed: connection refused",
		untrusted.URL:                     "is signed by an unknown authority",
		"http://no-such-host.invalid/a?b": "looking up no-such-host.invalid failed",
	} {
		timeout := time.Minute
		if at == silent.URL {
			timeout = 2 * time.Second
		}
		_, _, err := tokens(t, Config{Timeout: timeout, OAuth2: OAuth2{TokenURL: at, ClientID: "id", ClientSecret: clientSecret}}).Fetch(t.Context())
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", at, err, says)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := tokens(t, Config{OAuth2: OAuth2{TokenURL: silent.URL, ClientID: "id", ClientSecret: clientSecret}}).Fetch(ctx); err == nil {
		t.Error("a request that was broken off brought a token")
	}
}

// Tokens are asked for by the gateway's TLS and through its proxy.
func TestATokenComesTheGatewaysWay(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"A"}`)
	}))
	t.Cleanup(srv.Close)
	var asked atomic.Pointer[http.Request]
	proxy := tunnel(t, &asked)
	cfg := Config{TLS: srv.Client().Transport.(*http.Transport).TLSClientConfig, Proxy: "http://" + proxy.addr,
		OAuth2: OAuth2{TokenURL: srv.URL, ClientID: "id", ClientSecret: clientSecret}}
	if token, _, err := tokens(t, cfg).Fetch(t.Context()); token != "A" || err != nil || asked.Load() == nil {
		t.Errorf("%q, %v, by the proxy: %t", token, err, asked.Load() != nil)
	}
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	t.Cleanup(refuses.Close)
	cfg.Proxy, cfg.OAuth2.TokenURL = refuses.URL, "http://gateway.example/token"
	if _, _, err := tokens(t, cfg).Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "does not let us in (407)") {
		t.Errorf("%v", err)
	}
}

// A call carries the token that it is given.
func TestACallCarriesItsToken(t *testing.T) {
	t.Parallel()
	var seen atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.Store(r.Header["Authorization"]) }))
	t.Cleanup(srv.Close)
	c := client(t, Config{URL: srv.URL})
	for _, token := range []string{"A", "B"} {
		c.Send(t.Context(), job.Request{Job: job.Job{ID: "j"}, Bearer: token})
		if got, _ := seen.Load().([]string); len(got) != 1 || got[0] != "Bearer "+token {
			t.Errorf("Authorization: %q", got)
		}
	}
}
