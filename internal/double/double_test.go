package double

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/testkit"
)

const (
	day    = 24 * time.Hour
	oneKey = "00000000-0000-4000-8000-000000000001"
)

func TestAllGatewaysAreThere(t *testing.T) {
	t.Parallel()
	want := []string{"adyen/v72", "braintree/v1", "checkout/v1", "gocardless/v1", "klarna/v1", "mangopay/v2", "mollie/v2", "paypal/orders-v2", "paypal/payments-v2",
		"paypal/payouts-v1", "qonto/v2", "razorpay/v1", "square/v2", "stripe/v1", "stripe/v2", "wise/v1", "worldpay/payouts-v1", "worldpay/v1"}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
	for _, name := range Names() {
		if table, err := Load(name); err != nil || table.Gateway != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"stripe/v11", "stripe-v1", "", "../stripe/v1"} {
		if _, err := Load(name); err == nil || !strings.Contains(err.Error(), "there are adyen/v72, braintree/v1") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := Load("stripe/v11"); err == nil || !strings.Contains(err.Error(), "did you mean stripe/v1?") {
		t.Error(err)
	}
}

// Keys live exactly as long as published: a key is known just before its end, and at its end the call is a new one.
func TestKeysAreForgottenAtExactlyTheirLife(t *testing.T) {
	t.Parallel()
	lives := map[string]time.Duration{"stripe/v1": 24 * time.Hour, "stripe/v2": 30 * day, "adyen/v72": 7 * day, "paypal/orders-v2": 6 * time.Hour,
		"paypal/payments-v2": 45 * day, "paypal/payouts-v1": 30 * day, "braintree/v1": 30 * day, "checkout/v1": 24 * time.Hour, "mollie/v2": time.Hour,
		"mangopay/v2": 24 * time.Hour, "qonto/v2": 30 * time.Minute, "klarna/v1": 24 * time.Hour}
	for gateway, life := range lives {
		r := newRig(t, gateway, Options{})
		if r.table.Keys[0].Unpublished {
			t.Errorf("%s: its life is published", gateway)
		}
		c := charge{job: "inv-1", key: oneKey}
		r.pay(c)
		r.hands.advance(life - 1)
		r.pay(c)
		r.charged(gateway+", just before the key is forgotten", 1)
		r.hands.advance(1)
		r.pay(c)
		r.charged(gateway+", when it is", 2)
	}
	for _, gateway := range []string{"gocardless/v1", "square/v2", "wise/v1", "razorpay/v1", "worldpay/payouts-v1"} {
		if table, err := Load(gateway); err != nil || !table.Keys[0].Unpublished {
			t.Errorf("%s: no life is published: %v", gateway, err)
		}
	}
}

// While the first call runs, a repeat gets each of the answers that the table names. With wait it is answered as a repeat afterwards.
func TestConcurrentFirstCalls(t *testing.T) {
	t.Parallel()
	for _, gateway := range Names() {
		table, err := Load(gateway)
		if err != nil {
			t.Fatal(err)
		}
		for _, running := range table.Running {
			r := rigOf(t, table, Options{Choose: map[string]string{"running": running}})
			r.arm("slow=job=inv-1,delay=20s")
			c := charge{job: "inv-1", key: oneKey}
			first, second := r.start(c), r.start(c)
			r.hands.advance(20*time.Second - 1)
			r.charged(gateway+", before the first call ends", 0)
			r.hands.advance(1)
			if got := (<-first).status; got != table.Answers[table.Normal].Status {
				t.Errorf("%s: the first call got %d", gateway, got)
			}
			got, what := <-second, fmt.Sprintf("%s, %s", gateway, running)
			if want := table.Answers[running].Status; running != "wait" && got.status != want {
				t.Errorf("%s: the second call got %d, want %d", what, got.status, want)
			}
			if log := r.Calls()[1]; running == "wait" && (log.Answer == "" || !log.Repeat || got.status != log.Status) {
				t.Errorf("%s: the second call got %d: %+v", what, got.status, log)
			}
			if table.Normal != "created" {
				r.charged(what, 1)
			}
		}
	}
}

// The ledger is exact. 64 callers have jobs of their own and common ones, and some calls are cut.
func TestTheLedgerIsExact(t *testing.T) {
	t.Parallel()
	r := newRig(t, "adyen/v72", Options{Service: time.Millisecond, Clock: nil})
	r.arm("cut-after-charge=job=cut-*", "cut-before-charge=job=never-*,calls=all", "2xx-no=job=no-*", "429=job=late-*")
	r.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, MaxConnsPerHost: 64}}
	var all sync.WaitGroup
	ended := make(chan struct{})
	for g := range 64 {
		all.Go(func() {
			for i := range 4 {
				for _, kind := range []string{"own", "cut", "never", "no", "late"} {
					job := fmt.Sprintf("%s-%d-%d", kind, g, i)
					r.pay(charge{job: job, key: job, amount: "100"})
					r.pay(charge{job: job, key: job, amount: "100"})
				}
				job := fmt.Sprintf("all-%d", i)
				r.pay(charge{job: job, key: job, amount: "7"})
			}
		})
	}
	go func() { all.Wait(); close(ended) }()
	testkit.EventuallyEvery(t, 100*time.Microsecond, time.Minute, "all answers", func() bool {
		r.hands.advance(time.Millisecond)
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	sum, seen := 0, map[string]int{}
	for _, e := range r.Ledger() {
		seen[e.Job]++
		sum += map[string]int{"100": 100, "7": 7}[e.Amount]
		if seen[e.Job] > 1 || e.State != "paid" || e.Currency != "EUR" || e.Key != e.Job || e.Reference != e.Job {
			t.Errorf("entry %+v", e)
		}
	}
	// Own, cut and late jobs of everybody, and the four that are common to all.
	if want := 3*64*4 + 4; len(seen) != want || sum != 3*64*4*100+4*7 {
		t.Errorf("%d jobs charged with %d, want %d", len(seen), sum, want)
	}
}

func TestTheLifeOfKeysCanBeSet(t *testing.T) {
	t.Parallel()
	r := newRig(t, "square/v2", Options{KeyLife: 6 * time.Minute})
	c := charge{job: "inv-1", key: oneKey}
	r.pay(c)
	r.hands.advance(6*time.Minute - 1)
	r.pay(c)
	r.charged("within six minutes", 1)
	r.hands.advance(1)
	r.pay(c)
	r.charged("after them", 2)
}

func TestTimeIsScaled(t *testing.T) {
	t.Parallel()
	r := newRig(t, "mollie/v2", Options{TimeScale: 1000})
	c := charge{job: "inv-1", key: oneKey}
	r.pay(c)
	r.hands.advance(3599 * time.Millisecond)
	r.pay(c)
	r.charged("3.599 s, which are 3599 s", 1)
	r.hands.advance(time.Millisecond)
	r.pay(c)
	e := r.charged("3.6 s, which are an hour", 2)
	if got := e[1].At.Sub(e[0].At); got != time.Hour {
		t.Errorf("by its calendar they are %v apart", got)
	}
}

// A gateway is a table: here is a made-up one.
func TestAStrangersTable(t *testing.T) {
	t.Parallel()
	const text = `
gateway: corner/v1
about: "The bank at the corner."
read: 2026-11-24
auth: {header: X-Token}
request: {encoding: json, amount: sum, unit: number, currency: cur, reference: [ref]}
keys:
  - {in: header, name: X-Once, max: 4, bad: bad-key, life: 10m}
saved: {2xx: answer, 4xx: nothing, 5xx: "taken|gone", mark: {X-Again: "1"}}
running: busy
id: "c{n}"
payment: '{"no":"{id}","sum":{amount},"is":"{status}"}'
words: {paid: ok}
normal: paid
answers:
  paid: {status: 200}
  decline: {status: 418, body: '{"no":"tea"}'}
  taken: {status: 409, body: '{"taken":"{id}"}'}
  gone: {status: 410, body: '{}'}
  busy: {status: 425}
  bad-key: {status: 400}
  error: {status: 500}
  unavailable: {status: 503}
  unauthorised: {status: 401}
  invalid: {status: 400}
  not-found: {status: 404}
  429-calm: {status: 429, headers: {Retry-After: "{retry_after}"}}
  429-crowd: {status: 429}
limits:
  - {limit: 3/10s, over: account, answer: 429-calm}
  - {at_once: 1, over: writes, answer: 429-crowd}
`
	table, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := rigOf(t, table, Options{})
	r.want("a payment", r.pay(charge{job: "a", key: "k1"}), 200, `{"no":"c00000001","sum":12.50,"is":"ok"}`)
	again := r.pay(charge{job: "a", key: "k1"})
	r.want("again", again, 200, `"no":"c00000001"`)
	if again.header.Get("X-Again") != "1" {
		t.Errorf("a repeat is not marked: %v", again.header)
	}
	r.want("a long key", r.pay(charge{job: "a", key: "k1234"}), 400)
	over := r.pay(charge{job: "b", key: "k2"})
	r.want("the fourth", over, 429)
	if got := over.header.Get("Retry-After"); got != "10" {
		t.Errorf("Retry-After %q", got)
	}
	r.hands.advance(10 * time.Second)
	r.arm("slow=job=b,delay=1s", "5xx=job=c", "5xx=job=d,charge=true")
	slow := r.start(charge{job: "b", key: "k2"})
	r.want("a second one at once", r.pay(charge{job: "c", key: "k3"}), 429)
	r.hands.advance(time.Second)
	r.want("the first one", <-slow, 200)
	r.hands.advance(10 * time.Second)
	r.want("a failure", r.pay(charge{job: "c", key: "k3"}), 500)
	r.want("that left nothing", r.pay(charge{job: "c", key: "k3"}), 410)
	r.hands.advance(10 * time.Second)
	r.want("a failure that charged", r.pay(charge{job: "d", key: "k4"}), 500)
	r.want("that one", r.pay(charge{job: "d", key: "k4"}), 409, "c00000003")
	for _, wrong := range []struct{ from, to, says string }{
		{"normal: paid", "normal: happy", `none for the normal state "happy"`},
		{"running: busy", "running: bussy", `there is no "bussy"`},
		{`{"no":"tea"}`, `{"no":tea}`, "answers.decline.body: filled in it is not JSON"},
		{`"is":"{status}"`, `"is":"{state}"`, "{state} is not a word that is filled in"},
		{"life: 10m", "life: soon", "is not a duration"},
		{"about:", "abut:", "abut"},
		{"over: writes", "over: all", "write account, endpoint"},
		{"auth: {header: X-Token}", "auth: {}", "auth.header"},
		{"encoding: json", "encoding: xml", "write json or form"},
		{"in: header", "in: query", "write header or body"},
		{"gateway: corner/v1", "gateway: corner/v1\nfates: {store-down: {}}", `fates.store-down: there is no answer "store-down"`},
		{"gateway: corner/v1", "gateway: corner/v1\nfates: {slow: {}}", "every gateway has it"},
		{"gateway: corner/v1", "gateway: corner/v1\nfates: {not-found-yet: {}}", "no worst_lag"},
		{"gateway: corner/v1", "gateway: corner/v1\nfates: {life-shrank: {}}", "write the short life"},
		{"gateway: corner/v1", "gateway: corner/v1\nwithout: {slow: no}", "or the gateway has it"},
	} {
		if _, err := Parse([]byte(strings.Replace(text, wrong.from, wrong.to, 1))); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%s for %s: %v, want %s", wrong.to, wrong.from, err, wrong.says)
		}
	}
	if _, err := New(table, Options{TimeScale: -1}); err == nil || !strings.Contains(err.Error(), "not negative") {
		t.Errorf("time that goes back: %v", err)
	}
	if _, err := New(table, Options{Choose: map[string]string{"running": "wait"}}); err == nil || !strings.Contains(err.Error(), "running=busy") {
		t.Errorf("a choice that there is not: %v", err)
	}
}

func TestTheControlEndpoints(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v1", Options{})
	post := func(method, what, body string) said {
		req, err := http.NewRequestWithContext(context.Background(), method, r.url+"/_double/"+what, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return r.do(req)
	}
	r.want("one fate", post("POST", "fates", `{"fate":"saved-500","job":"inv-1","charge":true}`), 200, `{"fate":"saved-500","job":"inv-1","jobs":0,"calls":0}`)
	r.want("a list", post("POST", "fates", `[{"fate":"decline","share":"5%","calls":2},{"fate":"429","key":"x","reason":"global-rate"}]`), 200)
	for body, says := range map[string]string{`{"fate":"saved-50"}`: "did you mean saved-500?", `{"fate":"decline","jobs":"a"}`: "jobs: write job, key", `7`: "7 is not a fate", `{`: "no JSON",
		`[{"fate":"decline","job":"a"},{"fate":"409-done","job":"a"}]`: "stripe/v1 has no fate 409-done"} {
		r.want(body, post("POST", "fates", body), 400, says)
	}
	if n := len(r.armedNow()); n != 3 {
		t.Errorf("%d fates are armed, want 3", n)
	}
	r.want("the payment", r.pay(charge{job: "inv-1", key: "k"}), 500)
	var e Entry
	if err := json.Unmarshal([]byte(post("GET", "ledger", "").body), &e); err != nil || e.Job != "inv-1" || e.Key != "k" || e.Amount != "1250" || e.Currency != "EUR" || e.State != "paid" || e.Fate != "saved-500" {
		t.Errorf("%+v, %v", e, err)
	}
	r.want("the calls", post("GET", "calls", ""), 200, `"job":"inv-1","key":"k","method":"POST","path":"/pay","answer":"error","status":500,"fate":"saved-500"`)
	r.want("the fates", post("GET", "fates", ""), 200, `"job":"inv-1","jobs":1,"calls":1`)
	r.want("none any more", post("DELETE", "fates", ""), 204)
	r.want("the fates", post("GET", "fates", ""), 200)
	r.want("something else", post("GET", "fate", ""), 404, "there are GET /_double/ledger")
	if s := r.Stats(); s.Calls != 1 || s.Charged != 1 || s.ChargedTwice != 0 || s.States["paid"] != 1 || s.Gateway != "stripe/v1" {
		t.Errorf("%+v", s)
	}
}
