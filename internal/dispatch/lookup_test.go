package dispatch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/outcome"
)

// lookingUp returns a gateway of this server with this lookup.
func lookingUp(t *testing.T, server, lookup string) config.Gateway {
	t.Helper()
	text := "gateways:\n  g:\n    request: {url: \"" + server + "/pay?token=sk_canary_url\", headers: {Authorization: Bearer sk_canary_header}}\n    leak: {limits: [100/s]}\n    lookup: " + lookup + "\n"
	cfg, err := config.Parse("g.yaml", []byte(text), config.Options{Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Gateways[0]
}

// A look-up is sent to a real server as the file configures it, and its answer is judged so.
func TestALookUpOfAConfiguration(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer sk_canary_header":
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/payments/pi_1":
			fmt.Fprint(w, `{"id":"pi_1","status":"declined","why":"sk_canary_header sk_canary_look"}`)
		case r.URL.Query().Get("after") == "c1":
			fmt.Fprint(w, `{"data":[{"id":"pi_2","ref":"inv-1","status":"paid"}],"next":""}`)
		default:
			fmt.Fprint(w, `{"data":[],"next":"c1"}`)
		}
	}))
	defer srv.Close()
	g := lookingUp(t, srv.URL, `
      url: /payments?token=sk_canary_look
      share: 25%
      limits: [7/s]
      schedule: [1s, 2s]
      scan: {items: data, match: {ref: "{id}"}, next: next, parameter: after, pages: 4}
      answers: [{body: {status: paid}, then: done}, {body: {status: declined}, then: refused}, {absent: true, then: not_done, after: 0s}]
      accepted: {url: "/payments/{reference}", matches: {id: "{reference}"}, schedule: [1h]}`)
	l, err := newLookup(g, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if l.Share != 0.25 || !reflect.DeepEqual(l.Limits, []job.Limit{{N: 7, Window: time.Second}}) || l.Pages != 4 || !reflect.DeepEqual(l.For(true).Schedule, []time.Duration{time.Hour}) || len(l.For(false).Schedule) != 2 {
		t.Errorf("%+v", l)
	}
	find := func(accepted bool, look job.Look, page string) job.Finding {
		q := l.For(accepted)
		return q.Judge(outcome.LookInput{Result: q.Send(t.Context(), job.LookRequest{Look: look, Key: look.Key(), Page: page}), Look: look})
	}
	look := job.Look{Job: job.Job{ID: "inv-1"}, KeyGeneration: 1}
	if f := find(false, look, ""); f.Page != "c1" || f.Verdict != job.LookLater {
		t.Errorf("the first page: %+v", f)
	}
	if f := find(false, look, "c1"); f.Verdict != job.LookDone || f.Reference != "pi_2" {
		t.Errorf("the second page: %+v", f)
	}
	if f := find(true, look, ""); f.Verdict != job.LookLater || f.Failed || f.Status != 0 || !strings.Contains(f.Error, "{reference}") {
		t.Errorf("without a reference: %+v", f)
	}
	look.Reference = "pi_1"
	if f := find(true, look, ""); f.Verdict != job.LookRefused || strings.Contains(f.Error, "sk_canary") || !strings.Contains(f.Error, "declined") {
		t.Errorf("by reference: %+v", f)
	}
	without := lookingUp(t, srv.URL, "off")
	if sent(without) != sent(g) {
		t.Error("a look-up changes what calls are made of")
	}
	if none, err := newLookup(without, nil, nil); err != nil || none.For(false).any() || none.For(true).any() || !l.For(false).any() {
		t.Errorf("%+v, %v", none, err)
	}
}
