package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// closing starts a gateway that closes each connection after its answer, as many do: every call needs a new descriptor.
func (w *world) closing() *atomic.Int64 {
	w.t.Helper()
	var calls atomic.Int64
	gateway := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls.Add(1)
	}))
	gateway.Config.SetKeepAlivesEnabled(false)
	gateway.Start()
	w.t.Cleanup(gateway.Close)
	w.config = w.file("dispatcher.yaml", strings.ReplaceAll(read(w.t, w.config), w.url, gateway.URL))
	return &calls
}

// descriptors sets how many descriptors a dispatcher may have. It keeps those that it has.
func (r *run) descriptors(n int) {
	r.t.Helper()
	pid := strconv.Itoa(r.cmd.Process.Pid)
	if out, err := exec.Command("prlimit", "--pid", pid, fmt.Sprintf("--nofile=%d:", n)).CombinedOutput(); err != nil {
		r.t.Fatalf("prlimit: %v: %s", err, out)
	}
}

// asked returns a function that asks a dispatcher over one connection that stays open: it works also when the dispatcher can't accept new ones.
func (r *run) asked() func(path string) (int, string) {
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxConnsPerHost: 1}}
	r.t.Cleanup(client.CloseIdleConnections)
	at := "http://" + r.address()
	return func(path string) (int, string) {
		r.t.Helper()
		resp, err := client.Get(at + path)
		if err != nil {
			r.t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			r.t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
}

// TestOneProcessWithoutDescriptorsStopsNobodyElse leaves one of two dispatchers without descriptors. It takes itself out of service and says so: it uses no more of the
// gateway's slots, apart from a test now and then. The other one continues, and nobody holds the gateway.
func TestOneProcessWithoutDescriptorsStopsNobodyElse(t *testing.T) {
	t.Parallel()
	const jobs, rate = 1200, 40
	w := newWorld(t, provider.Config{}, fmt.Sprintf("    leak: {limits: [%d/s]}\n", rate)+unhindered)
	calls := w.closing()
	starved, healthy := w.dispatcher("--listen", "127.0.0.1:0"), w.dispatcher("--listen", "127.0.0.1:0")
	ask, askHealthy := starved.asked(), healthy.asked()
	for _, one := range []func(string) (int, string){ask, askHealthy} {
		testkit.Eventually(t, 20*time.Second, "both to be ready", func() bool { code, _ := one("/readyz"); return code == http.StatusOK })
	}
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", jobs), "-q")
	testkit.Eventually(t, 20*time.Second, "calls by the one that is to be starved", func() bool { return done(ask) > 10 })

	starved.descriptors(3)
	var said string
	testkit.Eventually(t, 20*time.Second, "it to be not ready", func() bool {
		code, body := ask("/readyz")
		said = body
		return code == http.StatusServiceUnavailable
	})
	if !strings.Contains(said, "stripe") || !strings.Contains(said, "too many open files") {
		t.Errorf("it is not ready, and says %s", said)
	}
	const some = 6 * rate
	_, metrics := ask("/metrics")
	before, faults := calls.Load(), number(metrics, "spillway_local_faults_total")
	testkit.Eventually(t, 30*time.Second, "the other one to go on", func() bool { return calls.Load() >= before+some })
	_, metrics = ask("/metrics")
	if more := number(metrics, "spillway_local_faults_total") - faults; more > some/4 { // in service, it would use as many slots as the other one
		t.Errorf("while the other one made %d calls, the process without descriptors tried %v", some, more)
	}
	if code, body := askHealthy("/readyz"); code != http.StatusOK {
		t.Errorf("the healthy one answers %d: %s", code, body)
	}
	if _, body := ask("/metrics"); number(body, "spillway_local_faults_total") == 0 || number(body, "spillway_out_of_service") != 1 {
		t.Errorf("its metrics do not say so:\n%s", body)
	}

	starved.descriptors(1024)
	testkit.Eventually(t, 20*time.Second, "it to be ready again", func() bool { code, _ := ask("/readyz"); return code == http.StatusOK })
	from := done(ask)
	testkit.Eventually(t, 20*time.Second, "it to call again", func() bool { return done(ask) > from })
	w.noOutage(jobs)
}

// noOutage checks that all jobs are done in the end, and that no dispatcher took the machine's fault for the gateway's.
func (w *world) noOutage(jobs int) {
	w.t.Helper()
	if s := w.settled(90 * time.Second); s.Done != jobs {
		w.t.Errorf("%d of %d done, parked %v", s.Done, jobs, s.Parked)
	}
	said := 0
	for _, r := range w.runs {
		if strings.Contains(r.text(), "circuit open") {
			w.t.Error("a fault of one machine opened the circuit")
		}
		said += strings.Count(r.text(), "LimitNOFILE")
	}
	if said != 1 || strings.Contains(w.runs[1].text(), "LimitNOFILE") {
		w.t.Errorf("the logs say %d times what to do, want once, by the starved one", said)
	}
}

// done returns how many calls of a dispatcher succeeded.
func done(ask func(string) (int, string)) float64 {
	_, body := ask("/metrics")
	return number(body, `spillway_calls_total{gateway="stripe",verdict="done"}`)
}

// number returns the value of a metric, with or without labels; 0 if there is none.
func number(metrics, name string) (n float64) {
	if m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `(?:\{[^}]*\})? (\S+)$`).FindStringSubmatch(metrics); m != nil {
		_, _ = fmt.Sscan(m[1], &n)
	}
	return n
}
