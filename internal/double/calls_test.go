package double

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// Parameters are checked before the key: a call that is refused for them leaves nothing.
func TestBadParametersAreRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ gateway, kind, body, says string }{
		{"adyen/v72", "application/json", `{"amount":{"value":12.5,"currency":"EUR"}}`, `amount.value: "12.5" is not an amount`},
		{"adyen/v72", "application/json", `{"amount":{"value":"1250","currency":"EUR"}}`, "has the wrong JSON type"},
		{"adyen/v72", "application/json", `{"amount":{"value":1250}}`, "there is no amount.currency"},
		{"adyen/v72", "application/json", `{"reference":"inv-1"}`, "there is no amount.value"},
		{"adyen/v72", "application/json", `{"amount":`, "the body is not JSON"},
		{"adyen/v72", "application/json", `{} {}`, "more than one JSON value"},
		{"adyen/v72", "application/x-www-form-urlencoded", `amount[value]=1250`, "the body is a form"},
		{"mollie/v2", "application/json", `{"amount":{"value":10.00,"currency":"EUR"}}`, "has the wrong JSON type"},
		{"mollie/v2", "application/json", `{"amount":{"value":"-1","currency":"EUR"}}`, `"-1" is not an amount`},
		{"stripe/v1", "application/json", `{"amount":1250,"currency":"eur"}`, "a form is wanted"},
		{"stripe/v1", "application/x-www-form-urlencoded", "", "there is no amount"},
	} {
		r := newRig(t, c.gateway, Options{})
		req := r.request(charge{job: "inv-1", key: "k1"})
		req.Header.Set("Content-Type", c.kind)
		req.Body, req.ContentLength = http.NoBody, 0
		req = req.Clone(context.Background())
		if c.body != "" {
			bad := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
			req.Body, req.ContentLength = bad.Body, bad.ContentLength
		}
		got := r.do(req)
		if reason := got.header.Get("X-Double-Reason"); got.status/100 != 4 || !strings.Contains(reason, c.says) {
			t.Errorf("%s: %s: %d %q, want %q", c.gateway, c.body, got.status, reason, c.says)
		}
		r.want("the same key, put right", r.pay(charge{job: "inv-1", key: "k1"}), r.table.Answers["paid"].Status)
	}
	// Wise has the amount in the quote, and PayPal captures everything without an amount.
	for _, gateway := range []string{"wise/v1", "paypal/payments-v2"} {
		r := newRig(t, gateway, Options{})
		req := r.request(charge{job: "inv-1", key: oneKey})
		body := fmt.Sprintf(`{"customerTransactionId":%q}`, oneKey)
		req.Body, req.ContentLength = httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)).Body, int64(len(body))
		r.want(gateway+" without an amount", r.do(req), r.table.Answers[r.table.Normal].Status)
	}
}

func TestListsAreWalked(t *testing.T) {
	t.Parallel()
	r := newRig(t, "gocardless/v1", Options{})
	for i := range 5 {
		r.pay(charge{job: fmt.Sprint("inv-", i), key: fmt.Sprint("k", i)})
	}
	first := r.get("/payments?limit=2")
	r.want("the newest two", first, 200, "PM00000005", "PM00000004")
	second := r.get("/payments?limit=2&after=PM00000004")
	r.want("the next two", second, 200, "PM00000003", "PM00000002")
	if strings.Contains(first.body, "PM00000003") || strings.Contains(second.body, "PM00000004") || strings.Contains(second.body, "PM00000001") {
		t.Errorf("%s, then %s", first.body, second.body)
	}
	r.want("all", r.get("/payments"), 200, "PM00000001", "PM00000005")
	r.want("nothing is there", r.get("/mandates"), 404)
	late := newRig(t, "paypal/orders-v2", Options{})
	late.pay(charge{job: "inv-1", key: "k1"})
	late.hands.advance(3*time.Hour - 1)
	late.want("within three hours", late.get("/v1/reporting/transactions"), 200, `"transaction_details":[]`)
	late.hands.advance(1)
	late.want("after them", late.get("/v1/reporting/transactions"), 200, `"invoice_id":"inv-1"`)
	search := newRig(t, "checkout/v1", Options{})
	search.want("a search for nothing", search.get("/payments"), 422)
}

// Limits use the arrival times of calls, in whatever order the calls are handled.
func TestLimitsGoByTheArrival(t *testing.T) {
	t.Parallel()
	r := newRig(t, "razorpay/v1", Options{}) // 5/s
	began := r.hands.Now()
	status := func(n int, at time.Duration) int {
		req := r.request(charge{job: fmt.Sprint("inv-", n), key: fmt.Sprint("key-", n)})
		seen := httptest.NewRecorder()
		r.ServeHTTP(seen, req.WithContext(WithArrival(req.Context(), began.Add(at))))
		return seen.Code
	}
	for i, at := range []time.Duration{900, 300, 1100, 100, 500} { // five, and none of them out of order for its window
		if got := status(i, at*time.Millisecond); got != 200 {
			t.Errorf("at %d ms: %d", at, got)
		}
	}
	for _, c := range []struct {
		at   time.Duration
		want int
	}{
		{1099, 200}, // with those at 100, 300, 500 and 900; and five are in the window that ends at 1100
		{1098, 429}, // it would be the sixth of that one
		{1299, 429}, // after 300, 500, 900, 1099 and 1100
		{1300, 200}, // the one at 300 has left its window
	} {
		if got := status(int(c.at), c.at*time.Millisecond); got != c.want {
			t.Errorf("at %d ms: %d, want %d", c.at, got, c.want)
		}
	}
}

// What a fate says overrides the table: the answers while the first call runs, what is kept, and for how long.
func TestAFateCanSayMore(t *testing.T) {
	t.Parallel()
	r := newRig(t, "razorpay/v1", Options{})
	r.arm("slow=job=inv-1,running=busy,delay=5s", "slow=job=inv-2,running=wait", "5xx=job=inv-3,save=nothing", "5xx=job=inv-4,save=answer,charge=true", "cut-after-charge=job=inv-5,life=2s",
		"2xx-later=job=inv-6,final=failed,delay=1h")
	calm := func() { r.hands.advance(time.Second) }
	first := r.start(charge{job: "inv-1", key: "key-1"})
	r.want("while it runs", r.pay(charge{job: "inv-1", key: "key-1"}), 500, "SERVER_ERROR")
	r.hands.advance(5 * time.Second)
	r.want("the first", <-first, 200)
	first = r.start(charge{job: "inv-2", key: "key-2"})
	second := r.start(charge{job: "inv-2", key: "key-2"})
	r.hands.advance(30 * time.Second)
	if one, two := <-first, <-second; one.body != two.body || one.status != 200 {
		t.Errorf("it waited for %s, and got %s", one.body, two.body)
	}
	r.want("a failure", r.pay(charge{job: "inv-3", key: "key-3"}), 500)
	r.want("is not kept", r.pay(charge{job: "inv-3", key: "key-3"}), 200)
	calm()
	for range 2 {
		r.want("a failure that is", r.pay(charge{job: "inv-4", key: "key-4"}), 500)
	}
	calm()
	r.want("cut", r.pay(charge{job: "inv-5", key: "key-5"}), 0)
	r.want("and known", r.pay(charge{job: "inv-5", key: "key-5"}), 200)
	r.hands.advance(2 * time.Second)
	r.want("and forgotten", r.pay(charge{job: "inv-5", key: "key-5"}), 200)
	r.want("taken", r.pay(charge{job: "inv-6", key: "key-6"}), 200, "processing")
	r.hands.advance(time.Hour)
	r.want("and failed", r.get("/payouts/pout_00000007"), 200, `"failed"`)
	all := r.charged("inv-5 twice, the others once", 7)
	if last := all[6]; last.State != "failed" || last.Job != "inv-6" {
		t.Errorf("%+v", last)
	}
	if s := r.Stats(); s.ChargedTwice != 1 || s.Cut != 1 || s.States["failed"] != 1 {
		t.Errorf("%+v", s)
	}
}

// With the machine's clock a wait takes as long as the scale says, and a caller who hangs up is charged nevertheless.
func TestTheMachinesClock(t *testing.T) {
	t.Parallel()
	table, err := Load("checkout/v1")
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(table, Options{TimeScale: 3600, Fates: []Fate{{Name: "slow", Share: 1, Calls: -1, Delay: 20 * time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Double: d, t: t, url: "http://double", hands: newHands()}
	call := func(ctx context.Context, n int) (code int, aborted any) {
		seen := httptest.NewRecorder()
		defer func() { aborted = recover() }()
		d.ServeHTTP(seen, r.request(charge{job: fmt.Sprint("inv-", n), key: fmt.Sprint("k", n)}).WithContext(ctx))
		return seen.Code, nil
	}
	began := time.Now()
	if code, _ := call(context.Background(), 1); code != 201 {
		t.Errorf("status %d", code)
	}
	if took := time.Since(began); took < 333*time.Millisecond {
		t.Errorf("20 minutes took %v, want a third of a second", took)
	}
	gone, hangUp := context.WithCancel(context.Background())
	hangUp()
	if _, aborted := call(gone, 2); aborted != http.ErrAbortHandler {
		t.Errorf("it ended with %v", aborted)
	}
	if code, _ := call(context.Background(), 3); code != 201 { // a third of a second later the second one is done, too
		t.Errorf("status %d", code)
	}
	r.charged("all three", 3)
}

// A repeat that waited for a call that left nothing is executed itself.
func TestAWaitForACallThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v2", Options{Service: time.Second, Choose: map[string]string{"running": "wait"}})
	r.arm("5xx=job=inv-1")
	c := charge{job: "inv-1", key: "k1"}
	first, second := r.start(c), r.start(c)
	r.hands.advance(time.Second)
	r.want("the first", <-first, 500)
	r.charged("nothing yet", 0)
	testkit.EventuallyEvery(t, 100*time.Microsecond, time.Minute, "the second one's answer", func() bool {
		if r.hands.waiters() > 0 { // its own second begins when it is awake
			r.hands.advance(time.Second)
		}
		return len(second) == 1
	})
	r.want("the second", <-second, 200, "succeeded")
	r.charged("once", 1)
}

// An answer is lost when the work is done: the caller waits that long, and the charge is in the ledger.
func TestACutComesAfterTheWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v1", Options{Service: time.Second})
	r.arm("cut-after-charge=job=inv-1")
	c := charge{job: "inv-1", key: "k1"}
	first := r.start(c)
	r.want("meanwhile", r.pay(c), 409)
	r.charged("nothing yet", 0)
	r.hands.advance(time.Second)
	r.want("lost", <-first, 0)
	r.charged("when it is lost", 1)
	r.want("again", r.pay(c), 200, "succeeded")
}

// Answers quote what callers write, as JSON requires.
func TestReferencesAreQuoted(t *testing.T) {
	t.Parallel()
	r := newRig(t, "adyen/v72", Options{})
	const job = "inv \"1\" \\ {id} ü"
	got := r.pay(charge{job: job, key: "k1"})
	var answer struct{ MerchantReference string }
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || answer.MerchantReference != job {
		t.Errorf("%v: %s", err, got.body)
	}
}
