package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// A program of a newer format starts to use a gateway while a dispatcher of this format calls it. The dispatcher stops calling and accepts no jobs, other programs of its version don't
// start, and all say why. When the older format is back, the dispatcher continues, and nothing is lost.
func TestANewerFormatStopsADispatcher(t *testing.T) {
	t.Parallel()
	a := newArchive(t, provider.Config{Limits: perSecond100}, keptKeys)
	a.offer("before", 400)
	r := a.dispatcher("--listen", "127.0.0.1:0")
	at := "http://" + r.address()
	testkit.Eventually(t, 20*time.Second, "some calls", func() bool { return a.provider.Stats().Calls > 50 })
	c, alive, ctx := a.client(), redisdb.NewKeys("stripe").Alive(), t.Context()
	format := func(number string) {
		t.Helper()
		if err := c.HSet(ctx, alive, "format", number, "v", time.Now().UnixMicro()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	format("2")
	testkit.Eventually(t, 20*time.Second, "it to be out of service", func() bool {
		code, body := get(t, at+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "of format 2")
	})
	calls := a.provider.Stats().Calls
	answer, err := http.Post(at+"/v1/gateways/stripe/jobs", "application/json", strings.NewReader(`{"id":"late"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "newer version") {
		t.Errorf("a job was answered %d %s", answer.StatusCode, body)
	}
	a.more = []string{"STRIPE_KEY=" + canary}
	for _, args := range [][]string{{"dispatcher", "run", "--listen", ""}, {"dispatcher", "status"}, {"enqueue", "-g", "stripe", "-f", a.jobs("more", 3)}} {
		if got := a.do(args[0], args[1:]...); got.code != 2 || !strings.Contains(got.err, "is of format 2") || !strings.Contains(got.err, "docs/upgrading.md") {
			t.Errorf("%v: exit code %d\n%s%s", args, got.code, got.out, got.err)
		}
	}
	if n := a.provider.Stats().Calls; n > calls+5 || n >= 400 { // one whose attempt was open may have waited for a processor
		t.Errorf("%d calls were made, and %d before it was out of service", n, calls)
	}
	if !strings.Contains(r.text(), "is of format 2, written by a newer version") {
		t.Errorf("the log does not say it:\n%s", tail(r.text()))
	}
	format(redisdb.Format)
	if s := a.settled(30 * time.Second); s.Done != 400 {
		t.Errorf("done %d of 400, parked %v", s.Done, s.Parked)
	}
	if seen := a.strict(); seen.Charged != 400 {
		t.Errorf("%d charged", seen.Charged)
	}
	r.stop()
	a.audited("stripe")
}
