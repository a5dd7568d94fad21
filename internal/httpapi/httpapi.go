// Package httpapi is the HTTP side of a running dispatcher: metrics and health.
package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"spillway/internal/job"
)

// Config is what the HTTP side shows.
type Config struct {
	// Guard lets in who shows the token. Nil: nobody needs one.
	Guard *Guard
	// Metrics answers /metrics.
	Metrics http.Handler
	// Ready says whether the dispatcher can do its work: Redis answers, and its data is what was seen of it. The message of a
	// coded error is shown, as it is safe to; any other error means that Redis does not answer.
	Ready func(context.Context) error
	// Console answers / and everything below it that nobody else answers. Nil: there is none.
	Console http.Handler
	// Login answers LoginPath and what its page needs, /assets/, for everybody: it asks a person for the token and calls Guard.LogIn.
	// Nil: there is none.
	Login http.Handler
	// Queues answers /queues/ and everything below it. Nil: there is none.
	Queues http.Handler
}

// readyTime bounds the question behind /readyz.
const readyTime = 2 * time.Second

// New returns the handler. /healthz says that the process lives, /readyz that it can do its work; neither needs the token,
// since both tell nothing else.
func New(cfg Config) http.Handler {
	if cfg.Guard == nil {
		cfg.Guard = NewGuard("")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", cfg.Guard.Person(false, cfg.Metrics))
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
	pages(mux, cfg)
	return mux
}

// pages mounts what people look at.
func pages(mux *http.ServeMux, cfg Config) {
	if cfg.Console != nil {
		mux.Handle("/", cfg.Guard.Person(cfg.Login != nil, cfg.Console))
	}
	if cfg.Login != nil {
		mux.Handle(LoginPath, cfg.Login)
		mux.Handle("/assets/", cfg.Login)
	}
	if cfg.Queues != nil {
		mux.Handle("/queues/", cfg.Guard.Person(cfg.Login != nil, cfg.Queues))
	}
}

func notReady(err error) string {
	if e, ok := errors.AsType[*job.Error](err); ok {
		return e.Message
	}
	return "Redis does not answer"
}

// problem answers with application/problem+json (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}
