package dispatch

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// guarded makes a gateway on a primary with one replica, which must acknowledge every important write.
func guarded(t *testing.T) (*rig, *testkit.RedisServer) {
	t.Helper()
	primary := testkit.Server(t, "--repl-diskless-sync-delay", "0")
	replica := testkit.Server(t, "--replicaof", strings.Replace(primary.Addr(), ":", " ", 1))
	at := primary.Client()
	testkit.Eventually(t, 20*time.Second, "the primary to know that the replica has caught up", func() bool {
		return strings.Contains(at.Info(t.Context(), "replication").Val(), ",state=online,")
	})
	r := setup(t, quick)
	db, err := redisdb.Open(t.Context(), primary.URL(), redisdb.Options{WaitReplicas: 1, ReadTimeout: 4500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r.db = db
	return r, replica
}

// BenchmarkReplicas measures the cost of waiting for a replica: for the admission of a chunk of jobs, and for one job's attempt and outcome.
func BenchmarkReplicas(b *testing.B) {
	primary := testkit.Server(b, "--repl-diskless-sync-delay", "0")
	testkit.Server(b, "--replicaof", strings.Replace(primary.Addr(), ":", " ", 1))
	at := primary.Client()
	testkit.Eventually(b, 20*time.Second, "the primary to know that the replica has caught up", func() bool {
		return strings.Contains(at.Info(b.Context(), "replication").Val(), ",state=online,")
	})
	cfg, err := config.Parse("x.yaml", []byte("gateways:\n  g:\n    request: {url: \"http://127.0.0.1/\"}\n    leak: {limits: [100/s]}\n"+
		"    admission: {limits: [1000000/s], burst: 100000000}\n"), config.Options{Secrets: true})
	if err != nil {
		b.Fatal(err)
	}
	for wait := range 2 {
		db, err := redisdb.Open(b.Context(), primary.URL(), redisdb.Options{WaitReplicas: wait})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		m := &measured{b: b, name: fmt.Sprintf("wait_replicas=%d", wait), door: Door(db.Client, cfg, 0), books: Books(db.Client, cfg.Gateways[0])}
		m.accept(500)
		m.calls(1)
		m.calls(16)
	}
}

type measured struct {
	b     *testing.B
	name  string
	door  *admission.Door
	books *ledger.Books
}

func (m *measured) put(prefix string, n int) {
	jobs := make([]job.Job, n)
	for i := range jobs {
		jobs[i] = job.Job{ID: prefix + strconv.Itoa(i), Cost: 1, Payload: []byte(`{"amount":4900,"currency":"EUR"}`)}
	}
	if _, err := m.door.Admit(context.Background(), "g", jobs, admission.Park); err != nil {
		m.b.Fatal(err)
	}
}

func (m *measured) accept(chunk int) {
	m.b.Run(fmt.Sprintf("accept-%d/%s", chunk, m.name), func(b *testing.B) {
		for b.Loop() {
			m.put(rand.Text(), chunk)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*chunk), "µs/job")
	})
}

func (m *measured) calls(atOnce int) {
	m.b.Run(fmt.Sprintf("open-done-%d-at-once/%s", atOnce, m.name), func(b *testing.B) {
		prefix := rand.Text()
		for at := 0; at < b.N; at += 500 {
			m.put(prefix+strconv.Itoa(at/500)+"-", 500)
		}
		b.ResetTimer()
		var next atomic.Int64
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				for n := int(next.Add(1)) - 1; n < b.N; n = int(next.Add(1)) - 1 {
					a, _, err := m.books.Open(context.Background(), fmt.Sprintf("%s%d-%d", prefix, n/500, n%500), 1, "me", time.Minute)
					if err == nil {
						err = m.books.Done(context.Background(), a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.Now()})
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/job")
	})
}

func TestNothingIsCalledThatNoReplicaHas(t *testing.T) {
	t.Parallel()
	r, replica := guarded(t)
	r.put(0, 3)
	replica.Pause()
	defer replica.Continue()
	r.serve()
	testkit.Eventually(t, 20*time.Second, "an attempt that no replica has", func() bool {
		n, err := r.db.Client.ZCard(t.Context(), redisdb.NewKeys(r.cfg.Gateways[0].Name).Open()).Result()
		return err == nil && n > 0
	})
	_, err := Door(r.db.Client, r.cfg, time.Second).Admit(t.Context(), r.cfg.Gateways[0].Name, []job.Job{{ID: "new", Cost: 1}}, admission.Park)
	if job.CodeOf(err) != job.CodeUnavailable || !strings.Contains(err.Error(), "wait_replicas") {
		t.Errorf("a job that no replica has is reported with %v", err)
	}
	if n := r.count(); n > 0 {
		t.Errorf("%d calls", n)
	}
	replica.Continue()
	testkit.Eventually(t, 20*time.Second, "all jobs, also the one that was not reported", func() bool { return r.standing(0).Done == 4 })
	if n := r.count(); n != 4 {
		t.Errorf("%d calls for 4 jobs", n)
	}
}

func TestAnOperatorsWordIsOnAReplicaToo(t *testing.T) {
	t.Parallel()
	r, replica := guarded(t)
	g := r.cfg.Gateways[0]
	p, err := Pacer(r.db.Client, g, bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	replica.Pause()
	defer replica.Continue()
	laned := g
	laned.Lanes = &config.Lanes{Weight: 1}
	for what, err := range map[string]error{
		"a pause":        p.Pause(t.Context(), "maintenance"),
		"a live limit":   SetLimits(t.Context(), r.db.Client, g, []job.Limit{{N: 5, Window: time.Second}}),
		"a lane's limit": SetLane(t.Context(), r.db.Client, laned, "m", LaneChange{Limits: &[]job.Limit{{N: 5, Window: time.Second}}}),
	} {
		if err == nil || !redisdb.Away(err) && job.CodeOf(err) != job.CodeUnavailable {
			t.Errorf("%s that no replica has: %v", what, err)
		}
	}
}
