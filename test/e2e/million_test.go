package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/provider"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// million is the number of jobs that the story of the big store parks. From a million on the figures must meet their goals.
var million = flag.Int("million", 0, "park so many jobs and measure what the dead letters do with them: 1000000")

// The store's settings. shut: there is room for one job, and no job is replayed automatically. wideOpen: there is room for all.
const (
	shut     = "    leak: {limits: [1000/s]}\n    admission: {limits: [1/m], burst: 1}\n    replay: manual\n"
	wideOpen = "    leak: {limits: [1000000/s]}\n    admission: {burst: 100000000}\n    replay: manual\n"
)

// store is the world of a big store.
type store struct {
	*world
	n    int
	hold bool // the goals are held
}

func TestAMillionDeadLetters(t *testing.T) {
	t.Parallel()
	n := max(*million, 2000)
	s := &store{newWorld(t, provider.Config{}, shut), n, n >= 1_000_000}
	s.refuseInProcess(n / 50)
	s.parkAll()
	s.stats()
	s.firstPages()
	s.exportAll()
	s.replaySome()
}

// refuseInProcess parks jobs as refused, as a worker does, but without calls. Every thousandth answer is a rare one.
func (s *store) refuseInProcess(n int) {
	s.t.Helper()
	c, keys := s.redis.Client(), redisdb.NewKeys("stripe")
	tokens := bucket.TokenBucket{Limits: []job.Limit{{N: 1_000_000, Window: time.Second}}, Burst: int64(10 * n)}
	books := ledger.New(c, ledger.Config{Gateway: "stripe", Keys: true, KeyLifetime: time.Hour, Attempts: 3, Dedupe: time.Hour,
		Bucket: tokens, Encode: queue.NewEncoder("stripe").Encode})
	letters := deadletter.New(c, "stripe")
	for i := range n {
		j := job.Job{ID: fmt.Sprintf("ref-%07d", i), Payload: []byte(wide(i)), Batch: "refusals"}
		_, _, err := testkit.Accept(s.t.Context(), books, job.Ticket{Sequence: rand.Text(), Number: 1}, []job.Newcomer{{Job: j, Digest: "d"}}, "park")
		s.check(err)
		_, err = c.RPop(s.t.Context(), keys.Pending()).Result()
		s.check(err)
		a, _, err := books.Open(s.t.Context(), j.ID, 1, "w", time.Minute)
		s.check(err)
		e := job.Ending{Called: true, At: time.Now(), Spent: true, Status: 402, Verdict: job.VerdictRefused, Error: "HTTP 402: card_declined"}
		if i%1000 == 999 {
			e.Error = "HTTP 402: stolen_card"
		}
		s.check(letters.Park(s.t.Context(), a, e, job.Refused))
	}
}

func (s *store) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// goal logs a figure, and fails if it misses its goal.
func (s *store) goal(ok bool, format string, args ...any) {
	s.t.Helper()
	s.t.Logf(format, args...)
	if !ok && s.hold {
		s.t.Errorf("that is short of the goal")
	}
}

// wide is a payload of 200 bytes.
func wide(i int) string {
	text := fmt.Sprintf(`{"amount":%d,"currency":"EUR","invoice":%d,"customer":"`, 100+i%5000, i)
	return text + strings.Repeat("c", 198-len(text)) + `"}`
}

func (s *store) parkAll() {
	s.t.Helper()
	path := filepath.Join(s.dir, "million.ndjson")
	f, err := os.Create(path)
	s.check(err)
	out := bufio.NewWriterSize(f, 1<<20)
	for i := range s.n {
		batch := "monthly"
		if i%(s.n/100) == 0 {
			batch = "rare"
		}
		fmt.Fprintf(out, `{"id":"inv-%07d","batch":"%s","payload":%s}`+"\n", i, batch, wide(i))
	}
	s.check(out.Flush())
	s.check(f.Close())
	before, worked := s.memory(), s.cpu()
	begun := time.Now()
	s.t.Log(strings.TrimSpace(s.ok("enqueue", "-g", "stripe", "-f", path, "-q", "-o", "json")))
	rate := float64(s.n) / time.Since(begun).Seconds()
	s.goal(rate >= 20_000, "%d jobs parked at %.0f/s; Redis worked %.1f s on them", s.n, rate, s.cpu()-worked)
	s.t.Logf("%.0f bytes of Redis a job", float64(s.memory()-before)/float64(s.n))
}

func (s *store) memory() int64 { return int64(s.info("memory", "used_memory")) }

// cpu returns the processor time of Redis in seconds: on a busy machine that says more than the clock.
func (s *store) cpu() float64 {
	return s.info("cpu", "used_cpu_user") + s.info("cpu", "used_cpu_sys")
}

func (s *store) info(section, field string) float64 {
	s.t.Helper()
	info, err := s.redis.Client().Info(s.t.Context(), section).Result()
	s.check(err)
	_, rest, _ := strings.Cut(info, field+":")
	n, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	s.check(err)
	return n
}

// best returns the shortest time of a few runs, because the machine is noisy: the first run may meet work that the previous one has left.
func (s *store) best(args ...string) time.Duration {
	s.t.Helper()
	shortest, runs := time.Hour, 1
	if *million > 0 {
		runs = 3
	}
	for range runs {
		begun := time.Now()
		s.ok("dispatcher", args...)
		shortest = min(shortest, time.Since(begun))
	}
	return shortest
}

func (s *store) stats() {
	s.t.Helper()
	s.t.Logf("the program alone: %v", s.best("dlq", "--help"))
	took := s.best("dlq", "stats")
	s.goal(took < 50*time.Millisecond, "stats: %v", took)
	all := decode[struct {
		Gateways []struct{ Total int }
	}](s.t, s.ok("dispatcher", "dlq", "stats", "-o", "json"))
	if want := s.n + s.n/50; all.Gateways[0].Total != want {
		s.t.Errorf("stats counts %d, want %d", all.Gateways[0].Total, want)
	}
	for _, filter := range [][]string{{"--batch", "rare"}, {"--reason", "refused"}} {
		s.t.Logf("stats %v: %v", filter, s.best(append([]string{"dlq", "stats"}, filter...)...))
	}
}

func (s *store) firstPages() {
	s.t.Helper()
	middle := time.Now().Add(-2 * time.Second).UTC().Format(time.RFC3339Nano)
	for _, filter := range [][]string{
		{}, {"--reason", "refused"}, {"--reason", "rejected"}, {"--batch", "monthly"}, {"--batch", "rare"}, {"--batch", "refusals"},
		{"--reason", "refused", "--batch", "monthly"}, {"--since", middle}, {"--until", middle},
		{"--batch", "rare", "--since", middle}, {"--id", fmt.Sprintf("inv-%07d", s.n/2)}, {"--match", "stolen_card"},
		{"--match", "no room"}, {"--reason", "refused", "--match", "stolen_card"},
	} {
		took := s.best(append([]string{"dlq", "list", "--limit", "50", "-o", "json"}, filter...)...)
		s.goal(took < 200*time.Millisecond, "first page of %v: %v", filter, took)
	}
}

func (s *store) exportAll() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "dispatcher"), "dlq", "export")
	cmd.Env, cmd.Dir = s.env(false), s.dir
	lines := &lineCount{}
	cmd.Stdout = lines
	begun := time.Now()
	s.check(cmd.Run())
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	mib := usage.Maxrss / 1024
	s.goal(mib < 100, "export of %d lines took %.1f s and %d MiB", lines.n, time.Since(begun).Seconds(), mib)
	if want := s.n + s.n/50; lines.n != want {
		s.t.Errorf("%d lines, want %d", lines.n, want)
	}
}

// lineCount counts lines and forgets them.
type lineCount struct{ n int }

// Write implements io.Writer.
func (l *lineCount) Write(p []byte) (int, error) {
	l.n += strings.Count(string(p), "\n")
	return len(p), nil
}

func (s *store) replaySome() {
	s.t.Helper()
	s.check(os.WriteFile(s.config, []byte(strings.Replace(read(s.t, s.config), shut, wideOpen, 1)), 0o600))
	n, worked := s.n/10, s.cpu()
	begun := time.Now()
	s.ok("dispatcher", "dlq", "replay", "--yes", "-q", "--reason", "rejected", "--limit", strconv.Itoa(n))
	rate := float64(n) / time.Since(begun).Seconds()
	s.goal(rate >= 20_000, "%d jobs replayed at %.0f/s, the preview counted in; Redis worked %.1f s on them", n, rate, s.cpu()-worked)
	if queued := s.status().Queued; queued != n {
		s.t.Errorf("%d queued, want %d", queued, n)
	}
	s.ok("dispatcher", "audit")
}
