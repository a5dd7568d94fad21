package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// bad says which jobs always fail, and how.
type bad struct {
	what          string
	fates         []provider.Fate
	save, noMarks bool
}

// one returns the fate of one bad job, by its place in the file.
func one(place int, status int, hint time.Duration) provider.Fate {
	return provider.Fate{ID: fmt.Sprintf("inv-%05d", place), Status: status, RetryAfter: hint}
}

func of(share float64, status int) []provider.Fate {
	return []provider.Fate{{Share: share, Status: status}}
}

var bads = []bad{
	{what: "1 job 500", fates: []provider.Fate{one(300, 500, 0)}},
	{what: "5 % 500", fates: of(0.05, 500)},
	{what: "20 % 500", fates: of(0.2, 500)},
	{what: "60 % 500", fates: of(0.6, 500)},
	{what: "1 job 500, saved", fates: []provider.Fate{one(300, 500, 0)}, save: true},
	{what: "5 % 500, saved", fates: of(0.05, 500), save: true},
	{what: "20 % 500, saved", fates: of(0.2, 500), save: true},
	{what: "60 % 500, saved", fates: of(0.6, 500), save: true},
	{what: "20 % 500, saved, unmarked", fates: of(0.2, 500), save: true, noMarks: true},
	{what: "1 job 403", fates: []provider.Fate{one(300, 403, 0)}},
	{what: "1 job 429", fates: []provider.Fate{one(300, 429, 0)}},
	{what: "1 job 503 + Retry-After", fates: []provider.Fate{one(300, 503, time.Second)}},
	{what: "5 % 403", fates: of(0.05, 403)},
}

// stubborn are three bad jobs whose answers speak of the whole gateway or of a wait, and are about these jobs alone.
var stubborn = bad{what: "3 jobs: 403, 429, 503 + Retry-After", fates: []provider.Fate{one(100, 403, 0), one(120, 429, 0), one(140, 503, time.Second)}}

// disturbance is a trouble of the whole gateway for a while. Without functions there is only the bad jobs' own trouble.
type disturbance struct {
	what       string
	lasts      time.Duration
	tail       time.Duration // how much longer its last answer may hold the gateway
	begin, end func(l *liveness)
	refuses    bool
}

func paused(d time.Duration) disturbance {
	return disturbance{what: "pause", lasts: d,
		begin: func(l *liveness) { l.ok("dispatcher", "pause", "-g", "stripe", "--why", "liveness") },
		end:   func(l *liveness) { l.ok("dispatcher", "resume", "-g", "stripe") }}
}

func incident(what string, d time.Duration, i provider.Incident, save bool) disturbance {
	set := func(i provider.Incident, save bool) func(l *liveness) {
		return func(l *liveness) {
			behaviour := l.provider.Config()
			behaviour.Incident = i
			behaviour.Save500 = behaviour.Save500 || save
			l.provider.Set(behaviour)
		}
	}
	return disturbance{what: what, lasts: d, tail: i.RetryAfter, begin: set(i, save), end: set(provider.Incident{}, false)}
}

func limited(d time.Duration) disturbance {
	return incident("429 + Retry-After", d, provider.Incident{Status: 429, RetryAfter: time.Second}, false)
}

func down(d time.Duration) disturbance {
	return incident("503", d, provider.Incident{Status: 503}, false)
}

func saved500s(d time.Duration) disturbance {
	return incident("30 % saved 500s", d, provider.Incident{Status: 500, Share: 0.3}, true)
}

func refused(d time.Duration) disturbance {
	return disturbance{what: "refused connections", lasts: d, refuses: true,
		begin: func(l *liveness) { l.line.Refuse() }, end: func(l *liveness) { l.line.Admit() }}
}

// TestGoodJobsNeverWaitForBadOnes takes a gateway of 100/s through trouble; some of its jobs always fail. Within circuit.max and a second after the end of the
// trouble, the gateway is called at its limit again, and at least half of the calls are first calls of their jobs. In the end all good jobs are done, once each, and
// all bad ones are parked. With -soak every kind of bad jobs goes through every kind of trouble, with one dispatcher and with three.
func TestGoodJobsNeverWaitForBadOnes(t *testing.T) {
	t.Parallel()
	for _, l := range everydayLiveness() {
		t.Run(l.name(), func(t *testing.T) {
			t.Parallel()
			l.story(t)
		})
	}
}

const quick = "    retry: {attempts: 3, first: 1s, max: 2s}\n"

// everydayLiveness returns the part of the table that every run tries; with -soak all of it.
func everydayLiveness() []liveness {
	none := disturbance{what: "no other trouble"}
	if *soak == 0 {
		const settings = "    leak: {limits: [100/s], jitter: 50ms}\n" + unhindered + quick
		short := liveness{jobs: 1600, begin: 100, settings: settings} // early: jobs are called on while the command that pauses starts
		return []liveness{
			short.of(bads[1], paused(4*time.Second), 3),
			short.of(bads[6], limited(3*time.Second), 1),
			short.of(bads[12], refused(4*time.Second), 3),
			short.of(stubborn, none, 1),
		}
	}
	const settings = "    leak: {limits: [100/s], jitter: 50ms}\n" + unhindered + quick
	full := liveness{jobs: 3000, begin: 600, settings: settings}
	defaults := liveness{jobs: 3000, begin: 600, settings: "    leak: {limits: [100/s]}\n", jitter: jitter}
	list := []liveness{defaults.of(bads[1], paused(20*time.Second), 1), defaults.of(bads[1], paused(20*time.Second), 3)}
	for _, n := range []int{1, 3} {
		healthy := bad{what: "no bad job"}
		list = append(list, full.of(healthy, paused(5*time.Second), n), full.of(healthy, saved500s(10*time.Second), n))
		for _, b := range append(slices.Clone(bads), stubborn) {
			if !strings.Contains(b.what, "%") {
				list = append(list, full.of(b, none, n))
			}
			for _, tr := range []disturbance{paused(time.Second), paused(20 * time.Second), paused(2 * time.Minute), limited(3 * time.Second), down(5 * time.Second),
				refused(5 * time.Second), saved500s(10 * time.Second)} {
				list = append(list, full.of(b, tr, n))
			}
		}
	}
	return list
}

// liveness is one case.
type liveness struct {
	*world
	bad         bad
	trouble     disturbance
	dispatchers int
	jobs, begin int // jobs in all, and calls before the trouble begins
	ids         []string
	settings    string
	jitter      time.Duration // 50 ms if it is not said
	line        *testkit.Line // where connections are to be refused
	over        time.Time     // the end of the trouble
}

func (l liveness) of(b bad, tr disturbance, dispatchers int) liveness {
	l.bad, l.trouble, l.dispatchers = b, tr, dispatchers
	if l.jitter == 0 {
		l.jitter = 50 * time.Millisecond
	}
	return l
}

func (l liveness) name() string {
	text := fmt.Sprintf("%s, %s, by %d", l.bad.what, l.trouble.what, l.dispatchers)
	if l.trouble.lasts > 0 {
		text = fmt.Sprintf("%s, %s for %v, by %d", l.bad.what, l.trouble.what, l.trouble.lasts, l.dispatchers)
	}
	if !strings.Contains(l.settings, quick) {
		text += ", all defaults"
	}
	return strings.ReplaceAll(text, "/", " per ")
}

func (l liveness) story(t *testing.T) {
	l.world = newWorld(t, provider.Config{Limits: perSecond100, Service: 20 * time.Millisecond, Fates: l.bad.fates, Save500: l.bad.save, NoMarks: l.bad.noMarks}, l.settings)
	if l.trouble.refuses {
		l.line = l.refusable()
	}
	l.enqueue("inv", l.jobs)
	begun := time.Now()
	for range l.dispatchers {
		l.dispatcher()
	}
	if l.trouble.begin == nil {
		l.over = l.lastFirst()
	} else {
		testkit.Within(30*time.Second, 20*time.Millisecond, func() bool { return l.provider.Stats().Calls >= l.begin })
		l.trouble.begin(&l)
		l.until(time.Now().Add(l.trouble.lasts))
		l.trouble.end(&l)
		l.over = time.Now().Add(l.trouble.tail)
	}
	at := l.finish()
	l.judge(at)
	l.reckon(at.Sub(begun))
}

// lastFirst waits until every bad job was called, and returns the end of the first hold that one can have caused.
func (l *liveness) lastFirst() time.Time {
	l.t.Helper()
	met := 0
	testkit.Within(time.Minute, 20*time.Millisecond, func() bool {
		met = 0
		for _, f := range l.provider.Stats().Fates {
			met += f.Jobs
		}
		return met == len(l.bad.fates)
	})
	if met < len(l.bad.fates) {
		l.t.Errorf("%d of the %d bad jobs were called within a minute", met, len(l.bad.fates))
	}
	return time.Now().Add(time.Second)
}

// finish waits until every job is done or parked. The time for that is ample as long as nobody waits for bad jobs.
func (l *liveness) finish() time.Time {
	l.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	testkit.Within(time.Until(deadline), 200*time.Millisecond, func() bool { return l.provider.Stats().FirstCalls == l.jobs })
	var s standing
	if !testkit.Within(time.Until(deadline), 500*time.Millisecond, func() bool {
		s = l.status()
		return s.Queued+s.InFlight+s.Scheduled+s.Retrying == 0
	}) {
		l.t.Errorf("not every job is done or parked: %+v", s)
	}
	return time.Now()
}

// judge compares the calls after the trouble with the promise.
func (l *liveness) judge(until time.Time) {
	l.t.Helper()
	w := watch{l.provider.Calls(), l.over, until, l.jobs, l.jitter}
	l.t.Logf("%s: %v", l.name(), w)
	for _, fault := range w.faults(*soak > 0) {
		l.t.Error(fault)
	}
}

// reckon checks that good jobs are done, once each, and that bad ones are parked.
func (l *liveness) reckon(took time.Duration) {
	l.t.Helper()
	failed, charged := l.failed(), map[string]bool{}
	for _, c := range l.provider.Calls() {
		if c.Status == 200 {
			charged[jobOf(c)] = true
		}
	}
	s, seen := l.status(), l.provider.Stats()
	if good := l.jobs - len(failed); s.Done != good || seen.Charged != good || len(charged) != good || seen.ChargedTwice > 0 {
		l.t.Errorf("%d jobs done, %d charges, %d jobs charged, %d of them twice; want each of %d once", s.Done, seen.Charged, len(charged), seen.ChargedTwice, good)
	}
	if seen.Over > 0 {
		l.t.Errorf("%d calls above the limit", seen.Over)
	}
	parked := 0
	for line := range strings.Lines(l.ok("dispatcher", "dlq", "list", "-o", "json")) {
		j := decode[struct{ ID, Reason string }](l.t, line)
		parked++
		if !failed[j.ID] || charged[j.ID] || !slices.Contains(l.reasons(), j.Reason) {
			l.t.Errorf("%s is parked as %s", j.ID, j.Reason)
		}
	}
	if parked != len(failed) {
		l.t.Errorf("%d jobs are parked, want the %d bad ones", parked, len(failed))
	}
	if n := l.thirdTimes(); n > 0 && l.bad.save && !l.bad.noMarks {
		l.t.Errorf("%d keys were sent a third time, though the gateway had said that it only repeats its answer", n)
	}
	opened := 0
	for _, r := range l.runs {
		opened += strings.Count(r.text(), "circuit open:")
	}
	l.t.Logf("%s: %d done, parked %v, all after %v; %d calls, %d of them repeated; the circuit opened %d times",
		l.name(), s.Done, s.Parked, took.Round(100*time.Millisecond), seen.Calls, seen.Replayed, opened)
}

// failed returns the jobs that can't be done: those whose fate it is, and those with a saved 500.
func (l *liveness) failed() map[string]bool {
	failed, saves := map[string]bool{}, l.provider.Config().Save500
	for _, id := range l.ids {
		failed[id] = slices.ContainsFunc(l.bad.fates, func(f provider.Fate) bool { return f.Fits(id) })
	}
	for _, c := range l.provider.Calls() {
		if saves && c.Status == 500 {
			failed[jobOf(c)] = true
		}
	}
	maps.DeleteFunc(failed, func(_ string, is bool) bool { return !is })
	return failed
}

// reasons returns those for which bad jobs may be parked. A repeated answer is no new answer. If repeats aren't marked, nobody can tell.
func (l *liveness) reasons() []string {
	switch {
	case !l.provider.Config().Save500:
		return []string{"exhausted"}
	case l.bad.save && !l.bad.noMarks:
		return []string{"unknown_outcome"}
	}
	return []string{"exhausted", "unknown_outcome"}
}

// thirdTimes counts the keys that had more than two answers 500.
func (l *liveness) thirdTimes() (n int) {
	failed := map[string]int{}
	for _, c := range l.provider.Calls() {
		if c.Status == 500 {
			failed[c.Key]++
			if failed[c.Key] == 3 {
				n++
			}
		}
	}
	return n
}

// jobOf is the job of a call: its key without the generation.
func jobOf(c provider.CallLine) string {
	id, _, _ := strings.Cut(c.Key, "~")
	return id
}

// refusable puts a line between the dispatchers and the provider.
func (w *world) refusable() *testkit.Line {
	w.t.Helper()
	line, ln := testkit.InnerLine(w.t, provider.Listen)
	w.serve(ln)
	w.config = w.file("dispatcher.yaml", strings.ReplaceAll(read(w.t, w.config), w.url, "http://"+line.Addr()))
	return line
}

// TestReplayedJobsThatFailAgainLeaveHalfOfTheCalls replays jobs that always fail. Meanwhile other jobs wait for their first call, and more jobs come in behind them.
func TestReplayedJobsThatFailAgainLeaveHalfOfTheCalls(t *testing.T) {
	t.Parallel()
	old, waiting, newcomers := 100, 1600, 100
	if *soak > 0 {
		old, waiting, newcomers = 300, 1800, 300
	}
	l := liveness{bad: bad{what: fmt.Sprint(old, " replayed jobs 500"), fates: []provider.Fate{{ID: "old-*", Status: 500}}},
		trouble: disturbance{what: "no other trouble"}, dispatchers: 2, jobs: old + waiting + newcomers, jitter: 50 * time.Millisecond}
	l.settings = "    leak: {limits: [100/s], jitter: 50ms}\n" + unhindered + quick
	const before = "    leak: {limits: [1000/s]}\n    circuit: off\n    retry: {attempts: 1}\n" + unhindered
	l.world = newWorld(t, provider.Config{Service: 20 * time.Millisecond, Fates: l.bad.fates}, before)
	l.exhaust(old)
	l.config = l.file("dispatcher.yaml", strings.ReplaceAll(read(t, l.config), before, l.settings))
	behaviour := l.provider.Config()
	behaviour.Limits = perSecond100
	l.provider.Set(behaviour)

	l.enqueue("waiting", waiting)
	begun := time.Now()
	for range l.dispatchers {
		l.dispatcher()
	}
	testkit.Eventually(t, 20*time.Second, "some calls", func() bool { return l.provider.Stats().Calls >= old+100 })
	l.ok("dispatcher", "dlq", "replay", "--reason", "exhausted", "--yes", "-q")
	l.enqueue("new", newcomers)
	l.over = time.Now()
	at := l.finish()
	l.judge(at)
	l.reckon(at.Sub(begun))
}

// exhaust runs n jobs until their attempts are used up.
func (l *liveness) exhaust(n int) {
	l.t.Helper()
	r := l.dispatcher()
	l.enqueue("old", n)
	if s := l.settled(time.Minute); s.Parked["exhausted"] != n {
		l.t.Fatalf("%+v, want %d exhausted", s, n)
	}
	r.stop()
}

// enqueue brings in n jobs whose ids begin with a name.
func (l *liveness) enqueue(name string, n int) {
	l.t.Helper()
	file := l.file(name+".ndjson", strings.ReplaceAll(read(l.t, l.world.jobs(name+".ndjson", n)), "inv-", name+"-"))
	l.ok("enqueue", "-g", "stripe", "-f", file, "-q")
	for i := range n {
		l.ids = append(l.ids, fmt.Sprintf("%s-%05d", name, i+1))
	}
}
