package gateway

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"spillway/internal/job"
)

// conns is a gateway that counts the connections to it.
func conns(t *testing.T) (url string, open func() int) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.RemoteAddr] = true
		_, _ = w.Write([]byte(r.Header.Get("Authorization")))
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() int { mu.Lock(); defer mu.Unlock(); return len(seen) }
}

func pay(t *testing.T, c *Client, as string) {
	t.Helper()
	res := c.Send(context.Background(), call("a"))
	if res.Stage != job.Answered || res.Err != nil || string(res.Body) != as {
		t.Errorf("stage %v, %q, %v, want an answer to %s", res.Stage, res.Body, res.Err, as)
	}
}

// Merchants of one payment service share connections, each call has its own merchant's credential, and one that leaves takes nothing from the others.
func TestGatewaysAtOneAddressShareConnections(t *testing.T) {
	t.Parallel()
	url, open := conns(t)
	p := NewPool()
	of := func(name string) *Client {
		c, err := New(Config{URL: url + "/" + name, Headers: map[string]string{"Authorization": name}, Pool: p})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one, other := of("one"), of("other")
	for range 3 {
		pay(t, one, "one")
		pay(t, other, "other")
	}
	if n := open(); n != 1 {
		t.Errorf("%d connections for two gateways whose calls are one after the other", n)
	}
	one.Close()
	one.Close()
	pay(t, other, "other")
	if n := open(); n != 1 {
		t.Errorf("a gateway that left closed the other's connection: there were %d", n)
	}
	other.Close()
	third := of("third")
	defer third.Close()
	pay(t, third, "third")
	if n := open(); n != 2 {
		t.Errorf("%d connections, want a new one after the last one has left", n)
	}
	if len(p.all) != 1 {
		t.Errorf("the pool has %d ways", len(p.all))
	}
}

// What differs in how it connects shares nothing.
func TestWhatConnectsOtherwiseSharesNothing(t *testing.T) {
	t.Parallel()
	p := NewPool()
	const url = "https://psp.example/v1"
	same := Config{URL: url, Pool: p}
	base, err := New(same)
	if err != nil {
		t.Fatal(err)
	}
	for what, cfg := range map[string]Config{
		"another host":       {URL: "https://other.example/v1"},
		"another port":       {URL: "https://psp.example:8443/v1"},
		"another scheme":     {URL: "http://psp.example:443/v1"},
		"a proxy":            {URL: url, Proxy: "http://user:word@proxy.example:3128"},
		"a shorter time-out": {URL: url, Timeout: time.Second},
		"its own TLS":        {URL: url, TLS: &tls.Config{ServerName: "psp.example"}},
		"its own dialer":     {URL: url, Dial: base.dialer.open},
	} {
		cfg.Pool = p
		if c, err := New(cfg); err != nil || c.conns.transport == base.conns.transport {
			t.Errorf("%s: it shares connections, or %v", what, err)
		}
	}
	for what, cfg := range map[string]Config{"another path": {URL: "https://psp.example/v2"}, "another method": {URL: url, Method: "PUT"}} {
		cfg.Pool = p
		if c, err := New(cfg); err != nil || c.conns.transport != base.conns.transport {
			t.Errorf("%s: it has its own connections, or %v", what, err)
		}
	}
	if c, err := New(Config{URL: url}); err != nil || c.conns.transport == base.conns.transport {
		t.Errorf("without a pool: it shares connections, or %v", err)
	}
}
