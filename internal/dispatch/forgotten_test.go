package dispatch

import (
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Redis forgets a gateway's slots while its dispatchers are idle, and a process that knows nothing of them is the first to ask for a slot. The
// dispatchers object before it gets one, and the long limit is charged in full.
//
// It runs in real time: Redis says how many subscribers listen, and those of virtual time are not among them.
func TestIdleDispatchersObjectToANewLife(t *testing.T) {
	t.Parallel()
	const window = 10 * time.Second
	r := setup(t, "leak: {limits: [20/s, 200/10s]}\nadmission: {limits: [1000/s], burst: 1000}")
	r.on(testkit.Server(t))
	r.put(0, 40)
	r.serve()
	r.serve()
	testkit.Eventually(t, 20*time.Second, "the calls", func() bool { return r.count() == 40 })
	keys, c := redisdb.NewKeys(r.cfg.Gateways[0].Name), r.db.Client
	testkit.Eventually(t, 20*time.Second, "both to listen", func() bool {
		return c.PubSubNumSub(t.Context(), bucket.HoldChannel).Val()[bucket.HoldChannel] == 2
	})
	if err := c.Del(t.Context(), keys.Pace(), keys.PaceWindow(1), keys.PaceWindow(2)).Err(); err != nil {
		t.Fatal(err)
	}
	fresh, err := Pacer(c, r.cfg.Gateways[0], bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close(t.Context())
	began := time.Now()
	if _, err := fresh.Take(t.Context(), 1, ""); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < window {
		t.Errorf("it got a slot after %s, though a loss uses up what %s allow", took, window)
	}
}

// Redis loses its data while a dispatcher's subscription is cut. The dispatcher reports what it knows when it subscribes again, and not only when it next asks.
func TestADispatcherThatWasCutOffObjectsWhenItListensAgain(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [20/s, 200/h]}\nadmission: {limits: [1000/s], burst: 1000}")
	r.on(testkit.Server(t))
	r.put(0, 20)
	r.serve()
	testkit.Eventually(t, 20*time.Second, "the calls", func() bool { return r.count() == 20 })
	keys, c := redisdb.NewKeys(r.cfg.Gateways[0].Name), r.db.Client
	if err := c.Del(t.Context(), keys.Pace(), keys.PaceWindow(1), keys.PaceWindow(2)).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); err != nil || n < 1 {
		t.Fatalf("%d subscriptions were cut: %v", n, err)
	}
	objected := func() bool { return c.HExists(t.Context(), keys.Pace(), "charges").Val() }
	if !testkit.Within(5*time.Second, 10*time.Millisecond, objected) { // an idle gateway is looked at every 10 s
		t.Error("it has not objected")
	}
}
