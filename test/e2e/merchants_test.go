package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// A platform pays for three merchants through one account. One has a crowd of jobs, and the provider tells it to wait. That holds this merchant alone: the other two continue, and
// an urgent job of one of them is called before all that wait.
func TestOneOfThreeMerchantsIsToldToWait(t *testing.T) {
	t.Parallel()
	const crowd, few = 60, 30
	limit, err := provider.ParseLimitBy("header:Stripe-Account=10/s")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, provider.Config{Limits: []provider.Limit{limit}, RetryAfter: time.Second}, `    leak: {limits: [30/s], jitter: 10ms}
    lanes: {key: payload.account, header: {Stripe-Account: "{lane}"}, strip: true}
    priority: {classes: [urgent, normal], default: normal}
    answers: {rules: [{status: 429, then: hold, scope: lane}]}
`)
	var jobs strings.Builder
	for i := range crowd {
		fmt.Fprintf(&jobs, `{"id":"acct_1-%03d","payload":{"amount":100,"account":"acct_1"}}`+"\n", i)
	}
	w.ok("enqueue", "-g", "stripe", "-f", w.file("crowd.ndjson", jobs.String()), "-q")
	api := "http://" + w.listening()
	testkit.Eventually(t, 30*time.Second, "a 429", func() bool { return w.provider.Stats().TooMany > 0 })
	in := 0 // calls when the urgent job was in
	for i := range few {
		if i == few/3 {
			w.post(api, `{"id":"urgent","priority":"urgent","payload":{"amount":100,"account":"acct_2"}}`)
			in = w.provider.Stats().Calls
		}
		// One by one, so that however late they are, these two merchants never have more than the provider allows.
		w.post(api, fmt.Sprintf(`{"id":"acct_%d-%03d","payload":{"amount":100,"account":"acct_%[1]d"}}`, 2+i%2, i))
		w.until(time.Now().Add(150 * time.Millisecond))
	}
	testkit.Eventually(t, 30*time.Second, "the urgent job's call", func() bool {
		return slices.ContainsFunc(w.provider.Calls(), func(c provider.CallLine) bool { return c.Key == "urgent" })
	})
	if at := slices.IndexFunc(w.provider.Calls(), func(c provider.CallLine) bool { return c.Key == "urgent" }); at-in > 30 {
		t.Errorf("%d calls were made before the urgent job's, %d of them before it was in", at, in)
	}
	if s := w.settled(2 * time.Minute); s.Done != crowd+few+1 {
		t.Errorf("done %d, parked %v", s.Done, s.Parked)
	}
	told, meanwhile, last := map[string]int{}, 0, time.Time{}
	for _, c := range w.provider.Calls() {
		at := time.UnixMicro(c.At)
		if c.Status == 429 {
			told[c.Key[:6]]++
			last = at
		} else if since := at.Sub(last); since > 300*time.Millisecond && since < 900*time.Millisecond { // what was bound before is called by then, and the merchant waits for a second
			meanwhile++
		}
	}
	if meanwhile == 0 {
		t.Error("nobody was called while one merchant had to wait")
	}
	if told["acct_1"] == 0 || len(told) != 1 {
		t.Errorf("told to wait: %v", told)
	}
	if s := w.provider.Stats(); s.Charged != crowd+few+1 || s.ChargedTwice != 0 {
		t.Errorf("%d were charged, %d twice", s.Charged, s.ChargedTwice)
	}
	w.audited("stripe")
}
