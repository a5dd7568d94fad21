package dispatch

import (
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Redis forgets a gateway's slots while its dispatchers have nothing to do, and a process that never heard of them is the first to ask:
// they object before it gets a slot, and the long limit is charged in full.
func TestIdleDispatchersObjectToANewLife(t *testing.T) {
	t.Parallel()
	const window = 10 * time.Second
	plainly(t, "leak: {limits: [20/s, 200/10s]}\nadmission: {limits: [1000/s], burst: 1000}", func(t *testing.T, r *rig) {
		r.put(0, 40)
		r.serve()
		r.serve()
		testkit.Eventually(t, 20*time.Second, "the calls", func() bool { return r.count() == 40 })
		keys, c := redisdb.NewKeys(r.cfg.Gateways[0].Name), r.db.Client
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
	})
}

// Redis is emptied while a dispatcher can't be told: it says what it knows when it listens again, not when it next asks.
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
