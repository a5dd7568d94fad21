package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/testkit"
)

func TestHealthcheckAsksTheRunOfItsMachine(t *testing.T) {
	t.Parallel()
	var notReady atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" && notReady.Load() || r.URL.Path != "/readyz" && r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(srv.Close)
	at := strings.TrimPrefix(srv.URL, "http://")
	port := at[strings.LastIndexByte(at, ':'):]
	file := filepath.Join(t.TempDir(), "d.yaml")
	text := fmt.Sprintf("listen: 0.0.0.0%s\ntoken: t0ken\ngateways: {g: {request: {url: http://127.0.0.1:1/}, leak: {limits: [1/s]}}}\n", port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) (int, string) {
		var out bytes.Buffer
		s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}
		return cli.Main(name, newCommand, append([]string{"healthcheck", "-c", file}, args...), s), out.String()
	}
	nobody := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
	for _, c := range []struct {
		notReady bool
		args     []string
		code     int
		says     string
	}{
		{false, nil, 0, "ok\n"},
		{false, []string{"--ready", "-o", "json"}, 0, `"ok":true`},
		{true, nil, 0, "ok\n"},
		{true, []string{"--ready"}, 1, "answers 503"},
		{false, []string{"--listen", nobody}, 5, "no answer from"},
		{false, []string{"--listen", ""}, 2, "serves nothing"},
		{false, []string{"--listen", "9400"}, 2, "not an address"},
	} {
		notReady.Store(c.notReady)
		if code, says := ask(c.args...); code != c.code || !strings.Contains(says, c.says) {
			t.Errorf("healthcheck %v: exit code %d, %q, want %d and %q", c.args, code, says, c.code, c.says)
		}
	}
}

// While Redis hangs, run answers after two seconds that it is not ready. Healthcheck waits for that answer. On a busy machine the answer may come
// too late for healthcheck, which then has waited for more than three seconds.
func TestHealthcheckHearsOutARunWhoseRedisHangs(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(2200 * time.Millisecond)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(srv.Close)
	var out bytes.Buffer
	s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}
	begun := time.Now()
	code := cli.Main(name, newCommand, []string{"healthcheck", "--ready", "--listen", strings.TrimPrefix(srv.URL, "http://")}, s)
	if took := time.Since(begun); (code != 1 || !strings.Contains(out.String(), "answers 503")) && took < 3*time.Second {
		t.Errorf("exit code %d after %s, %s", code, took, out.String())
	}
}
