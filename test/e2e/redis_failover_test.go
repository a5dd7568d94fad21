package e2e

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// late is how many jobs come in while the replicas are cut off.
const late = 200

// behind cuts the replicas off, enqueues jobs that only the primary gets, and kills the primary. The enqueue of these jobs continues.
func behind(w *world, primary *testkit.RedisServer, replicas ...*testkit.RedisServer) (killed time.Time, unheard *stream) {
	w.t.Helper()
	ctx, accepted := w.t.Context(), redisdb.NewKeys("stripe").Counters()
	for _, r := range replicas {
		r.Pause()
	}
	if err := primary.Client().Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err(); err != nil {
		w.t.Fatal(err)
	}
	before, err := primary.Client().HGet(ctx, accepted, "accepted").Int()
	if err != nil {
		w.t.Fatal(err)
	}
	prefix := fmt.Sprintf("late-%d", before)
	unheard = w.stream(prefix, late, 0)
	last := redisdb.NewKeys("stripe").Job(fmt.Sprintf("%s-%05d", prefix, late-1))
	testkit.Eventually(w.t, 20*time.Second, "the primary to take the jobs in", func() bool { // these, and not only those of another enqueue
		return primary.Client().Exists(ctx, last).Val() == 1
	})
	primary.Kill()
	killed = time.Now()
	for _, r := range replicas {
		r.Continue()
	}
	return killed, unheard
}

// The primary is killed while its replicas are cut off, and jobs come in and are called. With wait_replicas no job is forgotten
// that was reported or called: each job is reported once, and called once.
func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	rounds := 1
	if *soak > 0 {
		rounds = 5
	}
	redis := testkit.SentinelOf(t, 2, "--appendonly", "yes")
	w := newWorldAt(t, redis.URL(), "wait_replicas: 1\n")
	n := 1500 * rounds
	w.dispatcher()
	w.dispatcher()
	s := w.stream("inv", n, time.Duration(rounds)*6*time.Second)
	var away []time.Duration
	for i := range rounds {
		w.calls(200 + 1000*i)
		old := redis.Primary()
		var replicas []*testkit.RedisServer
		for _, r := range redis.Servers {
			if r != old {
				replicas = append(replicas, r)
			}
		}
		killed, unheard := behind(w, old, replicas...)
		redis.AwaitPromotion(old)
		promoted := time.Since(killed).Round(10 * time.Millisecond)
		away = append(away, promoted, w.goOn(killed))
		old.Restart()
		redis.AwaitReplicas()
		unheard.exact()
	}
	s.exact()
	n += late * rounds
	w.once(2*time.Minute, n)
	t.Logf("%d jobs, %d fail-overs: promoted, and calls went on, after %v", n, rounds, away)
}

// A slot moves to another node under load. Then that node is killed while its replica is cut off.
func TestClusterMovesASlotAndFailsOver(t *testing.T) {
	t.Parallel()
	redis := testkit.ClusterWithReplicas(t, "--appendonly", "yes")
	w := newWorldAt(t, redis.URL(), "wait_replicas: 1\n")
	const n = 2000
	key := redisdb.NewKeys("stripe").Pending()
	owner := redis.Owner(key)
	at := 0
	if redis.Nodes[0] == owner {
		at = 1
	}
	w.dispatcher()
	w.dispatcher()
	s := w.stream("inv", n, 8*time.Second)
	w.calls(200)
	began := time.Now()
	redis.MoveSlot(key, owner, redis.Nodes[at], nil)
	moved := time.Since(began)
	t.Logf("the slot moved in %s, calls went on %s after its beginning", moved.Round(time.Millisecond), w.goOn(began))
	w.calls(500)
	killed, unheard := behind(w, redis.Nodes[at], redis.Replicas[at])
	redis.AwaitPromotion(redis.Nodes[at])
	promoted := time.Since(killed).Round(10 * time.Millisecond)
	redis.Nodes[at].Restart() // as a replica: until there is one, nothing goes on
	t.Logf("promoted %s after the kill, calls went on after %s", promoted, w.goOn(killed))
	unheard.exact()
	s.exact()
	w.once(2*time.Minute, n+late)
}
