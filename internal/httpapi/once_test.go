package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"spillway/internal/roles"
)

// memory is a Once in memory.
type memory struct {
	mu   sync.Mutex
	kept map[string]Kept
}

func (m *memory) Begin(_ context.Context, key, digest string) (*Kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, is := m.kept[key]; is {
		return &k, nil
	}
	m.kept[key] = Kept{Digest: digest}
	return nil, nil
}

func (m *memory) Renew(context.Context, string) error { return nil }

func (m *memory) Keep(_ context.Context, key string, answer Kept) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[key] = answer
	return nil
}

func (m *memory) Drop(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, key)
	return nil
}

// acting serves one act at /v1/act.
func acting(answers Answers, do func(context.Context) (any, error)) *API {
	return New(Config{Once: &memory{kept: map[string]Kept{}}, Metrics: http.NotFoundHandler(), Operations: []Operation{{Method: http.MethodPost, Path: "/v1/act", Need: roles.Operate, Answers: answers, Act: true,
		Request: func() any { return nil }, Read: func(any, func(string) string, url.Values, []byte) error { return nil },
		Do: func(ctx context.Context, _ any, _ LineWriter) (any, error) { return do(ctx) }}}})
}

// act sends a request for the act, always with the same Idempotency-Key.
func act(ctx context.Context, a *API) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/act", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "key")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// An act is carried out to its end although its caller has gone. A second request with the same key gets the result.
func TestAnActIsDoneToItsEndForACallerWhoHasGone(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	times := 0
	a := acting(Document, func(within context.Context) (any, error) {
		if times++; times > 1 {
			return nil, errors.New("it was done before")
		}
		leave()
		return "done", within.Err()
	})
	act(ctx, a)
	if w := act(t.Context(), a); times != 1 || w.Code != http.StatusOK || w.Header().Get("Idempotency-Replayed") != "true" || strings.TrimSpace(w.Body.String()) != `"done"` {
		t.Errorf("done %d times: %d %s", times, w.Code, w.Body)
	}
}

type halfway struct {
	Steps int `json:"steps"`
	most  int
}

func (h halfway) Unfinished() bool { return h.Steps < h.most }

// An act that stopped halfway continues with the next request with the same key. Its answer is kept when the act is complete.
func TestAnActThatStoppedHalfwayGoesOnByTheSameKey(t *testing.T) {
	t.Parallel()
	steps := 0
	a := acting(Long, func(context.Context) (any, error) {
		steps++
		return halfway{steps, 2}, nil
	})
	for i, want := range []string{`{"steps":1}`, `{"steps":2}`, `{"steps":2}`} {
		if w := act(t.Context(), a); strings.TrimSpace(w.Body.String()) != want || (w.Header().Get("Idempotency-Replayed") == "true") != (i == 2) {
			t.Errorf("%d: %s, want %s", i, w.Body, want)
		}
	}
}
