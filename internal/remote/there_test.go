package remote

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"spillway/internal/desk"
	"spillway/internal/job"
)

// If the server redirects a request, the token and the act are not sent to the new address.
func TestARedirectTakesNothingElsewhere(t *testing.T) {
	t.Parallel()
	var came atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		came.Add(1)
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write([]byte(`{}`))
	}))
	defer elsewhere.Close()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		}))
		d, err := NewThere(at.URL, "s3cret")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Pause.Ask(t.Context(), d, SteerOf{GatewayAct: GatewayAct{Gateway: "g", Actor: ActorOf(desk.By{Who: "ann"})}})
		if job.CodeOf(err) != job.CodeUnavailable || !strings.Contains(err.Error(), "redirect") || came.Load() != 0 {
			t.Errorf("%d: %v; %d requests came elsewhere", status, err, came.Load())
		}
		d.Close()
		at.Close()
	}
}

// A batch may be called "..". It is escaped in the path, where proxies and net/http would take it for the parent.
func TestANameThatLooksLikeAStepIsEscaped(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.RequestURI)
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write([]byte(`{}`))
	}))
	defer srv.Close()
	d, err := NewThere(srv.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for name, want := range map[string]string{"..": "%2E%2E", ".": "%2E", "a/..": "a%2F..", "2026.11": "2026.11"} {
		if _, _ = PauseBatch.Ask(t.Context(), d, BatchActOf{Name: name}); asked.Load() != "/v1/batches/"+want+"/pause" {
			t.Errorf("%q: %v", name, asked.Load())
		}
	}
}

// An answer without an end is not read beyond a bound.
func TestAnAnswerWithoutAnEndIsLeftAlone(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", typeJSON)
		for range 1 << 10 {
			if _, err := w.Write([]byte(strings.Repeat(" ", 1<<10))); err != nil {
				return
			}
		}
		_, _ = w.Write([]byte(`{"gateway":"g"}`))
	}))
	defer srv.Close()
	d, err := NewThere(srv.URL, "s3cret")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for most, fine := range map[int64]bool{1 << 19: false, 2 << 20: true} {
		d.most = most
		_, err := Pause.Ask(t.Context(), d, SteerOf{GatewayAct: GatewayAct{Gateway: "g", Actor: ActorOf(desk.By{Who: "ann"})}})
		if (err == nil) != fine || !fine && job.CodeOf(err) != job.CodeUnavailable {
			t.Errorf("at most %d bytes: %v", most, err)
		}
	}
}
