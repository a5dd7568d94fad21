package dispatch

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// guarded is a gateway on a primary with one replica, which must have everything that counts.
func guarded(t *testing.T) (*rig, *testkit.RedisServer) {
	t.Helper()
	primary := testkit.Server(t, "--repl-diskless-sync-delay", "0")
	replica := testkit.Server(t, "--replicaof", strings.Replace(primary.Addr(), ":", " ", 1))
	testkit.Eventually(t, 20*time.Second, "the replica to catch up", func() bool {
		return strings.Contains(replica.Client().Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	r := setup(t, quick)
	db, err := redisdb.Open(t.Context(), primary.URL(), redisdb.Options{WaitReplicas: 1, ReadTimeout: 1500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r.db = db
	return r, replica
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
	for what, err := range map[string]error{
		"a pause":      p.Pause(t.Context(), "maintenance"),
		"a live limit": SetLimits(t.Context(), r.db.Client, g, []config.Limit{{N: 5, Window: time.Second}}),
	} {
		if err == nil || !redisdb.Away(err) && job.CodeOf(err) != job.CodeUnavailable {
			t.Errorf("%s that no replica has: %v", what, err)
		}
	}
}
