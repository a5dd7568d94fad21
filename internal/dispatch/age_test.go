package dispatch

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// machine is a machine on which dispatchers start and stop.
type machine struct {
	*rig
	state string
	log   bytes.Buffer
}

func (m *machine) start(afterRestore bool) (*Dispatcher, error) {
	m.t.Helper()
	d, err := New(Params{DB: m.db, Gateways: m.cfg.Gateways, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&m.log, nil)),
		State: m.state, AfterRestore: afterRestore})
	if err != nil {
		m.t.Fatal(err)
	}
	return d, d.Start(m.t.Context())
}

func stop(d *Dispatcher) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	d.Stop(ctx)
}

// serveOnce starts a dispatcher and stops it when the jobs are done.
func (m *machine) serveOnce(at, done int) {
	m.t.Helper()
	d, err := m.start(false)
	if err != nil {
		m.t.Fatal(err)
	}
	testkit.Eventually(m.t, 10*time.Second, "the jobs", func() bool { return m.standing(at).Done == int64(done) })
	stop(d)
}

// age makes a gateway's data older, by that much, than what this machine has seen.
func (r *rig) age(at int, by time.Duration) {
	r.t.Helper()
	key := redisdb.NewKeys(r.cfg.Gateways[at].Name).Alive()
	if err := r.db.Client.HIncrBy(r.t.Context(), key, "at", -by.Microseconds()).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// In a cluster, a single shard may be restored. The gateways of the other shards are served.
func TestOneRestoredGatewayDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	m := &machine{rig: setup(t, quick, quick), state: t.TempDir()}
	m.put(0, 5)
	m.serveOnce(0, 5)
	m.age(0, time.Minute)
	m.put(1, 5)
	m.again(0, 5)
	d, err := m.start(false)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, "the other gateway's jobs", func() bool { return m.standing(1).Done == 5 })
	if m.count() != 10 || d.Ready() == nil {
		t.Errorf("%d calls, ready: %v", m.count(), d.Ready())
	}
	seen, err := Look(t.Context(), m.db.Client, m.cfg.Gateways[0])
	if err != nil || !seen.Hold.Paused || seen.ETA >= 0 || !strings.Contains(seen.Hold.PauseWhy, "--after-restore") {
		t.Errorf("it looks like %+v, %v", seen.Hold, err)
	}
	stop(d)
}

// again admits n other jobs.
func (r *rig) again(at, n int) {
	r.t.Helper()
	name := r.cfg.Gateways[at].Name
	var jobs []job.Job
	for i := range n {
		jobs = append(jobs, job.Job{ID: "again" + string(rune('a'+i)), Gateway: name})
	}
	if _, err := Door(r.db.Client, r.cfg, 0).Admit(r.t.Context(), name, jobs, "park"); err != nil {
		r.t.Fatal(err)
	}
}

func TestNothingStartsWhereAllIsRestoredUntilAnOperatorSaysSo(t *testing.T) {
	t.Parallel()
	m := &machine{rig: setup(t, quick), state: t.TempDir()}
	m.put(0, 5)
	m.serveOnce(0, 5)
	m.age(0, time.Minute)
	m.again(0, 5)
	_, err := m.start(false)
	if err == nil || job.CodeOf(err) != job.CodeFailed || !strings.Contains(err.Error(), "restored from an old snapshot") {
		t.Fatalf("start: %v", err)
	}
	d, err := m.start(true)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, "the jobs", func() bool { return m.standing(0).Done == 10 })
	stop(d)
	m.serveOnce(0, 10)
	if m.count() != 10 {
		t.Errorf("%d calls", m.count())
	}
}

// The data becomes doubted while a handler holds a job: the job returns to the queue, and no call is made.
func TestAJobInHandIsNotCalledInOldData(t *testing.T) {
	t.Parallel()
	m := &machine{rig: setup(t, quick)}
	d, err := m.start(false)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(d)
	testkit.Eventually(t, 5*time.Second, "a sign of life", func() bool { return d.units()[0].data.Memory().At > 0 })
	m.age(0, time.Minute) // the pulse has not looked yet
	m.put(0, 5)
	testkit.Eventually(t, 10*time.Second, "the doubt", func() bool { return d.units()[0].data.Doubted() })
	testkit.Eventually(t, 10*time.Second, "all five in the queue again", func() bool {
		s := m.standing(0)
		return s.Queued == 5 && s.InFlight == 0
	})
	if m.count() != 0 {
		t.Errorf("%d calls", m.count())
	}
}

func TestADirectoryThatCannotBeWrittenIsSaidOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := &machine{rig: setup(t, quick), state: filepath.Join(file, "below")}
	d, err := m.start(false)
	if err != nil {
		t.Fatal(err)
	}
	d.keep()
	stop(d)
	if n := strings.Count(m.log.String(), "kept in memory alone"); n != 1 {
		t.Errorf("said %d times\n%s", n, m.log.String())
	}
}
