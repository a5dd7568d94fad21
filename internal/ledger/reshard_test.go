package ledger_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// moving is a bench on a cluster from which the keys of one gateway can be moved, except some. The gateway has each key that accept.lua names.
type moving struct {
	*bench
	cluster  *testkit.RedisCluster
	from, to *redis.Client
	offers   int64
}

func onTheMove(t *testing.T) *moving {
	t.Helper()
	m := &moving{bench: setup(t, 500, func(cfg *ledger.Config) { cfg.InOrder = false }), cluster: testkit.Cluster(t)}
	db, err := redisdb.Open(t.Context(), m.cluster.URL(), redisdb.Options{Wait: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	m.on(db.Client)
	owner := m.cluster.Owner(m.keys.Counters())
	other := m.cluster.Nodes[0]
	if other == owner {
		other = m.cluster.Nodes[1]
	}
	m.from, m.to = redis.NewClient(&redis.Options{Addr: owner.Addr()}), redis.NewClient(&redis.Options{Addr: other.Addr()})
	t.Cleanup(func() { _, _ = m.from.Close(), m.to.Close() })
	m.offer(job.Job{ID: "paid"}, job.Job{ID: "dear", Cost: 2}, job.Job{ID: "later", At: time.UnixMicro(m.now).Add(time.Hour)}, job.Job{ID: "large", Cost: 498})
	m.now += 1_000_000
	m.c.Persist(m.ctx, m.keys.Admission()) // the test's clock is not Redis's
	return m
}

// offer offers jobs in the same lane as those before.
func (m *moving) offer(jobs ...job.Job) ([]job.Admittance, error) {
	chunk := make([]job.Newcomer, len(jobs))
	for i, j := range jobs {
		chunk[i] = job.Newcomer{Job: j, Digest: "d"}
	}
	m.offers++
	answers, _, err := testkit.Accept(m.ctx, m.books, job.Ticket{Sequence: "lane", Number: m.offers}, chunk, "park")
	return answers, err
}

// move moves all keys of the gateway but those that stay, and leaves the slot between two nodes.
func (m *moving) move(stay ...string) {
	m.t.Helper()
	slot := m.from.ClusterKeySlot(m.ctx, m.keys.Counters()).Val()
	must := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	must(m.to.Do(m.ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", m.from.ClusterMyID(m.ctx).Val()).Err())
	must(m.from.Do(m.ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", m.to.ClusterMyID(m.ctx).Val()).Err())
	m.migrate(without(m.from.ClusterGetKeysInSlot(m.ctx, int(slot), 1000).Val(), stay...))
}

func (m *moving) migrate(keys []string) {
	m.t.Helper()
	for _, k := range keys {
		m.must(m.from.Migrate(m.ctx, "127.0.0.1", m.to.Options().Addr[len("127.0.0.1:"):], k, 0, time.Minute).Err())
	}
}

// arrive moves what has stayed, and gives the slot to its new node.
func (m *moving) arrive() {
	m.t.Helper()
	slot := m.from.ClusterKeySlot(m.ctx, m.keys.Counters()).Val()
	m.migrate(m.from.ClusterGetKeysInSlot(m.ctx, int(slot), 1000).Val())
	for _, node := range []*redis.Client{m.to, m.from} {
		m.must(node.Do(m.ctx, "CLUSTER", "SETSLOT", slot, "NODE", m.to.ClusterMyID(m.ctx).Val()).Err())
	}
}

// While an operator moves a gateway's keys to another node, the node that has everything but a job's record does not accept the job as new.
func TestAJobIsKnownWhileItsRecordIsOnAnotherNode(t *testing.T) {
	t.Parallel()
	m := onTheMove(t)
	want(t, "keys that accept.lua names", m.c.Exists(m.ctx, m.keys.Admission(), m.keys.Pending(), m.keys.Parked("rejected"), m.keys.Counters(),
		m.keys.Scheduled(), m.keys.Costs(), m.keys.Receipt("lane")).Val(), 7)
	m.move(m.keys.Job("paid"))
	if answers, err := m.offer(job.Job{ID: "paid"}); !redisdb.Away(err) {
		t.Errorf("a job that is known was answered %v, error %v: want one that says not now", answers, err)
	}
}

// Offers that meet a slot on its way to another node are put off, whatever has moved already. No job is reported as wrong.
func TestOffersWaitWhileKeysMove(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, stay := range map[string]func(*moving) []string{
		"all but the records": func(m *moving) []string { return []string{m.keys.Job("paid"), m.keys.Job("dear")} },
		"a record":            func(m *moving) []string { return without(m.from.Keys(m.ctx, "*").Val(), m.keys.Job("dear")) },
		"nothing":             func(m *moving) []string { return m.from.Keys(m.ctx, "*").Val() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := onTheMove(t)
			m.move(stay(m)...)
			for _, ids := range [][]string{{"paid", "dear"}, {"paid", "new"}, {"new", "paid"}, {"new", "newer"}, {"new"}} {
				var jobs []job.Job
				for _, id := range ids {
					jobs = append(jobs, job.Job{ID: id})
				}
				answers, err := m.offer(jobs...)
				if err != nil && !redisdb.Away(err) {
					t.Errorf("%v: %v", ids, err)
				}
				for i, a := range answers {
					if known := ids[i] == "paid" || ids[i] == "dear"; known != (a == job.Conflict || a == job.Duplicate) {
						t.Errorf("%s of %v: %v", ids[i], ids, a)
					}
				}
			}
		})
	}
}

// While keys move, a replay readmits no job: it could find a record on one node, and not be allowed to write its task there, halfway through the chunk.
func TestNothingIsTakenInAgainWhileKeysMove(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	own := func(m *moving, ids ...string) (keys []string) {
		for _, id := range ids {
			keys = append(keys, m.keys.Job(id), m.keys.Task(id+"~2"))
		}
		return keys
	}
	for name, stay := range map[string]func(*moving) []string{
		"all but a record": func(m *moving) []string { return own(m, "p2") },
		"a record":         func(m *moving) []string { return without(m.from.Keys(m.ctx, "*").Val(), own(m, "p2")...) },
		"all but the sets": func(m *moving) []string { return []string{m.keys.Parked("rejected"), m.keys.Counters()} },
		"everything":       func(m *moving) []string { return m.from.Keys(m.ctx, "*").Val() },
		"nothing":          func(*moving) []string { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := onTheMove(t)
			m.burst(1)
			m.offer(job.Job{ID: "last"}, job.Job{ID: "p1"}, job.Job{ID: "p2"}, job.Job{ID: "p3"})
			jobs := m.back("p1", "p2", "p3")
			// An act and a task of an earlier try, so that there is each key that readmit.lua has to name.
			m.c.HSet(m.ctx, m.keys.Acts(), "7", 1)
			m.c.HSet(m.ctx, m.keys.Task("p1~2"), "msg", "x")
			m.burst(1_000_000)
			want(t, "keys that readmit.lua names", m.c.Exists(m.ctx, m.keys.Admission(), m.keys.Pending(), m.keys.Counters(), m.keys.Scheduled(),
				m.keys.Costs(), m.keys.Acts()).Val(), 6)
			m.move(stay(m)...)
			for _, some := range [][]job.Return{jobs, jobs[1:2], jobs[2:]} {
				if answers, _, err := m.books.For(func() string { return "7" }).Readmit(m.ctx, some); !redisdb.Away(err) {
					t.Errorf("%d jobs were answered %v, error %v: want one that says not now", len(some), answers, err)
				}
			}
			m.arrive()
			for _, id := range []string{"p1", "p2", "p3"} {
				want(t, "state of "+id, m.record(id).State, job.Parked)
			}
			answers, _, err := m.books.Readmit(m.ctx, jobs)
			if m.must(err); !slices.Equal(answers, []job.Admittance{job.Enqueued, job.Enqueued, job.Enqueued}) {
				t.Errorf("once all have moved: %v", answers)
			}
		})
	}
}

func without(keys []string, some ...string) []string {
	return slices.DeleteFunc(keys, func(k string) bool { return slices.Contains(some, k) })
}
