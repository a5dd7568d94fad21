package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
)

// calledIn returns when the jobs of a lane were called, in [from, to).
func (w *world) calledIn(lane string, from, to time.Time) (at []time.Time) {
	for _, c := range w.provider.Calls() {
		if t := time.UnixMicro(c.At); strings.Contains(c.Key, "lane-"+lane+"-") && !t.Before(from) && t.Before(to) {
			at = append(at, t)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// mostOf returns the largest number of these calls in a rolling second.
func mostOf(at []time.Time) (most int) {
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// What is set for a lane holds on two processes, in every second that the provider counts. Limits go up and down, a lane is paused and resumed, and the processes are
// replaced one by one. A lane has enough jobs also if the commands take several seconds each; at the end its limit is raised so that the rest is called soon.
func TestLanesAreSetLiveOnTwoProcesses(t *testing.T) {
	t.Parallel()
	limit, err := provider.ParseLimitBy("header:X-Lane=60/s")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, provider.Config{Limits: []provider.Limit{limit}}, `    leak: {limits: [200/s], jitter: 10ms}
    admission: {limits: [1000000/s], burst: 1000000}
    lanes: {key: lane, limits: [20/s], header: {X-Lane: "{lane}"}}
`)
	var jobs strings.Builder
	const ofA, ofOthers = 1000, 200
	for i := range ofA {
		for _, lane := range []string{"a", "b", "c"} {
			if lane == "a" || i < ofOthers {
				fmt.Fprintf(&jobs, `{"id":"lane-%s-%04d","lane":%q,"payload":{"amount":1}}`+"\n", lane, i, lane)
			}
		}
	}
	act := func(args ...string) time.Time {
		t.Helper()
		w.ok("dispatcher", append([]string{"lane", args[0], "-g", "stripe"}, args[1:]...)...)
		return time.Now()
	}
	ever := time.Now().Add(time.Hour)
	called := func(lane string, since time.Time, n int) {
		t.Helper()
		w.observed(t, fmt.Sprintf("%d calls of %s", n, lane), func() bool { return len(w.calledIn(lane, since, ever)) >= n })
	}
	paused := act("pause", "c", "--why", "fraud")
	w.ok("enqueue", "-g", "stripe", "-f", w.file("jobs", jobs.String()), "-q")
	first, second := w.dispatcher(), w.dispatcher()
	called("a", paused, 30)
	raising := time.Now()
	raised := act("set", "a", "--limits", "60/s")
	called("a", raised, 90)
	before := time.Now()
	lowered := act("set", "a", "--limits", "4/s", "--weight", "3")
	settled := lowered.Add(300 * time.Millisecond) // what was bound before has been called
	first.stop()
	w.dispatcher()
	called("a", settled, 8)
	second.stop()
	w.dispatcher()
	called("a", settled, 14)
	low := time.Now() // from here on a's limit may be 20/s again
	reset := act("reset", "a")
	called("a", reset, 40)
	if got := w.calledIn("c", paused, ever); len(got) > 0 {
		t.Errorf("%d calls of a paused lane", len(got))
	}
	resumed := act("resume", "c")
	ending := time.Now()
	act("set", "a", "--limits", "60/s")
	const jobsInAll = ofA + 2*ofOthers
	if s := w.settled(2 * time.Minute); s.Done != jobsInAll {
		t.Errorf("done %d of %d, parked %v", s.Done, jobsInAll, s.Parked)
	}
	for what, c := range map[string]struct {
		at   []time.Time
		most int
	}{
		"a, at 20/s":          {w.calledIn("a", paused, raising), 20},
		"a, up to 60/s":       {w.calledIn("a", raised, before), 60},
		"a, lowered to 4/s":   {w.calledIn("a", settled, low), 4},
		"a, at 20/s again":    {w.calledIn("a", reset, ending), 20},
		"b":                   {w.calledIn("b", paused, ever), 20},
		"c, after the resume": {w.calledIn("c", resumed, ever), 20},
	} {
		if most := mostOf(c.at); most > c.most || len(c.at) == 0 {
			t.Errorf("%s: %d calls in a second, of %d", what, most, len(c.at))
		}
	}
	if most := mostOf(w.calledIn("a", raised, before)); most <= 20 {
		t.Errorf("never more than %d calls of a in a second at 60/s", most)
	}
	if s := w.provider.Stats(); s.Over > 0 || s.Calls != jobsInAll {
		t.Errorf("%d of %d calls were above what any lane ever had", s.Over, s.Calls)
	}
	w.audited("stripe")
}
