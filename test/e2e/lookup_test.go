package e2e

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// askedAfter is a gateway without keys that is asked what became of its calls. That there is no charge is believed 4 s after the call: by then also a provider that got no
// processor for a while has read the call.
const askedAfter = `      idempotency_header: ""
      timeout: 1s
    leak: {limits: [100/s], jitter: 10ms}
    lookup: {url: "/lookups/{id}", schedule: [200ms, 400ms, 500ms, 1s, 1s, 2s, 5s, 5s, 10s, 10s], matches: {job: "{id}"}, answers: [{body: {status: succeeded}, then: done, reference: id}, {status: 404, then: not_done, after: 4s}]}
`

// named puts the job's id into the url of its calls: without keys the provider knows jobs by it.
func (w *world) named() {
	w.config = w.file("dispatcher.yaml", strings.ReplaceAll(read(w.t, w.config), "/v1/payment_intents", "/v1/payment_intents/{id}"))
}

// Answers are lost, and the gateway is asked what became of the calls. Look-ups lag, and some fail. Still nothing is left to a person.
func TestWhatIsLostIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{Limits: perSecond100, NoKeys: true, Hang: 0.1, LookupLag: 500 * time.Millisecond, LookupFail: 0.1, LookupHang: 0.02}, askedAfter)
	w.named()
	w.offer("all", 300)
	first, second := w.dispatcher(), w.dispatcher()
	w.shown(t, 2*time.Minute, "all to be done", func() bool { return w.status().Done == 300 })
	s := w.settled(2 * time.Minute)
	if s.Done != 300 || len(s.Parked) != 0 {
		t.Errorf("%+v, want all done", s)
	}
	seen := w.strict()
	if seen.Charged != 300 || seen.Calls != 300 || seen.Hung == 0 || seen.LookupsFound < seen.Calls/20 {
		t.Errorf("%d calls, %d charged, %d never answered, %d look-ups, %d of them found a charge", seen.Calls, seen.Charged, seen.Hung, seen.Lookups, seen.LookupsFound)
	}
	t.Logf("%d calls, %d look-ups, %d of them found a charge", seen.Calls, seen.Lookups, seen.LookupsFound)
	w.ok("dispatcher", "audit")
	first.stop()
	second.stop()
}

// TestAfterARestoreTheGatewayIsAsked restores Redis to before some of 60 jobs were called. The gateway has no keys. It says which jobs were charged, and the others continue.
// Nothing is left to a person, and nothing is charged twice.
func TestAfterARestoreTheGatewayIsAsked(t *testing.T) {
	t.Parallel()
	a := newArchive(t, provider.Config{Limits: []provider.Limit{{N: 20, Window: time.Second}}, NoKeys: true}, strings.Replace(askedAfter, "100/s", "20/s", 1))
	a.named()
	a.served(0)
	a.offer("before", 60)
	a.take(time.Minute)
	r := a.dispatcher()
	testkit.Eventually(t, time.Minute, "some calls", func() bool { return a.provider.Stats().Calls >= 25 })
	r.kill()
	a.restore()
	called := a.provider.Stats().Charged
	if called > 50 {
		t.Fatalf("%d of 60 jobs were called already: nothing is left to go on", called)
	}
	a.refused()
	again := a.dispatcher("--after-restore")
	a.shown(t, 2*time.Minute, "all to be done", func() bool { return a.status().Done == 60 })
	if s := a.settled(time.Minute); s.Done != 60 || len(s.Parked) != 0 {
		t.Errorf("%+v, want all done", s)
	}
	seen := a.strict()
	if seen.Charged != 60 || seen.LookupsFound < called {
		t.Errorf("%d charged, want 60; %d had been, and %d look-ups found a charge", seen.Charged, called, seen.LookupsFound)
	}
	a.offer("new", 10)
	a.shown(t, 20*time.Second, "new jobs to be called", func() bool { return a.status().Done == 70 })
	a.ok("dispatcher", "audit")
	again.stop()
}

// TestAfterARestorePendingJobsAreAskedFor restores Redis to a moment when some jobs were pending, others had not been called, and some were under way. The gateway's look-ups
// lag, and a fifth of its answers never arrive.
func TestAfterARestorePendingJobsAreAskedFor(t *testing.T) {
	t.Parallel()
	a := newArchive(t, provider.Config{Limits: []provider.Limit{{N: 20, Window: time.Second}}, NoKeys: true, Hang: 0.2, LookupLag: 500 * time.Millisecond}, strings.Replace(askedAfter, "100/s", "20/s", 1))
	a.named()
	a.offer("before", 80)
	first := a.dispatcher()
	c, asking := a.client(), redisdb.NewKeys("stripe").Asking() // read directly: when a program has answered, the pending jobs may be settled
	testkit.Eventually(t, time.Minute, "pending jobs", func() bool { return a.provider.Stats().Calls >= 30 && c.ZCard(t.Context(), asking).Val() > 0 })
	first.kill()
	pending := a.status().Pending
	a.take(time.Minute)
	second := a.dispatcher()
	testkit.Eventually(t, time.Minute, "more calls", func() bool { return a.provider.Stats().Calls >= 55 })
	second.kill()
	a.restore()
	a.refused()
	again := a.dispatcher("--after-restore")
	a.shown(t, 3*time.Minute, "all to be done", func() bool { return a.status().Done == 80 })
	if s := a.settled(time.Minute); s.Done != 80 || len(s.Parked) != 0 {
		t.Errorf("%+v, want all done", s)
	}
	seen := a.strict()
	if seen.Charged != 80 || seen.ChargedTwice != 0 {
		t.Errorf("%d charged, %d twice; want 80 and none", seen.Charged, seen.ChargedTwice)
	}
	t.Logf("%d pending in the snapshot, %d calls, %d look-ups, %d of them found a charge", pending, seen.Calls, seen.Lookups, seen.LookupsFound)
	a.ok("dispatcher", "audit")
	again.stop()
}
