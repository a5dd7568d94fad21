package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

const (
	crowdGateways = 3000
	crowdBatches  = 500
)

// crowd is a rig with thousands of gateways, some of which have jobs of hundreds of batches. Nobody serves them but a dispatcher for two.
func crowd(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	gateway := httptest.NewServer(http.HandlerFunc(each))
	t.Cleanup(gateway.Close)
	on := testkit.Server(t)
	var text strings.Builder
	fmt.Fprintf(&text, "redis: %s\ndefaults:\n  amount: {field: amount, currency: currency}\n  leak: {limits: [5/s]}\n  replay: manual\ngateways:\n", on.URL())
	for i := range crowdGateways {
		fmt.Fprintf(&text, "  merchant-%04d:\n    request: {url: \"%s/cards\", idempotency_prefix: m%d-}\n", i, gateway.URL, i)
	}
	r.write(text.String())
	var lines strings.Builder
	for b := range crowdBatches {
		for j := range 3 {
			fate := []string{"pay", "decline", "broken"}[(b+j)%3]
			fmt.Fprintf(&lines, `{"id":"b%03d-%d","gateway":"merchant-%04d","batch":"2026-11 merchants %03d, direct debits","payload":{"amount":%d,"currency":%q,"fate":%q}}`+"\n",
				b, j, (b*7+j)%crowdGateways, b, 1999+b*371+j, []string{"EUR", "USD", "JPY"}[b%3], fate)
		}
	}
	r.feed("merchant-0000", lines.String())
	r.serve("-g", "merchant-0000", "-g", "merchant-0007")
	now := time.Now()
	_, err := on.Client().Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 200 {
			hours := redisdb.NewKeys(fmt.Sprintf("merchant-%04d", i)).Hours()
			for h := range int64(24) {
				p.HSet(t.Context(), hours, fmt.Sprint(now.Unix()/3600-h, " 200 done"), (h*37+int64(i)*11)%400, fmt.Sprint(now.Unix()/3600-h, " 402 refused"), (h*5+int64(i))%23)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.console()
	return r
}

// TestTheConsoleOfACrowd looks at pages with thousands of gateways and hundreds of batches: how they look, and that they come soon.
func TestTheConsoleOfACrowd(t *testing.T) {
	r := crowd(t)
	r.browser()
	for _, page := range []struct{ name, path, says string }{
		{"crowd", "/", "3\u202f000 gateways"},
		{"crowd-page", "/?sort=queued&page=2", "51 to 100"},
		{"crowd-filter", "/?name=merchant-00&state=unserved", "3\u202f000 gateways"},
		{"crowd-batches", "/batches", "2026-11 merchants"},
		{"crowd-batch", "/batches/2026-11%20merchants%20007,%20direct%20debits", "merchant-"},
		{"crowd-hours", "/hours", "By gateway"},
		{"crowd-health", "/health", "Redis and the file"},
		{"crowd-gateway", "/gateways/merchant-0007", "Dead letters"},
		{"crowd-answers", "/gateways/merchant-0007/answers", "All calls"},
		{"crowd-search", "/jobs?id=b01*", "b010-0"},
		{"search", "/search", "Field of the payload"},
		{"runbook", "/runbook", "Runbook"},
		{"not-found", "/jobs/nobody", "nobody"},
	} {
		begun := time.Now()
		r.do(page.name, chromedp.Navigate(r.url+page.path))
		r.sees(page.says)
		t.Logf("%s after %s", page.path, time.Since(begun).Round(time.Millisecond))
		r.pictures(page.name, []int64{390, 1600}, []string{"light"}) // pages as long as these take their time
	}
	r.unfolds()
}

// unfolds checks that a phone shows the other rows of a page when it is asked to, and still does when the page has brought itself up to date.
func (r *rig) unfolds() {
	r.t.Helper()
	const first, folded = "merchants 480,", "merchants 450,"
	r.do("a phone", chromedp.EmulateViewport(390, 900), chromedp.Navigate(r.url+"/batches"))
	r.sees(first)
	if strings.Contains(r.text(), folded) {
		r.t.Error("all rows are shown on a phone")
	}
	r.do("the other rows", chromedp.Click(chromedp.CSS(".unfold input"), chromedp.NodeVisible))
	r.sees(folded)
	live := func() string {
		text, _ := ask(r, chromedp.Evaluate[string](`document.getElementById("live").textContent`))
		return text
	}
	before := live()
	testkit.Eventually(r.t, 2*time.Minute, "the page to bring itself up to date", func() bool {
		now := live()
		return now != before && strings.HasPrefix(now, "Live.")
	})
	if !strings.Contains(r.text(), folded) {
		r.t.Error("the rows that were asked for are gone")
	}
}
