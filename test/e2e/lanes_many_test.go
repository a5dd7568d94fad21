package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// manyLanes is one account with many lanes. One of them has far more jobs than all others.
type manyLanes struct {
	lanes, crowd int // lanes with 1 to 100 jobs, and jobs of the crowded one
	rate         int // calls a second of the account
	processes    int
	lone         int           // jobs that come one by one meanwhile, each in a lane of its own
	length       time.Duration // how long it is watched
	timed        bool          // times are judged too; only a quiet machine keeps them
}

// TestManyLanesShareAnAccount has dispatchers share an account among lanes. Each lane has limits of its own, and the provider checks them by the kernel's stamps. With -long
// there are 10,000 lanes.
func TestManyLanesShareAnAccount(t *testing.T) {
	t.Parallel()
	m := manyLanes{lanes: 60, crowd: 500, rate: 60, processes: 2, lone: 10, length: 8 * time.Second}
	if testkit.Often(0, 1) > 0 {
		m = manyLanes{timed: true, lanes: 10_000, crowd: 200_000, rate: 1000, processes: 4, lone: 200, length: 3 * time.Minute}
	}
	ofLane := make([]provider.Limit, 0, 2)
	for _, text := range []string{"2/s", "500/h"} {
		limit, err := provider.ParseLimitBy("header:X-Lane=" + text)
		if err != nil {
			t.Fatal(err)
		}
		ofLane = append(ofLane, limit)
	}
	w := newWorld(t, provider.Config{Limits: append(ofLane, provider.Limit{N: m.rate, Window: time.Second}), Service: 20 * time.Millisecond}, fmt.Sprintf(`    leak: {limits: [%d/s], jitter: %v}
    lanes: {key: lane, limits: [2/s, 500/h], header: {X-Lane: "{lane}"}}
    admission: {limits: [1000000/s], burst: 10000000}
`, m.rate, jitter))
	w.ok("enqueue", "-g", "stripe", "-f", w.file("jobs.ndjson", m.jobs()), "-q")
	api := "http://" + w.listening()
	for range m.processes - 1 {
		w.dispatcher()
	}
	// A job that comes while all lanes are new waits for its turn among them, so the lone jobs come after the first round.
	testkit.Eventually(t, time.Minute, "the first call of each lane", func() bool { return w.provider.Stats().Calls > m.rate+m.lanes })
	from, before, posted := time.Now(), w.provider.Stats().Calls, map[string]time.Time{}
	for i := range m.lone {
		id := fmt.Sprintf("lone%05d-0", i)
		posted[id] = time.Now()
		w.post(api, fmt.Sprintf(`{"id":%q,"lane":"lone%05d"}`, id, i))
		w.until(from.Add(m.length * time.Duration(i+1) / time.Duration(m.lone)))
	}
	if !m.timed { // as many calls as a quiet machine makes in that time: of fewer, one more or less is already unfair
		testkit.Eventually(t, time.Minute, "enough calls", func() bool { return w.provider.Stats().Calls >= before+m.rate*int(m.length.Seconds()) })
	}
	until := time.Now()
	w.observed(t, "the last lone job's call", func() bool { return w.calledAll(posted) })
	m.judge(t, w, posted, from, until)
}

// jobs returns the file: lane i has 1 + i % 100 jobs.
func (m manyLanes) jobs() string {
	var b strings.Builder
	for i := range m.crowd {
		fmt.Fprintf(&b, `{"id":"crowd-%d","lane":"crowd"}`+"\n", i)
	}
	for lane := range m.lanes {
		for i := range 1 + lane%100 {
			fmt.Fprintf(&b, `{"id":"l%05d-%d","lane":"l%05[1]d"}`+"\n", lane, i)
		}
	}
	return b.String()
}

// judge checks what is promised: the account's rate, each lane's share, and how soon a lone job is called.
func (m manyLanes) judge(t *testing.T, w *world, posted map[string]time.Time, from, until time.Time) {
	t.Helper()
	s := w.strict()
	calls, of := 0, map[string]int{}
	var waits []time.Duration
	for _, c := range w.provider.Calls() {
		at := time.UnixMicro(c.At)
		if since, ok := posted[c.Key]; ok {
			waits = append(waits, at.Sub(since))
		}
		if at.Before(from) || at.After(until) {
			continue
		}
		calls++
		of[c.Key[:strings.IndexByte(c.Key, '-')]]++
	}
	slices.Sort(waits)
	busy := make([]int, 0, m.lanes) // lanes that had more jobs than they were called for: each could have been called at any time
	for lane := range m.lanes {
		if n := of[fmt.Sprintf("l%05d", lane)]; 1+lane%100 > 2*(1+calls/m.lanes) {
			busy = append(busy, n)
		}
	}
	promised := 0.985 / (1 + jitter.Seconds())
	used := float64(calls) / (float64(m.rate) * until.Sub(from).Seconds())
	t.Logf("%d calls in %v: %.2f %% of the limit (promised %.2f %%), fullest windows %v of %v; Jain's index of %d busy lanes %.4f; %d lone jobs: p50 %v, p99 %v",
		calls, until.Sub(from).Round(time.Millisecond), 100*used, 100*promised, s.MaxInWindow, s.Limits, len(busy), jain(busy), len(waits), waits[len(waits)/2], waits[len(waits)*99/100])
	if j := jain(busy); j < 0.99 {
		t.Errorf("busy lanes share unfairly: Jain's index is %.4f: %v", j, busy)
	}
	if m.timed && used < promised {
		t.Errorf("%.2f %% of the limit, promised are %.2f %%", 100*used, 100*promised)
	}
	if p99 := waits[len(waits)*99/100]; m.timed && p99 > time.Second {
		t.Errorf("a lone job waited %v", p99)
	}
}

// jain returns Jain's index of fairness: 1 if all are the same, 1/len(shares) if one has all.
func jain(shares []int) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum, squares = sum+float64(n), squares+float64(n)*float64(n)
	}
	return sum * sum / (float64(len(shares)) * squares)
}
