package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

const unhindered = "    admission: {limits: [1000000/s], burst: 1000000}\n"

// outage is a gateway of 100/s with a backlog and two dispatchers. It fails in the middle of the run.
type outage struct {
	*world
	jobs   int
	lasts  time.Duration
	lastUp time.Time
}

// newOutage returns an outage of a length; with -soak of that length.
func newOutage(t *testing.T, short time.Duration) *outage {
	t.Helper()
	o := &outage{lasts: max(*soak, short)}
	o.jobs = 200 + 30*int(o.lasts.Seconds())
	o.world = newWorld(t, provider.Config{Limits: perSecond100, Service: 20 * time.Millisecond},
		"      timeout: 5s\n    leak: {limits: [100/s], jitter: 50ms}\n"+unhindered)
	return o
}

// serve enqueues the jobs, starts two dispatchers, and waits for some calls.
func (o *outage) serve() {
	o.t.Helper()
	o.ok("enqueue", "-g", "stripe", "-f", o.world.jobs("f", o.jobs), "-q")
	o.dispatcher("--listen", "127.0.0.1:0")
	o.dispatcher("--listen", "127.0.0.1:0")
	testkit.Eventually(o.t, 20*time.Second, "100 calls", func() bool { return o.provider.Stats().OK >= 100 })
}

// shows waits until status and metrics say what holds the gateway.
func (o *outage) shows(reason string) {
	o.t.Helper()
	var said string
	o.shown(o.t, 20*time.Second, "status to say "+reason, func() bool {
		v := decode[struct {
			Gateways []struct {
				HoldReason string `json:"hold_reason"`
			}
		}](o.t, o.ok("dispatcher", "status", "-o", "json"))
		said = v.Gateways[0].HoldReason
		return strings.Contains(said, reason)
	})
	for _, r := range o.runs {
		o.metric(r, `spillway_circuit_open{gateway="stripe"} 1`)
	}
}

// metric waits until a dispatcher's metrics have a line.
func (o *outage) metric(r *run, line string) {
	o.t.Helper()
	testkit.Eventually(o.t, 20*time.Second, "the metrics to say "+line, func() bool {
		_, body := get(o.t, "http://"+r.address()+"/metrics")
		return strings.Contains(body, line+"\n")
	})
}

// over waits until all jobs are done, and checks that the outage cost nothing.
func (o *outage) over() {
	o.t.Helper()
	left := o.jobs - o.status().Done
	within := 10*time.Second + time.Duration(left)*time.Second/100
	s := o.settled(time.Until(o.lastUp.Add(within)))
	took := time.Since(o.lastUp)
	if *soak > 0 && took > within {
		o.t.Errorf("the %d jobs that were left took %v, allowed are %v", left, took, within)
	}
	if s.Done != o.jobs || len(s.Parked) > 0 {
		o.t.Errorf("%d of %d done, parked %v", s.Done, o.jobs, s.Parked)
	}
	var first time.Duration
	for _, c := range o.provider.Calls() {
		if at := time.UnixMicro(c.At); c.Status == http.StatusOK && at.After(o.lastUp) {
			first = at.Sub(o.lastUp)
			break
		}
	}
	if *soak > 0 && first > 7*time.Second { // 5 s between two calls sent ahead, and one that hangs until its time-out
		o.t.Errorf("the first call after it came %v late", first)
	}
	opened := 0
	for _, r := range o.runs {
		o.metric(r, `spillway_circuit_open{gateway="stripe"} 0`)
	}
	testkit.Eventually(o.t, 20*time.Second, "the logs to say as often that the circuit closed as that it opened", func() bool { // a dispatcher logs it after Redis has it
		closed := 0
		opened = 0
		for _, r := range o.runs {
			text := r.text()
			opened, closed = opened+strings.Count(text, "circuit open:"), closed+strings.Count(text, "circuit closed:")
		}
		return opened == closed
	})
	// A busy machine may cause an outage of its own where a call's time-out is short.
	if opened == 0 || *soak > 0 && opened > 1 {
		o.t.Errorf("the logs say %d times that the circuit opened", opened)
	}
	o.strict()
	o.t.Logf("%v of outage; the first call %v after it, all %d jobs that were left %v after it (allowed: %v)",
		o.lasts, first.Round(time.Millisecond), left, took.Round(time.Millisecond), within)
}

// few checks how many calls met the outage: those that reveal it, one or two that are under way then, and one every 5 s, which is
// 20 in a minute. The everyday run shares its machine, so dispatchers may hear of the circuit late, but not for half of the outage. Without a circuit there
// would be a hundred calls a second.
func (o *outage) few(calls int) {
	o.t.Helper()
	most := int(50 * o.lasts.Seconds())
	if *soak > 0 {
		most = 8 + int(o.lasts.Seconds())/5
	}
	o.t.Logf("%d calls met it", calls)
	if calls > most || calls < 6 {
		o.t.Errorf("%d calls met the outage, want 6 to %d", calls, most)
	}
}

// unspent checks that jobs have no attempts on record.
func (o *outage) unspent(ids []string) {
	o.t.Helper()
	for _, id := range ids {
		v := decode[struct {
			State string
			Spent int `json:"attempts_spent"`
			Calls []any
		}](o.t, o.ok("dispatcher", "job", id, "-o", "json"))
		if v.Spent != 0 || v.State != "done" {
			o.t.Errorf("%s, which met the outage: %s, %d attempts spent on %d calls", id, v.State, v.Spent, len(v.Calls))
		}
	}
}

// TestAProviderThatAnswers503 has a provider that answers 503 for some time. Few calls meet the outage, and no job loses an attempt.
func TestAProviderThatAnswers503(t *testing.T) {
	t.Parallel()
	o := newOutage(t, 6*time.Second)
	o.serve()
	behaviour := o.provider.Config()
	behaviour.Down = true
	o.provider.Set(behaviour)
	began := time.Now()
	o.shows("circuit open: HTTP 503 from ")
	o.until(began.Add(o.lasts))
	behaviour.Down = false
	o.provider.Set(behaviour)
	o.lastUp = time.Now()
	o.over()

	o.few(o.provider.Stats().Down)
	met := map[string]bool{}
	for _, c := range o.provider.Calls() {
		if c.Status == http.StatusServiceUnavailable {
			met[c.Key] = true
		}
	}
	o.unspent(keysOf(met))
}

func keysOf(set map[string]bool) []string {
	var keys []string
	for k := range set {
		keys = append(keys, k)
	}
	return keys
}

// TestAProviderThatIsGone has a provider that refuses connections for some time.
func TestAProviderThatIsGone(t *testing.T) {
	t.Parallel()
	o := newOutage(t, 2500*time.Millisecond)
	at := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)) // one that no other connection takes while the provider is gone
	ln, err := provider.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	o.config = o.file("dispatcher.yaml", strings.ReplaceAll(read(t, o.config), o.url, "http://"+at))
	up := func() (down func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- o.provider.Serve(ctx, ln) }()
		return sync.OnceFunc(func() { cancel(); <-served })
	}
	down := up()
	t.Cleanup(func() { down() })
	o.serve()
	down()
	gone := time.Now()
	o.shows("connection refused, ")
	o.until(gone.Add(o.lasts))
	if ln, err = provider.Listen(at); err != nil {
		t.Fatal(err)
	}
	o.lastUp = time.Now()
	down = up()
	o.over()
	met := map[string]bool{}
	tries := 0
	for _, r := range o.runs {
		for _, m := range unsent.FindAllStringSubmatch(r.text(), -1) {
			met[m[1]] = true
			tries++
		}
	}
	o.few(tries)
	o.unspent(keysOf(met))
}

// unsent finds the jobs of calls that failed without an answer in a log.
var unsent = regexp.MustCompile(`msg=attempt .*job=(\S+) .*verdict=retry status=0 `)

// TestAProviderThatHangs has a provider that does not answer for some time. Many calls are under way when the dispatchers notice it, and no job loses an attempt.
func TestAProviderThatHangs(t *testing.T) {
	t.Parallel()
	o := newOutage(t, 2500*time.Millisecond)
	o.config = o.file("dispatcher.yaml", strings.ReplaceAll(read(t, o.config), "timeout: 5s", "timeout: 1s"))
	o.serve()
	behaviour := o.provider.Config()
	behaviour.Hang = 1
	o.provider.Set(behaviour)
	began := time.Now()
	o.shows("circuit open: no answer from ")
	o.until(began.Add(o.lasts))
	behaviour.Hang = 0
	o.provider.Set(behaviour)
	o.lastUp = time.Now()
	o.over()
	var met []string
	for _, c := range o.provider.Calls() {
		if c.Status == 0 {
			met = append(met, c.Key)
		}
	}
	if len(met) == 0 {
		t.Fatal("no call met it")
	}
	o.few(max(len(met)-100, 6)) // a time-out's worth of calls is under way before the first one is known to have failed
	o.unspent([]string{met[0], met[len(met)/4], met[len(met)/2], met[len(met)-1]})
}

// indigestible starts a gateway that answers 500 to certain jobs.
func (w *world) indigestible(bad func(id string) bool) (calls func(id string) int) {
	w.t.Helper()
	var mu sync.Mutex
	seen := map[string]int{}
	gateway := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		id := r.Header.Get("Idempotency-Key")
		mu.Lock()
		defer mu.Unlock()
		seen[id]++
		if bad(id) {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}))
	w.t.Cleanup(gateway.Close)
	w.config = w.file("dispatcher.yaml", strings.ReplaceAll(read(w.t, w.config), w.url, gateway.URL))
	return func(id string) int {
		mu.Lock()
		defer mu.Unlock()
		return seen[id]
	}
}

// TestAPoisonedJobDoesNotStopItsGateway has one job of many that always fails.
func TestAPoisonedJobDoesNotStopItsGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n    retry: {attempts: 4, first: 300ms}\n"+unhindered)
	const bad, jobs = "inv-00007", 400
	calls := w.indigestible(func(id string) bool { return id == bad })
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", jobs), "-q")
	w.dispatcher()
	w.dispatcher()
	if s := w.settled(30 * time.Second); s.Done != jobs-1 || s.Parked["exhausted"] != 1 {
		t.Errorf("done %d of %d, parked %v", s.Done, jobs, s.Parked)
	}
	if n := calls(bad); n != 4 {
		t.Errorf("it was called %d times, want its 4 attempts", n)
	}
	for _, r := range w.runs {
		if strings.Contains(r.text(), "circuit open") {
			t.Error("one job opened the circuit")
		}
	}
	parked := w.ok("dispatcher", "dlq", "list", "-o", "json")
	if !strings.Contains(parked, `"attempts":4`) || !strings.Contains(parked, "HTTP 500") {
		t.Errorf("parked as %s", parked)
	}
}

// TestManyPoisonedNeighboursDoNotStopTheirGatewayForEver has twenty such jobs in a row. That looks like an outage, but not again and again.
func TestManyPoisonedNeighboursDoNotStopTheirGatewayForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n    retry: {attempts: 3, first: 300ms}\n    circuit: {max: 200ms}\n"+unhindered)
	const jobs = 200
	w.indigestible(func(id string) bool { return id >= "inv-00011" && id <= "inv-00030" })
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", jobs), "-q")
	w.dispatcher()
	w.dispatcher()
	if s := w.settled(40 * time.Second); s.Done != jobs-20 || s.Parked["exhausted"] != 20 {
		t.Errorf("done %d of %d, parked %v", s.Done, jobs, s.Parked)
	}
	opened := 0
	for _, r := range w.runs {
		opened += strings.Count(r.text(), "circuit open:")
	}
	if opened < 1 || opened > 40 { // how its calls mix with the others depends on the machine
		t.Errorf("the circuit opened %d times", opened)
	}
	t.Logf("the circuit opened %d times", opened)
}
