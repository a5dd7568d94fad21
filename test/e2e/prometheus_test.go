//go:build monitoring

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

func TestPromtoolIsContentWithTheMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n")
	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = strings.NewReader(fetch(t, "http://"+w.listening()+"/metrics"))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// TestPrometheusCountsWhatTheProviderCounts has a real Prometheus scrape two dispatchers at work.
func TestPrometheusCountsWhatTheProviderCounts(t *testing.T) {
	t.Parallel()
	n := 600
	if *soak > 0 {
		n = int(100 * soak.Seconds())
	}
	w := newWorld(t, provider.Config{Limits: perSecond100, Fail: 0.02, Decline: 0.05}, "    leak: {limits: [100/s], jitter: 10ms}\n    retry: {attempts: 5, first: 200ms, max: 1s}\n")
	workers := []string{w.listening(), w.listening()}
	conf := w.file("prometheus.yml", fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: spillway\n    static_configs: [{targets: [%q, %q]}]\n", workers[0], workers[1]))
	port := testkit.FreePort(t)
	server := exec.CommandContext(t.Context(), "prometheus", "--config.file="+conf, "--storage.tsdb.path="+t.TempDir(), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port))
	if err := testkit.Start(server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	query := func(q string) float64 {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/query?query=%s", port, url.QueryEscape(q)))
		if err != nil {
			return -1
		}
		defer resp.Body.Close()
		var answer struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		if json.NewDecoder(resp.Body).Decode(&answer) != nil || len(answer.Data.Result) != 1 {
			return -1
		}
		v, _ := strconv.ParseFloat(fmt.Sprint(answer.Data.Result[0].Value[1]), 64)
		return v
	}
	testkit.Eventually(t, 30*time.Second, "both to be scraped", func() bool { return query(`sum(up{job="spillway"})`) == 2 })
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("november.ndjson", n), "-q")
	w.settled(time.Duration(n/100)*time.Second + time.Minute)
	calls := w.strict().Calls
	testkit.Eventually(t, 10*time.Second, fmt.Sprint("Prometheus to have counted ", calls, " calls"), func() bool {
		return query(`sum(spillway_calls_total{job="spillway"})`) == float64(calls)
	})
	s := w.status()
	testkit.Eventually(t, 10*time.Second, fmt.Sprint("Prometheus to know of ", s.Done, " jobs done"), func() bool {
		return query(`max(spillway_done_jobs_total{job="spillway"})`) == float64(s.Done)
	})
	if refused := query(`max(spillway_parked_jobs{job="spillway", reason="refused"})`); refused != float64(s.Parked["refused"]) {
		t.Errorf("Prometheus knows of %v jobs refused, status of %v", refused, s.Parked)
	}
	t.Logf("%d calls, as many in Prometheus; %d done, %v parked", calls, s.Done, s.Parked)
}
