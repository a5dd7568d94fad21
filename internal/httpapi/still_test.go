package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/roles"
)

// endless is a feed with a new outcome at each read.
type endless struct{ n atomic.Int64 }

func (e *endless) Read(_ context.Context, after string, _ int) ([]Outcome, error) {
	if after == "none" {
		return nil, nil
	}
	n := e.n.Add(1)
	return []Outcome{{Cursor: fmt.Sprint(n), Line: fmt.Appendf(nil, `{"n":%d}`, n)}}, nil
}

func (e *endless) Wait(ctx context.Context, _ string, within time.Duration) error {
	select {
	case <-time.After(min(within, 10*time.Millisecond)):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (e *endless) Acked(context.Context, string) (string, error)    { return "", nil }
func (e *endless) Ack(context.Context, string, string) (any, error) { return "", nil }

// A long request ends when its token is removed, has ended, or no longer permits the request.
func TestALongRequestEndsWithItsToken(t *testing.T) {
	t.Parallel()
	mine := named("billing", roles.Producer, longSecret)
	mine.Gateways = []string{"g"}
	over, other, viewer := mine, mine, mine
	over.Expires, other.Gateways, viewer.Role = time.Now().Add(-time.Second), []string{"h"}, roles.Viewer
	for name, then := range map[string][]roles.Token{"taken out": {named("x", roles.Admin, longSecret+"2")}, "ended": {over}, "of another gateway": {other}, "another role": {viewer}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guard, door, feed := NewGuard(""), &openDoor{}, &endless{}
			guard.Use(Access{Tokens: []roles.Token{mine}})
			srv := httptest.NewServer(New(Config{Guard: guard, Door: door, Gateways: map[string]Gateway{"g": {MaxCost: 1}}, Outcomes: func(string) (Outcomes, error) { return feed, nil }}))
			defer srv.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			send := func(method, path, kind string, body io.Reader) *http.Response {
				r, _ := http.NewRequestWithContext(ctx, method, srv.URL+"/v1/gateways/g/"+path, body)
				r.Header.Set("Authorization", "Bearer "+longSecret)
				r.Header.Set("Content-Type", kind)
				r.Header.Set("Accept", "text/event-stream")
				back, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				return back
			}
			events := send(http.MethodGet, "outcomes", "", nil)
			defer events.Body.Close()
			first := bufio.NewReader(events.Body)
			if _, err := first.ReadString('}'); err != nil {
				t.Fatal(err)
			}
			body, jobs := io.Pipe()
			begun := make(chan struct{})
			go func() {
				for i := range 5000 {
					_, _ = fmt.Fprintf(jobs, "{\"id\":\"a%d\",\"payload\":{}}\n", i)
				}
				<-begun
				for i := range 5000 {
					_, _ = fmt.Fprintf(jobs, "{\"id\":\"b%d\",\"payload\":{}}\n", i)
				}
				_ = jobs.Close()
			}()
			posted := send(http.MethodPost, "jobs", typeNDJSON, body)
			defer posted.Body.Close()
			guard.Use(Access{Tokens: then})
			close(begun)
			if _, err := io.ReadAll(first); err != nil {
				t.Errorf("the stream of events: %v", err)
			}
			text, err := io.ReadAll(posted.Body)
			if n := strings.Count(string(text), `"no_token"`); err != nil || n < 4000 || int(door.took.Load())+n != 10_000 || strings.Contains(string(text), `"id":"b4999","status":202`) {
				t.Errorf("%v: of 10000 jobs %d were taken in, %d were refused", err, door.took.Load(), n)
			}
		})
	}
	t.Run("while it waits", func(t *testing.T) {
		t.Parallel()
		guard := NewGuard("")
		guard.Use(Access{Tokens: []roles.Token{mine}})
		api := New(Config{Guard: guard, Door: &openDoor{}, Gateways: map[string]Gateway{"g": {MaxCost: 1}}, Outcomes: func(string) (Outcomes, error) { return &endless{}, nil }})
		time.AfterFunc(100*time.Millisecond, func() { guard.Use(Access{Tokens: []roles.Token{over}}) })
		got := visit(api, "/v1/gateways/g/outcomes?after=none&wait=30s", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+longSecret) })
		if got.Code != http.StatusUnauthorized {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	})
	t.Run("and goes on with a token that stays", func(t *testing.T) {
		t.Parallel()
		guard := NewGuard("")
		guard.Use(Access{Tokens: []roles.Token{mine}})
		api := New(Config{Guard: guard, Door: &openDoor{}, Gateways: map[string]Gateway{"g": {MaxCost: 1}}, Outcomes: func(string) (Outcomes, error) { return &endless{}, nil }})
		time.AfterFunc(50*time.Millisecond, func() { guard.Use(Access{Tokens: []roles.Token{named("new", roles.Viewer, longSecret+"3"), mine}}) })
		got := visit(api, "/v1/gateways/g/outcomes?after=none&wait=300ms", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+longSecret) })
		if got.Code != http.StatusOK {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	})
}

// A long operation ends when its token or role is taken away, and goes on with one that has only expired.
func TestALongOperationEndsWithItsRole(t *testing.T) {
	t.Parallel()
	mine := named("ann", roles.Operator, longSecret)
	over, viewer := mine, mine
	over.Expires, viewer.Role = time.Now().Add(-time.Second), roles.Viewer
	for name, c := range map[string]struct {
		then  []roles.Token
		stays bool
	}{
		"taken out": {[]roles.Token{named("x", roles.Admin, longSecret+"2")}, false}, "another role": {[]roles.Token{viewer}, false},
		"expired": {[]roles.Token{over}, true}, "one more": {[]roles.Token{named("x", roles.Admin, longSecret+"2"), mine}, true},
	} {
		for _, answers := range []Answers{Long, Lines} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				guard := NewGuard("")
				guard.Use(Access{Tokens: []roles.Token{mine}})
				long := Operation{Method: http.MethodPost, Path: "/v1/long", Need: roles.Operate, Answers: answers, Request: func() any { return new(int) },
					Read: func(any, func(string) string, url.Values, []byte) error { return nil },
					Do: func(ctx context.Context, _ any, out LineWriter) (any, error) {
						guard.Use(Access{Tokens: c.then})
						_ = out.Line("begun")
						within := 3 * lookAgain / 2
						if !c.stays {
							within = time.Minute
						}
						select {
						case <-time.After(within):
							return "done", nil
						case <-ctx.Done():
							return nil, ctx.Err()
						}
					}}
				srv := httptest.NewServer(New(Config{Guard: guard, Metrics: http.NotFoundHandler(), Operations: []Operation{long}}))
				defer srv.Close()
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/long", strings.NewReader("{}"))
				r.Header.Set("Authorization", "Bearer "+longSecret)
				r.Header.Set("Content-Type", typeJSON)
				r.Header.Set("Accept", typeNDJSON)
				got, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer got.Body.Close()
				text, err := io.ReadAll(got.Body)
				if ended := strings.Contains(string(text), `"no_token"`); err != nil || ended == c.stays || !strings.Contains(string(text), "begun") {
					t.Errorf("%v %s", err, text)
				}
			})
		}
	}
}
