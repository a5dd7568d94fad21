package e2e

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// listening starts a dispatcher that serves HTTP, and returns its address.
func (w *world) listening() string {
	w.t.Helper()
	at := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(w.t))
	w.dispatcher("--listen", at)
	testkit.Eventually(w.t, 20*time.Second, "the dispatcher to answer", func() bool {
		resp, err := http.Get("http://" + at + "/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	return at
}

func fetch(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %s, %v", address, resp.Status, err)
	}
	return string(body)
}

// TestTheMetricsThatAreAskedForAreThere checks that a dispatcher that has made a call shows every metric of the alerts and the dashboard.
func TestTheMetricsThatAreAskedForAreThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n    amount: {field: amount, currency: currency}\n    admission: {limits: [1/h], burst: 1}\n    replay: manual\n"+
		"    lookup: {url: \"/lookups/{id}\", schedule: [1h], matches: {job: \"{id}\"}, answers: [{body: {status: succeeded}, then: done}]}\n"+
		"    outcomes: {readers: [ledger]}\n    lanes: {key: lane}\n")
	w.do("enqueue", "-g", "stripe", "-f", w.jobs("two.ndjson", 2), "-q") // one is parked, with its money
	at, shown := "http://"+w.listening()+"/metrics", ""
	testkit.Eventually(t, 20*time.Second, "the first call to be counted", func() bool {
		shown = fetch(t, at)
		return strings.Contains(shown, "\nspillway_job_duration_seconds_bucket")
	})
	for _, file := range []string{"../../deploy/prometheus/alerts.yml", "../../deploy/grafana/dashboards/spillway.json"} {
		asked := regexp.MustCompile(`spillway_[a-z_]+`).FindAllString(read(t, file), -1)
		if len(asked) == 0 {
			t.Errorf("%s asks for nothing", file)
		}
		for _, name := range asked {
			if !strings.Contains(shown, "\n"+name+"{") && !strings.Contains(shown, "\n"+name+" ") {
				t.Errorf("%s asks for %s, which a dispatcher does not show", file, name)
			}
		}
	}
}
