package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

const fast = `    leak: {limits: [1000/s], burst: 10}
    admission: {burst: 5000}
`

// refuse enqueues n jobs and waits until the provider has refused them.
func (w *world) refuse(n int) {
	w.t.Helper()
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("refused.ndjson", n))
	if s := w.settled(time.Minute); s.Parked["refused"] != n {
		w.t.Fatalf("%+v, want %d refused", s, n)
	}
}

// replaysOf counts the jobs by how often they were replayed.
func (w *world) replaysOf(n int) map[string]int {
	w.t.Helper()
	c, keys := w.redis.Client(), redisdb.NewKeys("stripe")
	counts := map[string]int{}
	for i := range n {
		y, err := c.HGet(w.t.Context(), keys.Job(fmt.Sprintf("inv-%05d", i+1)), "y").Result()
		if err != nil {
			w.t.Fatal(err)
		}
		counts[y]++
	}
	return counts
}

// killed starts a replay and kills it at a random moment: soon after its start, or, with atWork, soon after it has taken in its first job. It says whether the replay was
// still running.
func (w *world) killed(c redis.UniversalClient, atWork bool, args ...string) bool {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "dispatcher"), append([]string{"dlq", "replay", "--yes", "-q"}, args...)...)
	cmd.Env, cmd.Dir = w.env(false), w.dir
	parked := func() int64 { return c.ZCard(w.t.Context(), redisdb.NewKeys("stripe").Parked("refused")).Val() }
	before := parked()
	if err := testkit.Start(cmd); err != nil {
		w.t.Fatal(err)
	}
	moment := time.Duration(40+rand.IntN(260)) * time.Millisecond
	if atWork {
		testkit.Eventually(w.t, 20*time.Second, "the replay to begin", func() bool { return parked() < before })
		moment = time.Duration(rand.IntN(100)) * time.Millisecond
	}
	<-time.After(moment)
	_ = cmd.Process.Kill()
	return cmd.Wait() != nil
}

func TestReplaysKilledAnywhereAndTwoAtOnceCallEachJobOnceMore(t *testing.T) {
	t.Parallel()
	const n = 600
	w := newWorld(t, provider.Config{DeclineEvery: 1}, fast)
	w.dispatcher()
	w.refuse(n)
	kills, c, times := 0, w.redis.Client(), testkit.Often(10, 40)
	for i := range times {
		if w.killed(c, i%2 == 0, "--rate", "50/s") {
			kills++
		}
	}
	left := w.status().Parked["refused"]
	if kills < times*3/4 || left == 0 || left == n {
		t.Errorf("%d of %d replays were killed at work, %d of %d jobs are left: the test shows nothing", kills, times, left, n)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if r := w.do("dispatcher", "dlq", "replay", "--yes", "-q"); r.code != 0 {
				t.Errorf("exit code %d: %s", r.code, r.err)
			}
		})
	}
	both.Wait()
	if s := w.settled(time.Minute); s.Done != n || len(s.Parked) > 0 {
		t.Errorf("%+v, want %d done", s, n)
	}
	s := w.strict()
	if s.Calls != 2*n || s.Charged != n || s.Declined != n || s.Replayed != 0 {
		t.Errorf("the provider saw %+v, want each of %d jobs refused once and charged once", s, n)
	}
	if got := w.replaysOf(n); got["1"] != n {
		t.Errorf("jobs by how often they were replayed: %v", got)
	}
	w.historyAfterKills(n)
	w.ok("dispatcher", "audit")
	t.Logf("%d of %d replays killed at work, %d of %d jobs left for two at once", kills, times, left, n)
}

// historyAfterKills checks that the history has the killed replays, without an end, and every job once.
func (w *world) historyAfterKills(n int) {
	w.t.Helper()
	sum, killed, ended := 0, 0, 0
	for line := range strings.Lines(w.ok("dispatcher", "dlq", "history", "-o", "json")) {
		act := decode[struct {
			Jobs  int
			Ended *time.Time
		}](w.t, line)
		sum += act.Jobs
		if act.Ended == nil {
			killed++
		} else {
			ended++
		}
	}
	if killed == 0 || ended < 1 || sum != n {
		w.t.Errorf("history: %d acts killed, %d ended, %d jobs; want some, one or two, and %d", killed, ended, sum, n)
	}
}

func TestACanaryOnABrokenGatewayStopsAfterIt(t *testing.T) {
	t.Parallel()
	const n = 40
	w := newWorld(t, provider.Config{Decline: 1}, fast)
	w.dispatcher()
	w.refuse(n)
	r := w.do("dispatcher", "dlq", "replay", "--yes", "--canary", "5")
	if r.code != 1 || !strings.Contains(r.err, "5 of 40 jobs replayed: stopped: 5 of the 5 sent ahead failed: inv-0") ||
		strings.Count(r.err, " was parked again as refused (HTTP 402)") != 5 {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
	if s := w.provider.Stats(); s.Calls != n+5 {
		t.Errorf("%d calls, want %d and then 5", s.Calls, n)
	}
	w.provider.Set(provider.Config{})
	w.ok("dispatcher", "dlq", "replay", "--yes", "--canary", "5")
	if s := w.settled(time.Minute); s.Done != n || len(s.Parked) > 0 {
		t.Errorf("%+v, want %d done", s, n)
	}
	if s := w.strict(); s.Calls != 2*n+5 || s.Charged != n {
		t.Errorf("%d calls and %d charges, want %d and %d", s.Calls, s.Charged, 2*n+5, n)
	}
}

func TestAReplayStopsAtAnOutageAndGoesOnAfterIt(t *testing.T) {
	t.Parallel()
	const n = 200
	w := newWorld(t, provider.Config{DeclineEvery: 1}, fast)
	w.dispatcher()
	w.refuse(n)
	w.provider.Set(provider.Config{Down: true, RetryAfter: 2 * time.Second})
	r := w.do("dispatcher", "dlq", "replay", "--yes", "--rate", "20/s")
	if r.code != 5 || !strings.Contains(r.err, "stopped: stripe is held until ") || !strings.Contains(r.err, "run the same again") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
	if left := w.status().Parked["refused"]; left < n/2 {
		t.Errorf("only %d of %d jobs are still parked", left, n)
	}
	w.provider.Set(provider.Config{})
	w.shown(t, 20*time.Second, "the rest to be replayed", func() bool {
		return w.do("dispatcher", "dlq", "replay", "--yes", "-q").code == 0
	})
	if s := w.settled(time.Minute); s.Done != n || len(s.Parked) > 0 {
		t.Errorf("%+v, want %d done", s, n)
	}
	if s := w.strict(); s.Charged != n {
		t.Errorf("%d charged", s.Charged)
	}
}

// The limit is 100/s. While live jobs wait for room at admission, a replay with a share of 20 % gets a fifth of the calls.
func TestAShareLeavesTheRestToLiveTraffic(t *testing.T) {
	t.Parallel()
	const n = 80
	w := newWorld(t, provider.Config{DeclineEvery: 1}, fast)
	first := w.dispatcher()
	w.refuse(n)
	first.stop()
	w.provider.Set(provider.Config{Limits: []provider.Limit{{N: 100, Window: time.Second}}})
	slow := strings.Replace(read(t, w.config), fast, "    leak: {limits: [100/s], jitter: 40ms}\n    admission: {limits: [100/s], burst: 10}\n", 1)
	if err := os.WriteFile(w.config, []byte(slow), 0o600); err != nil {
		t.Fatal(err)
	}
	w.dispatcher()
	live := w.file("live.ndjson", strings.ReplaceAll(read(t, w.jobs("live", 700)), "inv-", "live-"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	producer := exec.CommandContext(ctx, filepath.Join(bin, "enqueue"), "-g", "stripe", "-f", live, "--on-full", "wait", "-q")
	producer.Env, producer.Dir = w.env(false), w.dir
	if err := producer.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, "live calls", func() bool { return w.provider.Stats().Calls > 2*n })
	begun := time.Now()
	w.ok("dispatcher", "dlq", "replay", "--yes", "-q", "--share", "20%")
	testkit.Eventually(t, 20*time.Second, "the last replayed call", func() bool { return share(w.provider.Calls()).replayed == n })
	got := share(w.provider.Calls())
	cancel()
	_ = producer.Wait()
	part, took := 100*float64(got.live)/float64(got.live+got.replayed), got.last.Sub(begun)
	used := float64(got.live+got.replayed) / got.last.Sub(got.first).Seconds()
	t.Logf("%d live calls while %d were replayed in %v: %.1f %% of %.1f/s", got.live, got.replayed, took, part, used)
	if least := 19 * n * time.Second / 20 / 20; took < least {
		t.Errorf("%d jobs were replayed in %v; a fifth of 100/s takes %v", n, took, least)
	}
	// Live traffic gets what the replay leaves, if the machine is quick enough.
	if used > 97 && part < 78 || *soak > 0 && (part < 78 || part > 85) {
		t.Errorf("live traffic kept %.1f %% of the limit, want 80", part)
	}
	w.strict()
}

type shared struct {
	live, replayed int
	first, last    time.Time // replayed calls
}

// share counts the calls from the first to the last replayed one.
func share(calls []provider.CallLine) shared {
	var s shared
	sinceLast := 0
	for _, c := range calls {
		switch {
		case strings.HasSuffix(c.Key, "~2"):
			s.replayed++
			s.live, sinceLast = s.live+sinceLast, 0
			s.last = time.UnixMicro(c.At)
			if s.replayed == 1 {
				s.first = s.last
			}
		case s.replayed > 0 && strings.HasPrefix(c.Key, "live-"):
			sinceLast++
		}
	}
	return s
}

// A refused payment is shown, edited, and replayed with its new payload and another key. Export and import change nothing.
func TestAnEditedJobIsReplayedAndAnExportIsTheSameElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{DeclineEvery: 1}, fast)
	w.dispatcher()
	w.refuse(3)
	whole := w.ok("dispatcher", "dlq", "export")
	shown := w.ok("dispatcher", "dlq", "show", "inv-00002", "--payload", "-o", "json")
	edited := w.file("edited.ndjson", strings.Replace(shown, `"amount":102`, `"amount":990`, 1))
	r := w.do("enqueue", "--replace", "--yes", "-f", edited, "-o", "json")
	if got := decode[report](t, r.out); r.code != 0 || got.Enqueued != 1 || got.Read != 1 {
		t.Fatalf("exit code %d, %s%s", r.code, r.out, r.err)
	}
	if s := w.settled(time.Minute); s.Done != 1 || s.Parked["refused"] != 2 {
		t.Errorf("%+v", s)
	}
	if got := decode[report](t, w.ok("enqueue", "--replace", "--yes", "-f", edited, "-o", "json")); got.Duplicate+got.Invalid != 1 {
		t.Errorf("once more: %+v", got)
	}
	job := w.ok("dispatcher", "job", "inv-00002", "-o", "json")
	if !strings.Contains(job, `"idempotency_key":"inv-00002~2"`) || !strings.Contains(job, `"state":"done"`) {
		t.Errorf("%s", job)
	}
	history := w.ok("dispatcher", "dlq", "history", "-o", "json")
	if !strings.Contains(history, `"what":"replace"`) || !strings.Contains(history, `"jobs":1`) {
		t.Errorf("%s", history)
	}
	w.strict()

	there := newWorld(t, provider.Config{Decline: 1}, fast)
	there.dispatcher()
	there.ok("enqueue", "-f", there.file("export.ndjson", whole))
	w.shown(t, time.Minute, "all to be refused there too", func() bool { return there.status().Parked["refused"] == 3 })
	got := slices.Sorted(strings.Lines(there.ok("dispatcher", "dlq", "export"))) // the order is that of parking
	if want := slices.Sorted(strings.Lines(whole)); !slices.Equal(got, want) {
		t.Errorf("exported there:\n%s\nwant:\n%s", got, want)
	}
}
