package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// archive is a world whose Redis keeps only snapshots, so that an old one can be restored.
type archive struct {
	*world
	dump []byte
}

func newArchive(t *testing.T, p provider.Config, settings string) *archive {
	t.Helper()
	w := newWorld(t, p, settings)
	own := testkit.Server(t)
	w.config = w.file("dispatcher.yaml", strings.ReplaceAll(read(t, w.config), w.redis.URL(), own.URL()))
	w.redis = own
	return &archive{world: w}
}

func (a *archive) client() redis.UniversalClient { return a.redis.Client() }

// older moves the last sign of life in the data back, as if the next snapshot had been taken that much earlier.
func (a *archive) older(by time.Duration) {
	a.t.Helper()
	if err := a.client().HIncrBy(context.Background(), redisdb.NewKeys("stripe").Alive(), "at", -by.Microseconds()).Err(); err != nil {
		a.t.Fatal(err)
	}
}

func (a *archive) dumpFile() string { return filepath.Join(a.redis.Dir(), "dump.rdb") }

// take takes a snapshot. aged makes it look older; then no dispatcher may run.
func (a *archive) take(aged time.Duration) {
	a.t.Helper()
	a.older(aged)
	if err := a.client().Save(context.Background()).Err(); err != nil {
		a.t.Fatal(err)
	}
	a.older(-aged)
	a.dump = []byte(read(a.t, a.dumpFile()))
}

// restore kills Redis and starts it with the snapshot.
func (a *archive) restore() {
	a.t.Helper()
	a.redis.Kill()
	if err := os.WriteFile(a.dumpFile(), a.dump, 0o600); err != nil {
		a.t.Fatal(err)
	}
	a.redis.Restart()
}

// offer enqueues n jobs named after the file.
func (a *archive) offer(name string, n int) {
	a.t.Helper()
	file := a.jobs(name, n)
	text := strings.ReplaceAll(read(a.t, file), `"inv-`, `"`+name+"-")
	a.ok("enqueue", "-g", "stripe", "-f", a.file(name, text), "-q")
}

// served runs a dispatcher until it serves and that many jobs are done.
func (a *archive) served(done int) {
	a.t.Helper()
	r := a.dispatcher()
	a.shown(a.t, 20*time.Second, "the jobs to be done", func() bool {
		return strings.Contains(r.text(), "msg=serving") && a.status().Done == done
	})
	r.stop()
}

// refused starts a dispatcher that must not serve.
func (a *archive) refused(args ...string) {
	a.t.Helper()
	before := a.provider.Stats().Calls
	r := a.dispatcher(args...)
	serves := time.AfterFunc(time.Minute, func() { _ = r.cmd.Process.Kill() })
	defer serves.Stop()
	if err := r.cmd.Wait(); err == nil || r.cmd.ProcessState.ExitCode() != 1 {
		a.t.Errorf("run on an old snapshot: %v, want exit code 1", err)
	}
	for _, want := range []string{"gateway stripe", "restored from an old snapshot", "run --after-restore"} {
		if !strings.Contains(r.text(), want) {
			a.t.Errorf("it does not say %q:\n%s", want, r.text())
		}
	}
	if after := a.provider.Stats().Calls; after != before {
		a.t.Errorf("%d calls", after-before)
	}
}

const keptKeys = "    leak: {limits: [100/s], jitter: 10ms}\n"

// TestAnOldSnapshotIsRefusedUntilAnOperatorSaysSo restores Redis to a moment before 60 jobs were done and 30 others accepted. The file
// of those 30 is enqueued again before an operator confirms the restore: all 90 are called with the keys that they had.
func TestAnOldSnapshotIsRefusedUntilAnOperatorSaysSo(t *testing.T) {
	t.Parallel()
	a := newArchive(t, provider.Config{Limits: perSecond100}, keptKeys)
	a.served(0)
	a.offer("before", 60)
	a.take(time.Minute)
	a.offer("after", 30)
	a.served(90)
	a.restore()
	a.refused()
	a.ok("dispatcher", "resume", "-g", "stripe") // ends an operator's pause, not this one
	if s := a.status(); !s.Paused || s.Queued != 60 {
		t.Errorf("status %+v", s)
	}
	a.offer("after", 30)
	again := a.dispatcher("--after-restore")
	if s := a.settled(20 * time.Second); s.Done != 90 || s.Paused {
		t.Errorf("after it was confirmed: %+v", s)
	}
	seen := a.strict()
	if seen.Charged != 90 || seen.Calls != 180 || seen.Replayed != 90 {
		t.Errorf("%d calls, %d charged, %d answered again; want 180, 90 and 90", seen.Calls, seen.Charged, seen.Replayed)
	}
	again.stop()
	a.offer("new", 10)
	a.served(100) // the flag was for one start
	if seen := a.strict(); seen.Charged != 100 || seen.Calls != 190 {
		t.Errorf("%d calls, %d charged; want 190 and 100", seen.Calls, seen.Charged)
	}
}

// TestRedisIsSwappedUnderLivingDispatchers restores Redis while two dispatchers run. One can write down what it has seen, the other can't. Both stop at once, and continue when an
// operator has confirmed the restore on a third machine.
func TestRedisIsSwappedUnderLivingDispatchers(t *testing.T) {
	t.Parallel()
	a := newArchive(t, provider.Config{Limits: perSecond100}, keptKeys)
	a.served(0)
	a.offer("before", 200)
	a.take(time.Minute)
	first := a.dispatcher("--listen", "127.0.0.1:0")
	at := "http://" + first.address()
	a.state = a.file("no-directory", "")
	second := a.dispatcher()
	a.shown(t, 20*time.Second, "the jobs to be done", func() bool { return a.status().Done == 200 })
	if text := second.text(); strings.Count(text, "kept in memory alone") != 1 {
		t.Errorf("it does not say once that its directory can't be written to:\n%s", text)
	}
	a.restore()
	back := time.Now()
	testkit.Eventually(t, 10*time.Second, "both to notice", func() bool {
		return strings.Contains(first.text(), "restored from an old snapshot") && strings.Contains(second.text(), "restored from an old snapshot")
	})
	noticed := time.Since(back)
	a.until(time.Now().Add(time.Second))
	if calls := a.provider.Stats().Calls; calls != 200 {
		t.Errorf("%d calls for 200 jobs when Redis had been restored", calls)
	}
	if code, body := get(t, at+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "older than what was seen") {
		t.Errorf("readyz: %d %s", code, body)
	}
	if _, body := get(t, at+"/metrics"); !strings.Contains(body, `spillway_data_doubted{gateway="stripe"} 1`) {
		t.Error("the gauge does not say so")
	}
	a.state = filepath.Join(a.dir, "third machine")
	a.refused()
	third, asked := a.dispatcher("--after-restore"), time.Now()
	testkit.Eventually(t, 10*time.Second, "all to go on", func() bool {
		return strings.Contains(first.text(), "calls go on") && strings.Contains(second.text(), "calls go on") && strings.Contains(third.text(), "as an operator says")
	})
	t.Logf("both noticed within %v, no call was made; both went on %v after the third began", noticed, time.Since(asked))
	if s := a.settled(30 * time.Second); s.Done != 200 || s.Parked["unknown_outcome"] != 0 {
		t.Errorf("%+v", s)
	}
	if seen := a.strict(); seen.Charged != 200 || seen.Replayed != 200 {
		t.Errorf("%d charged, %d answered again; want 200 each", seen.Charged, seen.Replayed)
	}
	if code, body := get(t, at+"/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, body)
	}
}

// TestWithoutKeysAPersonDecidesAfterARestore has a gateway without keys, which would charge again: no job of the lost time is called automatically.
func TestWithoutKeysAPersonDecidesAfterARestore(t *testing.T) {
	t.Parallel()
	a := newArchive(t, provider.Config{Limits: perSecond100, NoKeys: true}, `      idempotency_header: ""
`+keptKeys)
	a.config = a.file("dispatcher.yaml", strings.ReplaceAll(read(t, a.config), "/v1/payment_intents", "/v1/payment_intents/{id}"))
	a.served(0)
	a.offer("before", 40)
	a.take(time.Minute)
	a.served(40)
	a.restore()
	a.refused()
	r := a.dispatcher("--after-restore")
	if s := a.settled(20 * time.Second); s.Done != 0 || s.Parked["unknown_outcome"] != 40 {
		t.Errorf("%+v, want all 40 for a person", s)
	}
	a.offer("new", 10)
	a.shown(t, 20*time.Second, "new jobs to be called", func() bool { return a.status().Done == 10 })
	if seen := a.strict(); seen.Calls != 50 {
		t.Errorf("%d calls, want 40 before the restore and 10 new ones", seen.Calls)
	}
	a.ok("dispatcher", "dlq", "resolve", "--done", "--why", "found at the bank", "--limit", "35", "--yes")
	a.ok("dispatcher", "dlq", "resolve", "--not-done", "--why", "not found at the bank", "--yes")
	if s := a.settled(20 * time.Second); s.Done != 50 || len(s.Parked) != 0 {
		t.Errorf("%+v, want all done", s)
	}
	if seen := a.provider.Stats(); seen.Calls != 55 {
		t.Errorf("%d calls, want 5 more", seen.Calls)
	}
	r.stop()
}

// TestAFailOverThatForgetsTwoSecondsStopsNobody loses what a replica or a disk may lack. Calls that the books have lost are made again, and
// the gateway repeats its answers. The loss was noticed, so a repeated answer may be about the job's own call, and is recorded.
func TestAFailOverThatForgetsTwoSecondsStopsNobody(t *testing.T) {
	t.Parallel()
	a := newArchive(t, provider.Config{Limits: perSecond100}, keptKeys)
	a.offer("all", 400)
	r := a.dispatcher()
	testkit.Eventually(t, 20*time.Second, "some calls", func() bool { return a.provider.Stats().Calls > 50 })
	a.take(0)
	taken := a.provider.Stats().Calls
	testkit.Eventually(t, 20*time.Second, "calls that the snapshot does not know", func() bool { return a.provider.Stats().Calls >= taken+100 })
	a.restore()
	if s := a.settled(60 * time.Second); s.Done != 400 {
		t.Errorf("done %d of 400, parked %v", s.Done, s.Parked)
	}
	seen := a.provider.Stats()
	if seen.Charged != 400 || seen.ChargedTwice != 0 || seen.Replayed < 50 {
		t.Errorf("%d charged, %d twice, %d answered again", seen.Charged, seen.ChargedTwice, seen.Replayed)
	}
	r.stop()
	a.served(400)
	if strings.Contains(r.text()+a.runs[1].text(), "restored") {
		t.Errorf("it was taken for a restore:\n%s", r.text())
	}
}
