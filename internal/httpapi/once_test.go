package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"spillway/internal/job"
	"spillway/internal/roles"
	"spillway/internal/testkit"
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

// A key that stands twice in a body is refused before anything is done: the last one would win, and nobody knows which was meant.
func TestABodyHasEachKeyOnce(t *testing.T) {
	t.Parallel()
	done := 0
	a := acting(Document, func(context.Context) (any, error) { done++; return map[string]int{}, nil })
	for body, want := range map[string]string{
		`{"why":"a","why":"b"}`:              `the key \"why\" stands twice in one object`,
		`{"why":"a","\u0077hy":"b"}`:         `the key \"why\" stands twice in one object`,
		`{"why":"a","Why":"b"}`:              `the keys \"why\" and \"Why\" of one object mean the same`,
		`{"ids":["x"],"of":{"to":1,"to":2}}`: `the key \"to\" stands twice in one object`,
		`{"why":"a","of":{"to":1,"TO":2}}`:   "",
		`{"why":"why","ids":["why","why"]}`:  "",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/act", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		before := done
		a.ServeHTTP(w, r)
		if want == "" && (w.Code != 200 || done != before+1) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
		if want != "" && (w.Code != 400 || done != before || !strings.Contains(w.Body.String(), want)) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

// That an operation is not possible is the caller's matter. A fault of the dispatcher is an error in its log.
func TestARefusedOperationIsNoErrorInTheLog(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err          error
		status       int
		level, about string
	}{
		"refused": {&job.Error{Code: job.CodeFailed, Message: "the batch is cancelled"}, 409, "INFO", "the batch is cancelled"},
		"a fault": {errors.New("wires crossed"), 500, "ERROR", "wires crossed"},
	} {
		var log testkit.Log
		a := acting(Document, func(context.Context) (any, error) { return nil, tc.err })
		a.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		if w := act(t.Context(), a); w.Code != tc.status {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if text := log.String(); strings.Count(text, "level=") != 1 || !strings.Contains(text, "level="+tc.level) || !strings.Contains(text, tc.about) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
