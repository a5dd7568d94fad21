package dispatch

import (
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Redis forgets a gateway's slots while its dispatchers have nothing to do, and one who never heard of them is the first to ask: they object
// before it gets a slot, and the hour's limit goes on with what is left of it.
func TestIdleDispatchersObjectToANewLife(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [20/s, 200/h]}\nadmission: {limits: [1000/s], burst: 1000}")
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
	if _, err := fresh.Take(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	if took < time.Second {
		t.Errorf("it got a slot after %s, want about a second and a half", took)
	}
	n, err := c.HGet(t.Context(), keys.Pace(), "n2").Int64()
	if most := 41 + int64(20*(took.Seconds()+2)); err != nil || n < 61 || n > most {
		t.Errorf("%d of the hour's 200 are used after %s (%v), want 41 and those that may have been granted meanwhile, %d at most", n, took, err, most)
	}
}
