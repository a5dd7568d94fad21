// Package httpapi is the HTTP side of a running dispatcher: metrics and health.
package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"spillway/internal/job"
)

// Config is what the HTTP side shows.
type Config struct {
	// Metrics answers /metrics.
	Metrics http.Handler
	// Ready says whether the dispatcher can do its work: Redis answers, and its data is what was seen of it. The message of a
	// coded error is shown, as it is safe to; any other error means that Redis does not answer.
	Ready func(context.Context) error
	// Token must be shown as "Authorization: Bearer TOKEN" for /metrics. Empty: nobody needs one.
	Token string
}

// readyTime bounds the question behind /readyz.
const readyTime = 2 * time.Second

// New returns the handler. /healthz says that the process lives, /readyz that it can do its work; neither needs the token,
// since both tell nothing else.
func New(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", guard(cfg.Token, cfg.Metrics))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTime)
		defer cancel()
		if err := cfg.Ready(ctx); err != nil {
			w.Header().Set("Retry-After", "1")
			problem(w, http.StatusServiceUnavailable, notReady(err))
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	return mux
}

func notReady(err error) string {
	if e, ok := errors.AsType[*job.Error](err); ok {
		return e.Message
	}
	return "Redis does not answer"
}

func guard(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(shown))
		if !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			problem(w, http.StatusUnauthorized, "show the token as Authorization: Bearer TOKEN")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// problem answers with application/problem+json (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}
