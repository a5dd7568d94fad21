package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// soak makes each run of the limits that long, and judges the rate as well. Without it the runs are short, and only the limits are judged.
var soak = flag.Duration("soak", 0, "how long each run of the limits lasts, and hold them to their rates")

const (
	shortRun = 3 * time.Second // the window, and twice as long again
	jitter   = 5 * time.Millisecond
	// settles is how long before its last job a run kills no more dispatchers. Then the calls that were cut off are made again before the end, and the rate is not
	// that of these few calls alone.
	settles = 15 * time.Second
)

// TestTheLimitIsKeptAndUsed has several dispatchers call a provider that stamps arrivals in the kernel: no rolling window holds more calls than the limit. With -soak it
// must also hold nearly as many, and dispatchers die and are replaced; TestDispatchersKilledAllTheTime has a short form of that.
func TestTheLimitIsKeptAndUsed(t *testing.T) {
	type set struct {
		limit     string
		processes int
		churn     bool
		settings  string
		least     time.Duration // without -soak, if not shortRun
		lanes     string        // the limit of each of ten lanes; empty: there are none
	}
	all := []set{
		{limit: "100/s", processes: 1},
		{limit: "100/s", processes: 8},
		{limit: "1000/s", processes: 4},
		{limit: "5/s", processes: 2},
		{limit: "100/s", processes: 2, settings: ", burst: 10"},
	}
	if *soak > 0 { // lanes have shorter tests of their own
		all = append(all, set{limit: "100/s", processes: 2}, set{limit: "100/s", processes: 3, churn: true}, set{limit: "40/s 200/10s", processes: 2, least: 13 * time.Second},
			set{limit: "100/s", processes: 3, lanes: "12/s"}, set{limit: "100/s", processes: 3, lanes: "12/s", churn: true})
	} else { // two waves of the longer window
		all = append(all, set{limit: "40/s 80/4s", processes: 2, least: 5 * time.Second})
	}
	for _, tc := range all {
		name := fmt.Sprintf("%s by %d%s", tc.limit, tc.processes, tc.settings)
		if tc.churn {
			name += " dying and coming"
		}
		if tc.lanes != "" {
			name += " in lanes of " + tc.lanes
		}
		t.Run(strings.ReplaceAll(name, "/", " per "), func(t *testing.T) {
			keep(t, load{tc.limit, tc.processes, tc.churn, tc.settings, tc.lanes, max(*soak, tc.least, shortRun)})
		})
	}
}

type load struct {
	limits    string
	processes int
	churn     bool
	settings  string
	lanes     string
	length    time.Duration
}

// inLanes returns the settings of the load's ten lanes, and the limit of each lane that the provider checks. Both are empty without lanes.
func (l load) inLanes(t *testing.T) (settings string, limits []provider.Limit) {
	t.Helper()
	if l.lanes == "" {
		return "", nil
	}
	limit, err := provider.ParseLimitBy("header:X-Lane=" + l.lanes)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("    lanes: {key: payload.merchant, limits: [%s], header: {X-Lane: \"{lane}\"}}\n", l.lanes), []provider.Limit{limit}
}

// jobs writes the load's file.
func (l load) jobs(w *world, n int) string {
	if l.lanes == "" {
		return w.jobs("jobs.ndjson", n)
	}
	var jobs strings.Builder
	for i := range n {
		fmt.Fprintf(&jobs, `{"id":"inv-%06d","payload":{"amount":100,"merchant":"m%d"}}`+"\n", i, i%10)
	}
	return w.file("jobs.ndjson", jobs.String())
}

// keep runs one load and judges it.
func keep(t *testing.T, l load) {
	t.Helper()
	var limits []provider.Limit
	rate := 1e9
	for _, text := range strings.Fields(l.limits) {
		limit, err := provider.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, limit)
		rate = min(rate, float64(limit.N)/limit.Window.Seconds())
	}
	n := int(rate * l.length.Seconds())
	lanes, ofLanes := l.inLanes(t)
	w := newWorld(t, provider.Config{Limits: slices.Concat(limits, ofLanes), Service: 20 * time.Millisecond}, fmt.Sprintf(
		"      timeout: 5s\n    leak: {limits: [%s], jitter: %v%s}\n    admission: {limits: [1000000/s], burst: 10000000}\n%s",
		strings.ReplaceAll(l.limits, " ", ", "), jitter, l.settings, lanes))
	w.ok("enqueue", "-g", "stripe", "-f", l.jobs(w, n), "-q")
	for range l.processes {
		w.dispatcher()
	}
	stop := make(chan struct{})
	churned := make(chan struct{})
	go func() { defer close(churned); churn(w, l.churn, stop) }()
	charged := func(n int) func() bool { return func() bool { return w.provider.Stats().Charged >= n } }
	within := 2*l.length + 5*time.Minute
	testkit.Eventually(t, within, "most calls", charged(n-int(min(settles, l.length/4).Seconds()*rate)))
	close(stop)
	<-churned
	testkit.Eventually(t, within, "all calls", charged(n))
	judge(t, w, l, limits)
}

// churn kills a dispatcher and starts another one every 5 s.
func churn(w *world, really bool, stop <-chan struct{}) {
	if !really {
		return
	}
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
			w.runs[i].kill()
			w.dispatcher()
		case <-stop:
			return
		}
	}
}

func judge(t *testing.T, w *world, l load, limits []provider.Limit) {
	t.Helper()
	s := w.strict()
	window := limits[0].Window
	for _, limit := range limits {
		window = max(window, limit.Window)
	}
	used := s.Utilisation
	if len(limits) > 1 { // the calls come in waves: whole waves of the longest window are what can be compared
		used = w.waves(limits)
	}
	promised := 0.99 * window.Seconds() / (window + jitter).Seconds()
	t.Logf("%d calls, fullest windows %v of %v, %.2f %% of the limit (promised %.2f %%), %d repeated, %d under way at most",
		s.Calls, s.MaxInWindow, s.Limits, 100*used, 100*promised, s.Replayed, s.MaxInFlight)
	if *soak > 0 && used < promised {
		t.Errorf("%.2f %% of the limit, promised are %.2f %%", 100*used, 100*promised)
	}
}

// waves returns the share of its limit that the longest window had, over all whole windows.
func (w *world) waves(limits []provider.Limit) float64 {
	longest := slices.MaxFunc(limits, func(a, b provider.Limit) int { return cmp.Compare(a.Window, b.Window) })
	calls := w.provider.Calls()
	whole := (len(calls) - 1) / longest.N
	if whole == 0 {
		return 0
	}
	took := time.Duration(calls[whole*longest.N].At-calls[0].At) * time.Microsecond
	return float64(whole) * longest.Window.Seconds() / took.Seconds()
}
