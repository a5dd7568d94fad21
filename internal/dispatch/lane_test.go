package dispatch

import (
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// Each call and each look-up carries its job's lane in a header. If the file says so, the lane is stripped from the payload.
func TestCallsHaveTheirJobsLane(t *testing.T) {
	t.Parallel()
	g := &twoRoutes{lost: 1}
	r := routed(t, g, `{url: URL/charges, idempotency_header: ""}`, "lanes: {key: payload.m, strip: true, header: {X-Kind: \"{lane}\"}}\n"+`leak: {limits: [200/s], jitter: 1ms}
routes:
  refund:
    request: {url: "URL/refunds/{lane}"}
    answers: [{status: 418, then: done}]
    lookup: {url: "/refunds/of/{id}", schedule: [100ms], matches: {of: "{id}"}, answers: [{body: {status: refunded}, then: done}]}
`)
	if got, want := r.admit(job.Job{ID: "a", Payload: []byte(`{"m":"one","n":1}`)}, job.Job{ID: "b", Payload: []byte(`{"m":"two/2"}`), Route: "refund"}), []string{"enqueued", "enqueued"}; !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	r.serve()
	testkit.Eventually(t, 10*time.Second, "both to be done", func() bool { return r.standing(0).Done == 2 })
	if got, want := g.requests(), []string{"GET /refunds/of/b two/2", `POST /charges one {"n":1}`, "POST /refunds/two/2 two/2 {}"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A job that costs more than the limit of its lane or route would wait for ever, so the highest cost that is admitted is the lowest of these limits.
func TestNoJobCostsMoreThanItsLaneCanGrant(t *testing.T) {
	t.Parallel()
	for settings, most := range map[string]int64{
		"leak: {limits: [9/s]}": 9,
		"leak: {limits: [9/s]}\nlanes: {key: payload.m, limits: [4/s, 5/m]}":                                     4,
		"leak: {limits: [9/s]}\nroutes: {a: {request: {url: URL/a}}, b: {request: {url: URL/b}, limits: [3/s]}}": 3,
	} {
		if got := MaxCost(routed(t, &twoRoutes{}, "{url: URL/charges}", settings).cfg.Gateways[0]); got != most {
			t.Errorf("%s: %d, want %d", settings, got, most)
		}
	}
}
