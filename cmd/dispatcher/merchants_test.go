package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/testkit"
)

// The log names the first gateways that a run serves, and says how many more there are.
func TestRunGreetsSomeOfThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{greeted: "", greeted + 3: "gateways=3 "} {
		var log strings.Builder
		served{gateways: make([]config.Gateway, n), log: slog.New(slog.NewTextHandler(&log, nil))}.greet("127.0.0.1:9400")
		if text := log.String(); strings.Count(text, "msg=serving gateway=") != greeted || strings.Contains(text, "more gateways") != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%d gateways:\n%s", n, text)
		}
	}
}

// shops is a run whose gateways come from a merchants file.
type shops struct {
	*running
	names []string
}

func newShops(t *testing.T, n int) *shops {
	t.Helper()
	s := &shops{running: newRunning(t)}
	for range n {
		s.names = append(s.names, testkit.Gateway(t))
	}
	s.write("dispatcher.yaml", fmt.Sprintf(`redis: %s
templates:
  shop:
    request: {url: "%s/", key: {prefix: "{name}:"}, headers: {Authorization: "Bearer ${file:keys}"}}
    leak: {limits: [200/s]}
merchants: {like: shop, file: shops.csv}
`, testkit.Redis(t), s.urls[0]))
	s.write("keys", oldKey)
	return s
}

// open writes the merchants file with the first n shops.
func (s *shops) open(n int) {
	s.t.Helper()
	s.write("shops.csv", "name,leak.limits\n"+strings.Join(s.names[:n], ",\n")+",\n")
}

// again makes the run read its files again, and waits for a text in the log.
func (s *shops) again(says string) {
	s.t.Helper()
	s.reload()
	s.says(says, 1)
}

func (s *shops) page(path string) string {
	s.t.Helper()
	resp, err := http.Get(s.url() + path)
	s.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	s.must(err)
	return string(text)
}

// posted posts a job to a shop, and returns the status.
func (s *shops) posted(shop int, id string) int {
	s.t.Helper()
	resp, err := http.Post(s.url()+"/v1/gateways/"+s.names[shop]+"/jobs", "application/json", strings.NewReader(`{"id":"`+id+`"}`))
	s.must(err)
	resp.Body.Close()
	return resp.StatusCode
}

// Each line of the file is a merchant. A run serves a new line from the next SIGHUP on, and a deleted line until the next SIGHUP. The console, the
// metrics and the status follow. The test is not parallel: SIGHUP reaches all runs of this process.
func TestMerchantsComeAndGo(t *testing.T) {
	s := newShops(t, 3)
	s.open(2)
	s.run()
	if got := s.posted(2, "early"); got != http.StatusNotFound {
		t.Errorf("a job of a merchant who is not in the file yet: %d", got)
	}
	s.open(3)
	s.again("gateways_added=1")
	for shop := range s.names {
		if got := s.posted(shop, "j1"); got != http.StatusAccepted {
			t.Errorf("a job of merchant %d: %d", shop, got)
		}
	}
	testkit.Eventually(t, 30*time.Second, "a call for each merchant", func() bool { return s.lock.calls(oldKey) == 3 })
	shown := func() (in []string) {
		for _, path := range []string{"/", "/metrics", "/v1/status"} {
			if strings.Contains(s.page(path), s.names[2]) {
				in = append(in, path)
			}
		}
		return in
	}
	testkit.EventuallyEvery(t, 100*time.Millisecond, time.Minute, "the new merchant in the console, the metrics and the status", func() bool { return len(shown()) == 3 })
	s.open(1)
	s.again("gateways_removed=2")
	testkit.EventuallyEvery(t, 100*time.Millisecond, time.Minute, "no trace of the merchant", func() bool { return len(shown()) == 0 })
	if got := s.posted(2, "late"); got != http.StatusNotFound {
		t.Errorf("a job of a merchant who is gone: %d", got)
	}
	s.write("shops.csv", "name,leak.limits\n"+s.names[0]+",5/x\n")
	s.again("shops.csv:2:")
	if got := s.posted(0, "j2"); got != http.StatusAccepted {
		t.Errorf("a job of the merchant who stayed: %d", got)
	}
	testkit.Eventually(t, 30*time.Second, "its call", func() bool { return s.lock.calls(oldKey) == 4 })
}

// Run was started with -g for a gateway. A file without that gateway is refused, and the gateway is still served.
func TestAGatewayThatWasNamedCannotGo(t *testing.T) {
	s := newShops(t, 2)
	s.open(2)
	s.only = []string{"-g", s.names[1]}
	s.run()
	s.open(1)
	s.again("started with -g for a gateway that is gone")
	if got := s.posted(1, "j1"); got != http.StatusAccepted {
		t.Errorf("a job of the gateway: %d", got)
	}
	testkit.Eventually(t, 30*time.Second, "its call", func() bool { return s.lock.calls(oldKey) == 1 })
	s.open(2)
	s.again(`msg="configuration reloaded"`)
}
