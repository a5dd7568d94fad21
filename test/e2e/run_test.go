package e2e

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

const plain = "    leak: {limits: [100/s]}\n"

func TestABrokenConfigurationIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ settings, want string }{
		"wrong unit":      {"    leak: {limits: [100/x]}\n", `dispatcher.yaml:8:21: gateways.stripe.leak.limits[0]: "100/x"`},
		"unknown key":     {plain + "    leek: {}\n", `dispatcher.yaml:9:5: gateways.stripe.leek: `},
		"unset variable":  {plain + "    dedupe: ${NOT_SET_ANYWHERE}\n", "NOT_SET_ANYWHERE"},
		"negative number": {plain + "    retry: {attempts: -1}\n", "gateways.stripe.retry.attempts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, provider.Config{}, tc.settings)
			for _, cmd := range [][]string{{"dispatcher", "status"}, {"enqueue", "-g", "stripe", "-f", w.jobs("f", 1)}} {
				r := w.do(cmd[0], cmd[1:]...)
				if r.code != 2 || !strings.Contains(r.err, tc.want) || r.out != "" {
					t.Errorf("%v: exit code %d, want 2 with %q:\n%s%s", cmd, r.code, tc.want, r.out, r.err)
				}
			}
		})
	}
}

func TestRunNeedsTheGatewaysSecretsAndTheOthersDoNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, plain)
	if r := w.do("dispatcher", "run"); r.code != 2 || !strings.Contains(r.err, "STRIPE_KEY") {
		t.Errorf("run without STRIPE_KEY: exit code %d\n%s", r.code, r.err)
	}
	w.ok("dispatcher", "status")
}

func TestUnknownNamesAre4(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, plain)
	for _, args := range [][]string{{"status", "-g", "adyen"}, {"job", "x", "-g", "adyen"}, {"dlq", "list", "-g", "adyen"}, {"pause", "-g", "adyen"}} {
		if r := w.do("dispatcher", args...); r.code != 4 || !strings.Contains(r.err, `no gateway "adyen"`) || !strings.Contains(r.err, "stripe") {
			t.Errorf("%v: exit code %d\n%s", args, r.code, r.err)
		}
	}
	if r := w.do("enqueue", "-g", "adyen", "-f", w.jobs("f", 1)); r.code != 4 {
		t.Errorf("enqueue -g adyen: exit code %d\n%s", r.code, r.err)
	}
}

// TestAStopBeforeTheStartIsAStop tells a dispatcher to stop while it waits for a Redis that says nothing.
func TestAStopBeforeTheStartIsAStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, plain)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r := w.dispatcher("--redis", "redis://"+silent.Addr().String()+"/0")
	if _, err := silent.Accept(); err != nil {
		t.Fatal(err)
	}
	r.stop()
}

func TestRedisAwayAtTheStartIs5(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, plain)
	w.redis.Stop()
	file := w.jobs("f", 3)
	for _, cmd := range [][]string{{"dispatcher", "status"}, {"dispatcher", "dlq", "list"}, {"enqueue", "-g", "stripe", "-f", file}} {
		r := w.do(cmd[0], cmd[1:]...)
		if r.code != 5 || strings.Contains(r.err, "goroutine ") || !strings.Contains(r.err, "Redis") {
			t.Errorf("%v: exit code %d, want 5 and a word on Redis\n%s", cmd, r.code, r.err)
		}
	}
	w.redis.Restart()
	if r := decode[report](t, w.ok("enqueue", "-g", "stripe", "-f", file, "-o", "json")); r.Enqueued != 3 {
		t.Errorf("when it is back: %+v", r)
	}
}

func TestAnEvictingRedisIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, plain)
	evicting := testkit.Server(t, "--maxmemory-policy", "allkeys-lru")
	r := w.dispatcher("--redis", evicting.URL())
	err := r.cmd.Wait()
	if err == nil || !strings.Contains(r.text(), "noeviction") {
		t.Errorf("run on an evicting Redis: %v\n%s", err, r.text())
	}
}

var listening = regexp.MustCompile(`listen=(127\.0\.0\.1:\d+)`)

// address waits until the dispatcher says where it listens.
func (r *run) address() string {
	r.t.Helper()
	var at string
	testkit.Eventually(r.t, 30*time.Second, "the dispatcher to listen", func() bool {
		m := regexp.MustCompile(`msg=serving.*`).FindString(r.text())
		if found := listening.FindStringSubmatch(m); found != nil {
			at = found[1]
		}
		return at != ""
	})
	return at
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestTwoSignalsAtOnceAreOne stops a dispatcher as timeout(1) does, which signals its child and then the child's group: calls under way finish.
func TestTwoSignalsAtOnceAreOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{Service: time.Second}, plain)
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", 300), "-q")
	r := w.dispatcher()
	testkit.Eventually(t, 20*time.Second, "calls under way", func() bool { return w.provider.Stats().Calls > 20 })
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	r.stop()
	if s := w.status(); s.InFlight != 0 || s.Done == 0 || !strings.Contains(r.text(), "msg=stopped") {
		t.Errorf("%d calls were cut off, %d done; the log ends\n%s", s.InFlight, s.Done, tail(r.text()))
	}
}

func TestMetricsAndHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, plain)
	r := w.dispatcher("--listen", "127.0.0.1:0")
	at := "http://" + r.address()
	if code, body := get(t, at+"/metrics"); code != 200 || !strings.Contains(body, `spillway_calls_total{gateway="stripe",verdict="done"} 0`) {
		t.Errorf("metrics: %d\n%s", code, body)
	}
	testkit.Eventually(t, 20*time.Second, "readiness", func() bool { code, _ := get(t, at+"/readyz"); return code == 200 })
	w.redis.Stop()
	if code, body := get(t, at+"/readyz"); code != 503 || !strings.Contains(body, `"status":503`) {
		t.Errorf("readyz without Redis: %d %s", code, body)
	}
	if code, _ := get(t, at+"/healthz"); code != 200 {
		t.Errorf("healthz without Redis: %d", code)
	}
	w.redis.Restart()

	second := w.dispatcher("--listen", strings.TrimPrefix(at, "http://"))
	if err := second.cmd.Wait(); err == nil || !strings.Contains(second.text(), "is taken") || second.cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("a taken port: %v\n%s", err, second.text())
	}
	open := w.dispatcher("--listen", "0.0.0.0:0")
	if err := open.cmd.Wait(); err == nil || !strings.Contains(open.text(), "token") || open.cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("open to others without a token: %v\n%s", err, open.text())
	}
}

func TestTheDefaultPortMovesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, plain)
	first, second := w.dispatcherAsIs(), w.dispatcherAsIs()
	if a, b := first.address(), second.address(); a == b {
		t.Errorf("two runs listen on %s", a)
	}
}
