package dispatch

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// fated is a gateway that treats a job as the first word of its id says, and records the calls of each job.
type fated struct {
	mu    sync.Mutex
	calls map[string]int
	order []string
	open  chan struct{} // closes when calls that hang are answered
}

func (g *fated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Idempotency-Key")
	g.mu.Lock()
	g.calls[id]++
	n := g.calls[id]
	g.order = append(g.order, id)
	g.mu.Unlock()
	switch word, _, _ := strings.Cut(id, "-"); {
	case word == "hangs":
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
	case word == "refused":
		w.WriteHeader(http.StatusPaymentRequired)
	case word == "exhausted", word == "retried" && n == 1:
		w.WriteHeader(http.StatusInternalServerError)
	case word == "unknown":
		w.WriteHeader(http.StatusTeapot)
	}
}

func (g *fated) made() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.order)
}

// fates says what happens to jobs, by the first word of their ids: the final state or reason, and the number of calls.
var fates = map[string]struct {
	end   string
	calls int
	share int // of a hundred jobs
}{
	"plain": {"done", 1, 50}, "later": {"done", 1, 10}, "retried": {"done", 2, 10}, "refused": {"refused", 1, 8}, "exhausted": {"exhausted", 2, 6}, "unknown": {"unknown_outcome", 1, 5},
	"stale": {"expired", 0, 5}, "cancelled": {"cancelled", 0, 3}, "paused": {"done", 1, 3},
}

// everyState returns n jobs. Each hundred of them have all fates.
func everyState(name string, n int, later time.Time, lane func(i int) string) (jobs []job.Job) {
	var words []string
	for _, word := range slices.Sorted(maps.Keys(fates)) {
		words = append(words, slices.Repeat([]string{word}, fates[word].share)...)
	}
	for i := range n {
		j := job.Job{ID: fmt.Sprintf("%s-%s%s-%05d", words[i*37%100], name, lane(i), i), Lane: lane(i)}
		switch word, _, _ := strings.Cut(j.ID, "-"); word {
		case "later":
			j.At = later
		case "stale":
			j.Expires = time.Now().Add(-time.Minute)
		case "cancelled", "paused":
			j.Batch = word
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// rolling is a gateway that has lanes at times, and the jobs that were sent to it.
type rolling struct {
	*rig
	g    *fated
	sent map[string]bool
	pure [][2]int // from and up to which call all processes had the same file
}

func (r *rolling) put(jobs []job.Job) {
	r.t.Helper()
	for some := range slices.Chunk(jobs, 500) {
		for i, said := range r.admit(some...) {
			if said != string(job.Enqueued) && said != string(job.ParkedNow) {
				r.t.Fatalf("%s: %s", some[i].ID, said)
			}
			r.sent[some[i].ID] = true
		}
	}
}

func (r *rolling) calls(n int) {
	r.t.Helper()
	testkit.Eventually(r.t, 60*time.Second, fmt.Sprintf("%d calls", n), func() bool { return r.g.made() >= n })
}

func (r *rolling) stop(d *Dispatcher) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d.Stop(ctx)
}

// A gateway without lanes has jobs in every state. A dispatcher whose file has lanes starts while the old one runs, and after that one without lanes again. No job is lost,
// each is called exactly as often as its fate says, and the order of each lane is kept while all processes have the same file.
func TestLanesComeAndGoOverJobsOfEveryState(t *testing.T) {
	t.Parallel()
	n, rate := testkit.Often(400, 10_000), testkit.Often(300, 500)
	slow := []job.Limit{{N: int64(testkit.Often(40, 500)), Window: time.Second}} // so that jobs still wait when a busy machine comes to look
	g := &fated{calls: map[string]int{}, open: make(chan struct{})}
	r := &rolling{routed(t, g, `{url: URL/, idempotency_prefix: "", timeout: 60s}`, fmt.Sprintf(`leak: {limits: [%d/s], jitter: 20ms}
retry: {attempts: 2, first: 200ms, max: 200ms}
circuit: off
answers: {rules: [{status: 418, then: unknown}]}
admission: {limits: [%d/s], burst: %d}
lanes: {key: lane, limits: [%d/s]}
`, rate, rate/2, n/3, rate/2)), g, map[string]bool{}, nil}
	with := r.cfg.Gateways[0]
	without := with
	without.Lanes = nil
	ctx, keys := t.Context(), redisdb.NewKeys(with.Name)
	serve := func(with config.Gateway) *Dispatcher {
		r.cfg.Gateways[0] = with
		return r.rig.serve()
	}
	none := func(int) string { return "" }
	lane := func(i int) string { return "abc"[i%3 : i%3+1] }

	r.cfg.Gateways[0] = without
	var hung []job.Job
	for i := range 8 {
		hung = append(hung, job.Job{ID: fmt.Sprintf("hangs-%d", i)})
	}
	r.put(hung)
	r.put(everyState("old", n, time.Now().Add(2*time.Second), none))
	books := func() *ledger.Books { return Books(r.db.Client, r.cfg.Gateways[0]) }
	if err := books().PauseBatch(ctx, "paused", "me", "a test", anything); err != nil {
		t.Fatal(err)
	}
	if err := books().CancelBatch(ctx, "cancelled", "me", "a test", 0, anything); err != nil {
		t.Fatal(err)
	}
	r.set(slow...)
	seen := map[string]int64{}
	inEveryState := func() bool {
		s := r.standing(0)
		states := map[string]int64{"queued": s.Queued, "in flight": s.InFlight, "retrying": s.Retrying, "scheduled": s.Scheduled, "done": s.Done}
		for reason, jobs := range s.Parked {
			states[string(reason)] = jobs
		}
		for state, jobs := range states {
			seen[state] = max(seen[state], jobs)
		}
		return !slices.ContainsFunc(append(slices.Collect(maps.Keys(states)), "unknown_outcome", "refused", "exhausted", "expired", "cancelled", "paused", "rejected"), func(state string) bool {
			return seen[state] == 0
		})
	}
	inEveryState() // some are in a state for a moment only
	first := serve(without)
	testkit.Eventually(t, 20*time.Second, "jobs in every state", inEveryState)
	before := r.standing(0)
	if before.Queued == 0 || before.Done > int64(n)*3/4 {
		t.Errorf("too few jobs wait when lanes come: %+v", before)
	}

	r.pure = append(r.pure, [2]int{0, r.g.made()})
	second := serve(with)
	r.put(everyState("new", n/2, time.Now().Add(time.Second), lane))
	r.calls(r.g.made() + n/10)
	close(g.open)
	r.stop(first)
	lanes := r.g.made()
	r.calls(r.g.made() + n/10)
	testkit.Eventually(t, 20*time.Second, "jobs in lanes", func() bool {
		lines, err := redisdb.LaneLines(ctx, r.db.Client, keys)
		return err == nil && len(lines) > 1
	})
	r.pure = append(r.pure, [2]int{lanes, r.g.made()})
	third := serve(without)
	r.set() // the file's
	r.stop(second)
	testkit.Eventually(t, 60*time.Second, "no job to be in lanes", func() bool {
		lines, err := redisdb.LaneLines(ctx, r.db.Client, keys)
		return err == nil && len(lines) == 0
	})
	lanes = r.g.made()
	if err := books().ResumeBatch(ctx, "paused", anything); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 2*time.Minute, "all to be at an end", func() bool {
		s := r.standing(0)
		return s.Queued+s.InFlight+s.Retrying+s.Scheduled+s.Parked[job.Rejected]+s.Parked[job.Paused] == 0
	})
	r.stop(third)
	r.pure = append(r.pure, [2]int{lanes, r.g.made()})
	r.ended()
	r.inOrder()
	r.clean()
}

// ended compares each job and its calls with its fate.
func (r *rolling) ended() {
	r.t.Helper()
	for id := range r.sent {
		word, _, _ := strings.Cut(id, "-")
		fate := fates[word]
		if word == "hangs" {
			fate = fates["plain"]
		}
		rec := r.found(id)
		end := string(rec.State)
		if rec.State == job.Parked {
			end = string(rec.Reason)
		}
		if calls := r.g.calls[id]; end != fate.end || calls != fate.calls {
			r.t.Errorf("%s is %s after %d calls, and not %s after %d: %+v", id, end, calls, fate.end, fate.calls, rec.History)
		}
	}
}

// inOrder compares the order of the calls with that of the lines. Processes with and without lanes, side by side, pull from different lines.
func (r *rolling) inOrder() {
	r.t.Helper()
	const most = 40 // calls overtake others on their way, and so do those whose slot had passed: on a machine that is too busy, now and then by more
	lines, all, late := map[string]bool{}, 0, 0
	for _, calls := range r.pure {
		last := map[string]int{}
		for _, id := range r.g.order[calls[0]:calls[1]] {
			word, rest, _ := strings.Cut(id, "-")
			line, number, _ := strings.Cut(rest, "-")
			if word != "plain" {
				continue
			}
			var at int
			fmt.Sscanf(number, "%d", &at)
			if all++; at < last[line]-most {
				late++
				r.t.Logf("number %d of %s was called after number %d, in calls %d to %d", at, line, last[line], calls[0], calls[1])
			}
			last[line], lines[line] = max(last[line], at), true
		}
	}
	if late > all/20 {
		r.t.Errorf("%d of %d calls came more than %d places too late", late, all, most)
	}
	if len(lines) != 4 {
		r.t.Errorf("%d lines of jobs were called: %v", len(lines), lines)
	}
}
