package dispatch

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// twoRoutes is a gateway that charges at one path, refunds at another, and looks up refunds only. The first lost refunds get no answer.
type twoRoutes struct {
	mu   sync.Mutex
	seen []string // method, path, a header, and the body of each request
	lost int      // refunds whose answer is lost
}

func (g *twoRoutes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("X-Kind"), body)))
	switch {
	case r.Method == http.MethodGet:
		fmt.Fprintf(w, `{"status":"refunded","reference":"looked-up","of":%q}`, path.Base(r.URL.Path))
	case strings.HasPrefix(r.URL.Path, "/refunds") && g.lost > 0:
		g.lost--
		panic(http.ErrAbortHandler)
	case strings.HasPrefix(r.URL.Path, "/refunds"):
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, `{"refund":{"id":"re_1"}}`)
	default:
		fmt.Fprint(w, `{"id":"ch_1"}`)
	}
}

// requests returns the requests seen so far, sorted.
func (g *twoRoutes) requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(slices.Values(g.seen))
}

const routes = `leak: {limits: [200/s], jitter: 1ms}
routes:
  refund:
    request: {url: "URL/refunds/{payload.charge}", encoding: form, headers: {X-Kind: refund}}
    answers: [{status: 418, then: done}]
    reference: refund.id
    lookup: {url: "/refunds/of/{id}", schedule: [100ms], matches: {of: "{id}"}, answers: [{body: {status: refunded}, then: done, reference: reference}]}
`

// routed makes a gateway of these settings.
func routed(t *testing.T, g http.Handler, request, settings string) *rig {
	t.Helper()
	r := &rig{t: t}
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	r.parse(routedFile(t, testkit.Gateway(t), srv.URL, request, settings))
	var err error
	if r.db, err = Open(t.Context(), r.cfg, patience); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	return r
}

// routedFile returns a configuration with a gateway of these settings. URL in them stands for its address.
func routedFile(t *testing.T, name, address, request, settings string) string {
	t.Helper()
	text := fmt.Sprintf("redis: %s\ngateways:\n  %s:\n    request: %s\n    %s\n", testkit.Redis(t), name, request, strings.ReplaceAll(settings, "\n", "\n    "))
	return strings.ReplaceAll(text, "URL", address)
}

// virtually is routed in virtual time, for tests of when calls are made. The clock advances only when there is nothing left to do, so the speed of the machine does
// not matter. If g is nil, the gateway is the rig itself.
func virtually(t *testing.T, g http.Handler, request, settings string, test func(t *testing.T, r *rig)) {
	t.Helper()
	testkit.Redis(t) // its connections belong to no bubble
	name := testkit.Gateway(t)
	bubble(t, func(t *testing.T) {
		door := newPipes()
		r := &rig{t: t, db: newVirtual(t, name, nil).db, dial: door.dial}
		if g == nil {
			g = r
		}
		srv := &http.Server{Handler: g, ReadHeaderTimeout: time.Hour}
		t.Cleanup(func() { _ = srv.Close() })
		go func() { _ = srv.Serve(door) }()
		r.parse(routedFile(t, name, "http://gateway.invalid", request, settings))
		test(t, r)
	})
}

// plainly is virtually for settings like those of setup.
func plainly(t *testing.T, settings string, test func(t *testing.T, r *rig)) {
	t.Helper()
	virtually(t, nil, `{url: URL/, timeout: 20s, idempotency_prefix: ""}`, settings, test)
}

// admit offers jobs and returns their outcomes, or their errors.
func (r *rig) admit(jobs ...job.Job) (said []string) {
	r.t.Helper()
	for i := range jobs {
		jobs[i].Gateway, jobs[i].Cost = r.cfg.Gateways[0].Name, 1
	}
	answers, err := Door(r.db.Client, r.cfg, patience).Admit(r.t.Context(), r.cfg.Gateways[0].Name, jobs, admission.Park)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, a := range answers {
		if a.Err != nil {
			said = append(said, a.Err.Error())
			continue
		}
		said = append(said, string(a.Outcome))
	}
	return said
}

func (r *rig) found(id string) job.Record {
	r.t.Helper()
	rec, ok, err := Books(r.db.Client, r.cfg.Gateways[0]).Find(r.t.Context(), id)
	if err != nil || !ok {
		r.t.Fatalf("job %s: found %v, %v", id, ok, err)
	}
	return rec
}

// Jobs are called, judged and looked up by their routes. Jobs without a route use the gateway's own request.
func TestJobsGoByTheirRoutes(t *testing.T) {
	t.Parallel()
	g := &twoRoutes{lost: 1}
	r := routed(t, g, `{url: URL/charges, idempotency_header: ""}`, routes)
	name := r.cfg.Gateways[0].Name
	payload := []byte(`{"charge":"c/1"}`)
	if got, want := r.admit(job.Job{ID: "a", Payload: payload}, job.Job{ID: "b", Payload: payload, Route: "refund"}, job.Job{ID: "c", Payload: payload, Route: "refnud"}),
		[]string{"enqueued", "enqueued", fmt.Sprintf(`gateway %s has no route "refnud": it has refund; did you mean refund?`, name)}; !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	r.serve()
	testkit.Eventually(t, 10*time.Second, "both to be done", func() bool { return r.standing(0).Done == 2 })
	if a := r.found("a"); a.Reference != "ch_1" || a.Job.Route != "" {
		t.Errorf("a: %+v", a)
	}
	if b := r.found("b"); b.Reference != "looked-up" || b.Job.Route != "refund" || len(b.History) != 2 {
		t.Errorf("b: %+v", b)
	}
	if got, want := g.requests(), []string{"GET /refunds/of/b refund", `POST /charges  {"charge":"c/1"}`, "POST /refunds/c/1 refund charge=c%2F1"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	r.admit(job.Job{ID: "d", Payload: payload, Route: "refund"})
	testkit.Eventually(t, 10*time.Second, "the refund to be done", func() bool { return r.standing(0).Done == 3 })
	if d := r.found("d"); d.Reference != "re_1" || d.Status != http.StatusTeapot {
		t.Errorf("d: %+v", d)
	}
}

// At a gateway without a request of its own, jobs that name no route get the first one.
func TestTheFirstRouteIsTheUsualOne(t *testing.T) {
	t.Parallel()
	g := &twoRoutes{}
	r := routed(t, g, `{headers: {X-Kind: any}}`, "leak: {limits: [200/s]}\nroutes: {charge: {request: {url: URL/charges}}, other: {request: {url: URL/other}}}")
	r.admit(job.Job{ID: "a"}, job.Job{ID: "b", Route: "other"})
	r.serve()
	testkit.Eventually(t, 10*time.Second, "both to be done", func() bool { return r.standing(0).Done == 2 })
	if a := r.found("a"); a.Job.Route != "charge" {
		t.Errorf("a: %+v", a)
	}
	if got, want := g.requests(), []string{"POST /charges any {}", "POST /other any {}"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// When a reload removes a route, its jobs wait. When a reload adds one, its jobs are called.
func TestAReloadChangesRoutes(t *testing.T) {
	t.Parallel()
	g := &twoRoutes{}
	r := routed(t, g, `{url: URL/charges}`, "leak: {limits: [200/s]}\nroutes: {other: {request: {url: URL/other}}}")
	d := r.serve()
	with := r.cfg.Gateways[0]
	without := with
	without.Routes = nil
	if _, err := d.Reload(t.Context(), []config.Gateway{without}); err != nil {
		t.Fatal(err)
	}
	r.admit(job.Job{ID: "a", Route: "other"}, job.Job{ID: "b"})
	testkit.Eventually(t, 10*time.Second, "one to be put aside, one to be done", func() bool { s := r.standing(0); return s.Done == 1 && s.Retrying == 1 })
	if a := r.found("a"); a.Spent != 0 || !strings.Contains(a.Error, `no route "other"`) {
		t.Errorf("a: %+v", a)
	}
	if _, err := d.Reload(t.Context(), []config.Gateway{with}); err != nil {
		t.Fatal(err)
	}
	r.admit(job.Job{ID: "c", Route: "other"})
	testkit.Eventually(t, 10*time.Second, "the new one to be done", func() bool { return r.standing(0).Done == 2 })
	if got, want := g.requests(), []string{"POST /charges  {}", "POST /other  {}"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
