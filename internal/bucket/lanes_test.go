package bucket

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

func TestLanesAgainstTheModel(t *testing.T) {
	t.Parallel()
	testkit.OneGoroutine(t)
	client := testkit.Client(t)
	for _, seed := range laneSeeds(1000, 0, 1, 3, 4, 8, 11, 13, 38, 67, 77) {
		tr := drawLanes(seed)
		w := newLanesWorld(newWorld(t, client, seed), tr)
		if wrong := w.play(); len(wrong) > 0 {
			t.Fatalf("seed %d: %v\n%+v", seed, wrong, tr)
		}
		t.Logf("seed %d: %d jobs, %d bound, %d called", seed, w.granted, w.misses, len(w.sent))
	}
}

// When Redis loses writes, no limit is broken: neither of the account, nor of a route or a lane.
func TestLanesKeepTheirLimitsWhenRedisLosesWrites(t *testing.T) {
	t.Parallel()
	testkit.OneGoroutine(t)
	client := testkit.Client(t)
	for _, seed := range laneSeeds(400, 0, 1, 2) {
		tr := drawLosses(seed)
		if wrong := newLanesWorld(newWorld(t, client, seed), tr).play(); len(wrong) > 0 {
			t.Fatalf("seed %d: %v\n%+v", seed, wrong, tr)
		}
	}
}

// heard is a way to Redis that remembers what was sent.
type heard struct {
	redis.UniversalClient
	sent *[][]any
}

func (h heard) Process(ctx context.Context, cmd redis.Cmder) error {
	*h.sent = append(*h.sent, cmd.Args())
	return h.UniversalClient.Process(ctx, cmd)
}

// A gateway without lanes and without limits of routes runs the same scripts as before, and names none of the keys of lanes.
func TestOthersRunTheScriptsThatTheyRanBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 1)
	plain := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Jitter: 5 * time.Millisecond, Classes: []job.Class{{Name: "a", Usual: true}}, Routes: []Route{{Name: "r"}}}
	laned := plain
	laned.Routes = []Route{{Name: "r", Limits: []job.Limit{per(10, time.Second)}}}
	own := []string{hashOf(redisdb.WithConstants(pickText...)), hashOf(unbindText), hashOf(movedText)}
	for _, cfg := range []PacerConfig{plain, laned} {
		var sent [][]any
		p := w.pacer(cfg)
		p.client = noRetry{heard{w.client, &sent}}
		fill(t, w.client, w.keys.Pending(), 3)
		for range 3 {
			for _, s := range w.reserve(p, wish{want: 4}).slots {
				p.reportLate([]lateCall{wasLate(p, s, s.At+10_000)})
				if err := p.releaseNow([]job.Slot{s}); err != nil {
					t.Fatal(err)
				}
			}
			w.now += 1_000_000
		}
		lanes := slices.ContainsFunc(sent, func(args []any) bool {
			return slices.ContainsFunc(args, func(a any) bool {
				text, _ := a.(string)
				if args[0] == "eval" && len(text) > 1000 {
					text = hashOf([]string{text}) // comments speak of lanes
				}
				return slices.Contains(own, text) || strings.Contains(text, "lanes") || strings.Contains(text, "nobodys")
			})
		})
		if lanes != cfg.Laned() {
			t.Errorf("scripts of lanes ran: %t, with lanes: %t", lanes, cfg.Laned())
		}
	}
}

// A limit that was raised or removed takes effect soon: a route or a lane that had used up the old one for a long time is looked at again.
func TestALimitThatWasRaisedCountsSoon(t *testing.T) {
	t.Parallel()
	client := testkit.Client(t)
	cfg := func(route, lane job.Limit) PacerConfig {
		return PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Routes: []Route{{Name: "r", Limits: []job.Limit{route}}, {Name: "s"}}, Lanes: &Lanes{Limits: []job.Limit{lane}}}
	}
	few, many := per(1, 24*time.Hour), per(10, 24*time.Hour)
	free := cfg(few, many)
	free.Routes[0].Limits = nil
	for name, of := range map[string]struct {
		old, now PacerConfig
		within   time.Duration
		idle     bool // the lane has no job while it may not be called
	}{
		"route":              {cfg(few, many), cfg(many, many), 10 * time.Second, false},
		"route without any":  {cfg(few, many), free, 0, false},
		"lane":               {cfg(many, few), cfg(many, many), 5 * time.Minute, false},
		"lane that was idle": {cfg(many, few), cfg(many, many), 5 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: of.old, processes: 1})
			add := func(id string) {
				w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Route: "r", Lane: "m"}}, 1, w.keys.Pending(), true)
			}
			pick := func(p *Pacer) (n int) {
				for range 3 { // an idle gateway's first slots come a moment later
					n += len(w.reserve(p, wish{want: 4, lead: 1000}).slots)
					w.now += 500_000
				}
				return n
			}
			add("a")
			if !of.idle {
				add("b")
			}
			if n := pick(w.processes[0]); n != 1 {
				t.Fatalf("%d calls", n)
			}
			p := w.pacer(of.now)
			if of.idle {
				add("b")
			}
			w.now += of.within.Microseconds()
			if n := pick(p); n != 1 {
				t.Errorf("%d calls after %s", n, of.within)
			}
		})
	}
}

// While an operator moves a gateway's keys to another node, a job that is given back stays where it is. No script ends halfway because a line
// has moved already.
func TestLanesWaitWhileTheirKeysMove(t *testing.T) {
	t.Parallel()
	cluster := testkit.Cluster(t)
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(strings.TrimPrefix(cluster.URL(), "redis-cluster://"), ","), IsClusterMode: true})
	t.Cleanup(func() { _ = client.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{Limits: []job.Limit{per(10, time.Second)}}, Routes: []Route{{Name: "r", Limits: []job.Limit{per(50, time.Second)}}}}
	w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
	p := w.processes[0]
	for _, id := range []string{"a", "b", "c"} {
		w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Lane: "m", Route: "r"}}, 1, w.keys.Pending(), true)
	}
	var slots []job.Slot
	for range 3 {
		slots = append(slots, w.reserve(p, wish{want: 1, lead: 1000}).slots...)
		w.now += 500_000
	}
	if len(slots) < 2 {
		t.Fatalf("%d slots", len(slots))
	}
	owner := cluster.Owner(w.keys.Lanes())
	other := cluster.Nodes[slices.IndexFunc(cluster.Nodes, func(n *testkit.RedisServer) bool { return n != owner })]
	from, to := redis.NewClient(&redis.Options{Addr: owner.Addr()}), redis.NewClient(&redis.Options{Addr: other.Addr()})
	t.Cleanup(func() { _, _ = from.Close(), to.Close() })
	slot := from.ClusterKeySlot(ctx, w.keys.Lanes()).Val()
	must(to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ClusterMyID(ctx).Val()).Err())
	must(from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ClusterMyID(ctx).Val()).Err())
	move := func(those func(key string) bool) {
		t.Helper()
		for _, key := range from.ClusterGetKeysInSlot(ctx, int(slot), 1000).Val() {
			if those(key) {
				must(from.Migrate(ctx, "127.0.0.1", strings.TrimPrefix(other.Addr(), "127.0.0.1:"), key, 0, time.Minute).Err())
			}
		}
	}
	move(func(key string) bool { return strings.Contains(key, "}:flow:") })
	if err := p.unbind(slots[:1]); err == nil {
		t.Error("a job was given back while its line was elsewhere")
	}
	if active := from.LRange(ctx, w.keys.Active(), 0, -1).Val(); !slices.Contains(active, slots[0].Task) {
		t.Errorf("active are %v: %s stands nowhere", active, slots[0].Task)
	}
}
