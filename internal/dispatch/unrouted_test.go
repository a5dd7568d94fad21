package dispatch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// Jobs whose route is missing from the file are pulled once. When the route is back, all of them are called.
func TestJobsWithoutTheirRouteTakeNoSlots(t *testing.T) {
	t.Parallel()
	takeNoSlots(t, "gone", "routes: {gone: {request: {url: URL/other}}}", func(whole config.Gateway) (config.Gateway, config.Gateway) {
		lacking := whole
		lacking.Routes = nil
		return whole, lacking
	})
}

// takeNoSlots plays a crowd of jobs that can't be called with a file that lacks something. They are pulled once. Tried again each minute at a slot, they would take every second slot of the good jobs, for as
// long as they wait. With the whole file, all of them are called.
func takeNoSlots(t *testing.T, route, more string, files func(config.Gateway) (whole, lacking config.Gateway)) {
	t.Helper()
	const perSecond, waiting, good = 20, 800, 3200
	g := &till{}
	settings := fmt.Sprintf("leak: {limits: [%d/s], jitter: 1ms}\nadmission: {limits: [10000/s], burst: 20000}\n%s", perSecond, more)
	virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, settings, func(t *testing.T, r *rig) {
		whole, lacking := files(r.cfg.Gateways[0])
		r.cfg.Gateways[0] = whole
		r.admit(several("u", 0, waiting, route)...)
		r.cfg.Gateways[0] = lacking
		d := r.serve()
		testkit.Eventually(t, time.Minute, "all to be put aside", func() bool { return r.standing(0).Retrying == waiting })
		for from := 0; from < good; from += 800 {
			r.admit(several("g", from, 800, "")...)
		}
		<-time.After(90 * time.Second) // by now all have been due again
		const long = 30 * time.Second
		before := strings.Count(g.called(), "g")
		<-time.After(long)
		if rate := float64(strings.Count(g.called(), "g")-before) / long.Seconds(); rate < 0.95*perSecond {
			t.Errorf("%.1f good jobs a second were called: those that can't be took the other slots", rate)
		}
		if s := r.standing(0); s.Retrying != waiting || strings.Contains(g.called(), "u") {
			t.Errorf("%d of %d wait", s.Retrying, waiting)
		}
		if _, err := d.Reload(t.Context(), []config.Gateway{whole}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 5*time.Minute, "all to be called", func() bool { return r.standing(0).Done == waiting+good })
		r.clean()
	})
}

// several returns n jobs of a route, with numbered names.
func several(name string, from, n int, route string) (jobs []job.Job) {
	for i := from; i < from+n; i++ {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("%s%04d", name, i), Payload: []byte("{}"), Route: route})
	}
	return jobs
}

// A pending job whose route is missing from the file is asked for when the route is back. Until then it waits as jobs to be called do: another process may have the route, or the next file.
func TestAPendingJobWaitsForItsRoute(t *testing.T) {
	t.Parallel()
	c := newCashier()
	open := true
	c.ask = func(w http.ResponseWriter, id string) bool {
		if open {
			fmt.Fprintf(w, `{"data":[{"reference":%q,"status":"open"}]}`, id)
		}
		return open
	}
	beforeVirtually(t, c, strings.Replace(asked, "100ms, 100ms, 100ms, 1h", "1s, 5s, 10s, 20s", 1)+"\nroutes: {gone: {request: {url: URL/other}}}", func(t *testing.T, r *rig) {
		lost := several("lost-", 1, 1, "gone")
		lost[0].Payload = fmt.Appendf(nil, `{"id":%q}`, lost[0].ID)
		r.admit(lost...)
		d := r.serve()
		testkit.Eventually(t, time.Minute, "it to be asked for", func() bool { return r.found(lost[0].ID).Looks == 1 })
		reload := func(routes []config.Route) {
			t.Helper()
			g := r.cfg.Gateways[0]
			g.Routes = routes
			if _, err := d.Reload(t.Context(), []config.Gateway{g}); err != nil {
				t.Fatal(err)
			}
		}
		reload(nil)
		<-time.After(10 * time.Minute)
		if rec := r.found(lost[0].ID); rec.State != job.Pending || !strings.Contains(rec.LastSeen, `no route "gone"`) {
			t.Fatalf("it is %s %s, last seen: %s", rec.State, rec.Reason, rec.LastSeen)
		}
		c.mu.Lock()
		open = false
		c.mu.Unlock()
		reload(r.cfg.Gateways[0].Routes)
		testkit.Eventually(t, 2*time.Minute, "it to be done", func() bool { return r.standing(0).Done == 1 })
		if c.paid[lost[0].ID] != 1 {
			t.Errorf("charged %d times", c.paid[lost[0].ID])
		}
		r.clean()
	})
}
