package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/access"
	"spillway/internal/config"
	"spillway/internal/packs"
	"spillway/internal/testkit"
)

// Doctor checks the connection to token_url as it does that to the gateway, and sends no request.
func TestTheWayToTheTokenURL(t *testing.T) {
	t.Parallel()
	url, calls := listening(t)
	strange := httptest.NewTLSServer(nil)
	t.Cleanup(strange.Close)
	for at, want := range map[string]Check{
		url + "/token":                        {Name: "reach", Level: OK, Message: strings.TrimPrefix(url, "http://") + " answers in"},
		"http://127.0.0.1:1/token":            {Name: "reach", Level: Fail, Message: "127.0.0.1:1 can't be reached", Hint: "request.oauth2.token_url"},
		strange.URL + "/token":                {Name: "tls", Level: Fail, Message: "no trusted authority has signed the certificate"},
		"http://no-such-host.invalid/token?a": {Name: "url", Level: Warn, Message: "the client secret goes to no-such-host.invalid unencrypted", Hint: "request.oauth2.token_url"},
	} {
		p := newPatient(t, "redis://127.0.0.1:1/0", fmt.Sprintf("request: {url: %q, oauth2: {token_url: %q, client_id: me, client_secret: sk_canary}}", url+"/gateway", at), limits)
		r := p.examine()
		expect(t, r, want.Name, want.Level, want.Message, want.Hint)
		if strings.Contains(list(r), "sk_canary") {
			t.Errorf("the secret shows:\n%s", list(r))
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestAGatewayWithoutAToken(t *testing.T) {
	t.Parallel()
	w := newWard(t, "dedupe: 1d")
	k := access.New(access.Config{Gateway: w.g.Name, Redis: w.c, Credentials: "x", Within: time.Minute, Metrics: access.NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
		Fetch: func(context.Context) (access.Answer, error) {
			return access.Answer{Refused: true}, errors.New("HTTP 401 from https://t.example/token: invalid_client")
		}})
	t.Cleanup(k.Close)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() { _ = k.Wait(ctx) })
	testkit.Eventually(t, time.Minute, "the refusal to be written down", func() bool {
		why, err := access.Look(t.Context(), w.c, w.g.Name)
		return err == nil && why.Why != ""
	})
	cancel()
	waiting.Wait()
	w.p.Gateways[0].Request.OAuth2 = config.OAuth2{On: true, TokenURL: "http://127.0.0.1:1/"}
	w.expect("access_token", Fail, "it is not called: no access token: HTTP 401 from https://t.example/token: invalid_client", "check request.oauth2")
}

// Doctor names an unverified token_url if tokens are fetched there.
func TestAnUnverifiedTokenURL(t *testing.T) {
	t.Parallel()
	p := packs.Pack{Unverified: []string{"request.oauth2.token_url"},
		Gateway: map[string]any{"request": map[string]any{"oauth2": map[string]any{"token_url": "https://t.example/"}}}}
	for want, o := range map[string]config.OAuth2{
		"request.oauth2.token_url": {On: true, TokenURL: "https://t.example/"},
		"":                         {TokenURL: "https://t.example/"},
	} {
		g := config.DefaultGateway()
		g.Request.OAuth2 = o
		if got := strings.Join(unverified(g, p), " "); got != want {
			t.Errorf("%+v: %q", o, got)
		}
	}
	g := config.DefaultGateway()
	g.Request.OAuth2 = config.OAuth2{On: true, TokenURL: "https://mine.example/"}
	if got := unverified(g, p); len(got) != 0 {
		t.Errorf("of the file's own: %q", got)
	}
}
