package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func ask(t *testing.T, cfg Config, path, token string) *httptest.ResponseRecorder {
	t.Helper()
	cfg.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) })
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	w := httptest.NewRecorder()
	New(cfg).ServeHTTP(w, r)
	return w
}

func TestTheTokenGuardsMetricsAndNotHealth(t *testing.T) {
	t.Parallel()
	cfg := Config{Guard: NewGuard("s3cret"), Ready: func(context.Context) error { return nil }}
	for token, want := range map[string]int{"": 401, "Bearer wrong": 401, "s3cret": 401, "Bearer s3cret": 200} {
		if w := ask(t, cfg, "/metrics", token); w.Code != want || strings.Contains(w.Body.String(), "s3cret") {
			t.Errorf("token %q: %d, want %d: %s", token, w.Code, want, w.Body)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if w := ask(t, cfg, path, ""); w.Code != 200 {
			t.Errorf("%s without a token: %d", path, w.Code)
		}
	}
	if w := ask(t, Config{Ready: cfg.Ready}, "/metrics", ""); w.Code != 200 {
		t.Errorf("metrics where there is no token: %d", w.Code)
	}
}

func TestNotReadySaysWhenToComeAgain(t *testing.T) {
	t.Parallel()
	w := ask(t, Config{Ready: func(context.Context) error { return errors.New("dial tcp 10.0.0.1: refused") }}, "/readyz", "")
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Content-Type") != "application/problem+json" || strings.Contains(w.Body.String(), "10.0.0.1") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := ask(t, Config{}, "/nothing", ""); w.Code != 404 {
		t.Errorf("an unknown path: %d", w.Code)
	}
}
