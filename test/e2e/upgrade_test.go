package e2e

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// rolls is how often dispatchers of the other version replace both dispatchers.
var rolls = flag.Int("rolls", 2, "how often the version before and this one replace one another")

// before is the commit of the previous version. Its programs run beside those of this tree. docs/upgrading.md names it.
const before = "c6d6b50b416e7cf9c7afaac65df2efdd02600f64"

// older builds the programs of the previous version, and returns their directory.
var older = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(bin, "before")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for _, line := range []string{
		"git -C ../.. archive " + before + " | tar -x -C " + dir,
		"cd " + dir + " && go build -trimpath -ldflags='-s -w' -o bin/ ./cmd/...", // so the build cache serves the next run, in another directory,
	} {
		if out, err := exec.Command("bash", "-e", "-o", "pipefail", "-c", line).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", line, err, out)
		}
	}
	return filepath.Join(dir, "bin"), nil
})

// needsHistory skips a test that needs the previous version if the clone does not have it.
func needsHistory(t *testing.T) string {
	t.Helper()
	if err := exec.Command("git", "-C", "../..", "cat-file", "-e", before+"^{commit}").Run(); err != nil {
		t.Skip("the history of this clone does not reach to the version before, git fetch --unshallow brings it: make test runs it")
	}
	dir, err := older()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ends says what becomes of jobs, by the first word of their ids, and how many of a wave have that word.
var ends = []struct {
	word, end string
	jobs      int
	fields    string
}{
	{"plain", "done", 30, ""}, {"lane", "done", 20, `"lane":"%c",`}, {"back", "done", 10, `"route":"refund",`}, {"urgent", "done", 10, `"priority":"urgent",`}, {"half", "done", 10, `"batch":"half",`},
	{"later", "done", 10, `"at":"LATER",`}, {"declined", "refused", 6, ""}, {"broken", "exhausted", 4, ""}, {"odd", "unknown_outcome", 4, ""}, {"stale", "expired", 4, `"expires":"SOON","batch":"held",`},
	{"held", "done", 6, `"batch":"held",`}, {"dropped", "cancelled", 4, `"batch":"dropped",`},
}

// wave writes a file of jobs of every kind.
func (w *rolling) wave(n int) string {
	w.t.Helper()
	w.late = time.Now().Add(5 * time.Second)
	at := strings.NewReplacer("LATER", time.Now().Add(3*time.Second).Format(time.RFC3339Nano), "SOON", w.late.Format(time.RFC3339Nano))
	var lines []string
	for _, e := range ends {
		for i := range e.jobs {
			fields := at.Replace(e.fields)
			if strings.Contains(fields, "%c") {
				fields = fmt.Sprintf(fields, 'a'+i%3)
			}
			lines = append(lines, fmt.Sprintf(`{"id":"%s-%04d-%03d",%s"payload":{"amount":%d,"currency":"EUR"}}`, e.word, n, i, fields, 100+i))
		}
	}
	var mixed strings.Builder
	for i := range lines { // of every kind some near the beginning
		fmt.Fprintln(&mixed, lines[i*37%len(lines)])
	}
	return w.file(fmt.Sprintf("wave-%d.ndjson", n), mixed.String())
}

// rolling is a world in which dispatchers of two versions replace one another.
type rolling struct {
	*world
	old  string // directory of the programs of the version before
	seen map[string]bool
	two  [2]*run
	late time.Time // when the jobs of the latest wave that are not to be called in time expire
}

// by does something with the programs of a version.
func (r *rolling) by(dir string, act func()) {
	own := r.bin
	r.bin = dir
	act()
	r.bin = own
}

// look notes the states in which jobs are.
func (r *rolling) look() standing {
	s := r.status()
	for state, n := range map[string]int{"queued": s.Queued, "in flight": s.InFlight, "scheduled": s.Scheduled, "retrying": s.Retrying, "done": s.Done} {
		r.seen[state] = r.seen[state] || n > 0
	}
	for reason := range s.Parked {
		r.seen[reason] = true
	}
	return s
}

// roll replaces both dispatchers, one after the other. In every third roll the second one is killed.
func (r *rolling) roll(n int, dir string) {
	r.t.Helper()
	for i := range r.two {
		old := r.two[i]
		r.by(dir, func() { r.two[i] = r.dispatcher() })
		testkit.Eventually(r.t, time.Minute, "the other version to serve", func() bool { return strings.Contains(r.two[i].text(), "msg=serving") })
		calls := r.provider.Stats().Calls
		r.shown(r.t, time.Minute, "calls by both versions", func() bool { s := r.look(); return r.provider.Stats().Calls > calls+10 || s.Queued == 0 })
		switch {
		case old == nil:
		case n%3 == 2 && i == 1:
			old.kill()
		default:
			old.stop()
		}
	}
}

// Two dispatchers of the previous version and two of this one replace one another, again and again, while both versions take jobs in that come to every end. No job is lost, none is charged
// twice, no window has more calls than the limit, and both versions find the books in order.
func TestTheVersionBeforeAndThisOneReplaceOneAnother(t *testing.T) {
	t.Parallel()
	old := needsHistory(t)
	w := newWorld(t, provider.Config{Limits: perSecond100, Service: 200 * time.Millisecond, Fates: []provider.Fate{
		{ID: "declined-*", Status: 402}, {ID: "broken-*", Status: 500}, {ID: "odd-*", Status: 418}}}, `      timeout: 2s
      key_lifetime: 24h
    leak: {limits: [100/s], jitter: 50ms}
    retry: {attempts: 4, first: 300ms, max: 1s}
    circuit: off
    answers: {rules: [{status: 418, then: unknown}]}
    admission: {limits: [60/s], burst: 80}
    amount: {field: amount, currency: currency}
    lanes: {key: lane, limits: [60/s]}
    priority: {classes: [urgent, normal], default: normal}
    routes: {refund: {limits: [40/s]}}
    outcomes: {readers: [erp]}
`)
	r := &rolling{world: w, old: old, seen: map[string]bool{}}
	begun := time.Now()
	r.by(old, func() {
		r.ok("enqueue", "-g", "stripe", "-f", r.wave(0), "-q")
		r.ok("dispatcher", "batch", "pause", "held", "--why", "a test", "--yes")
		r.ok("dispatcher", "batch", "cancel", "dropped", "--why", "a test", "--yes")
		r.look()
	})
	r.roll(0, old)
	versions := []string{bin, old}
	for n := 1; n <= *rolls; n++ {
		r.by(versions[n%2], func() { r.ok("enqueue", "-g", "stripe", "-f", r.wave(n), "-q") })
		r.roll(n, versions[(n-1)%2])
	}
	r.shown(t, time.Minute, "the paused batch to be put aside", func() bool { return r.look().Parked["paused"] > 0 })
	r.shown(t, time.Until(r.late), "the jobs that are not to be called in time to expire", func() bool { r.look(); return time.Now().After(r.late) })
	r.ok("dispatcher", "batch", "resume", "held", "--why", "a test", "--yes")
	s := r.settled(2 * time.Minute)
	for _, one := range r.two {
		one.stop()
	}
	r.reckon(s)
	for _, dir := range versions {
		r.by(dir, func() { r.audited("stripe") })
	}
	seen := w.strict()
	t.Logf("%d rolls in %v: %d jobs, %d calls, %d charged, %d repeated with the same key, fullest window %v of %v; states: %s", *rolls, time.Since(begun).Round(time.Second), r.sum(""), seen.Calls,
		seen.Charged, seen.Replayed, seen.MaxInWindow, seen.Limits, strings.Join(slices.Sorted(maps.Keys(r.seen)), ", "))
}

// sum returns how many of the jobs come to an end of this kind; with "" how many there are.
func (r *rolling) sum(end string) (n int) {
	for _, e := range ends {
		if end == "" || e.end == end {
			n += e.jobs
		}
	}
	return n * (*rolls + 1)
}

// reckon compares the ends of all jobs with the expected ones.
func (r *rolling) reckon(s standing) {
	r.t.Helper()
	if s.Done != r.sum("done") {
		r.t.Errorf("%d jobs are done, and %d were to be", s.Done, r.sum("done"))
	}
	want := map[string]int{}
	for _, e := range ends {
		if e.end != "done" {
			want[e.end] = r.sum(e.end)
		}
	}
	if !maps.Equal(s.Parked, want) {
		r.t.Errorf("parked %v, want %v", s.Parked, want)
	}
	if seen := r.provider.Stats(); seen.Charged != s.Done {
		r.t.Errorf("%d jobs are done, and %d were charged", s.Done, seen.Charged)
	}
	for _, state := range []string{"queued", "in flight", "scheduled", "retrying", "done", "rejected", "paused", "refused", "exhausted", "unknown_outcome", "cancelled"} {
		if !r.seen[state] {
			r.t.Errorf("no job was seen %s while versions changed", state)
		}
	}
}
