package dispatch

import (
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// Dispatchers erase jobs that ended erase.payload ago, only at gateways that configure it, and one process at a time does it.
func TestDispatchersEraseWhatIsOver(t *testing.T) {
	t.Parallel()
	r := setupAt(t, testkit.Server(t).URL(), "leak: {limits: [100/s]}\nerase: {payload: 1s}", "leak: {limits: [100/s]}\nerase: {payload: when_done}")
	d := r.serve()
	erased := func(at int) (n int) {
		for rec, err := range Books(r.db.Client, r.cfg.Gateways[at]).Records(t.Context(), []string{"j0000", "j0001"}, true) {
			if err != nil {
				t.Fatal(err)
			}
			if !rec.Erased.IsZero() && rec.State == job.Done {
				n++
			}
		}
		return n
	}
	r.put(0, 2)
	r.put(1, 2)
	testkit.Eventually(t, 30*time.Second, "the jobs of the first gateway to be erased", func() bool { return erased(0) == 2 })
	if n := erased(1); n != 0 {
		t.Errorf("%d of the second gateway are erased, too", n)
	}
	key := redisdb.NewKeys(r.cfg.Gateways[0].Name).Erase()
	if err := r.db.Client.Set(t.Context(), key, "1", time.Hour).Err(); err != nil { // another process is erasing
		t.Fatal(err)
	}
	if err := d.eraseEnded(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ttl := r.db.Client.PTTL(t.Context(), key).Val(); ttl < 30*time.Minute {
		t.Errorf("the other one's turn ends in %s", ttl)
	}
}

// The sooner jobs are to be erased, the more often dispatchers look for them.
func TestHowOftenJobsAreErased(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: 15 * time.Second, 30 * time.Minute: 450 * time.Second, 720 * time.Hour: eraseEvery} {
		if got := eraseNext(after); got != want {
			t.Errorf("%s: %s, want %s", after, got, want)
		}
	}
}
