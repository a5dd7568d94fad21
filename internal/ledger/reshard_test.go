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

// moving is a bench on a cluster of which one gateway's keys can be moved, all but some. Its gateway has each key that accept.lua names.
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
	answers, _, err := m.books.Accept(m.ctx, job.Ticket{Lane: "lane", Number: m.offers}, chunk, "park")
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
	keys := slices.DeleteFunc(m.from.ClusterGetKeysInSlot(m.ctx, int(slot), 1000).Val(), func(k string) bool { return slices.Contains(stay, k) })
	for _, k := range keys {
		must(m.from.Migrate(m.ctx, "127.0.0.1", m.to.Options().Addr[len("127.0.0.1:"):], k, 0, time.Minute).Err())
	}
}

// While an operator moves a gateway's keys to another node, a job whose record hasn't gone yet is no new one to the node that has all else.
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

// Offers that meet a slot on its way to another node are put off, whatever has gone already: nothing says that they are wrong.
func TestOffersWaitWhileKeysMove(t *testing.T) {
	t.Parallel()
	for name, stay := range map[string]func(*moving) []string{
		"all but the records": func(m *moving) []string { return []string{m.keys.Job("paid"), m.keys.Job("dear")} },
		"a record": func(m *moving) []string {
			all := m.from.Keys(m.ctx, "*").Val()
			return slices.DeleteFunc(all, func(k string) bool { return k == m.keys.Job("dear") })
		},
		"nothing": func(m *moving) []string { return m.from.Keys(m.ctx, "*").Val() },
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
