package double

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// lookups returns the look-ups of the log.
func (r *rig) lookups() (all []Call) {
	for _, c := range r.Calls() {
		if c.Look != "" {
			all = append(all, c)
		}
	}
	return all
}

// last checks what the log has about the last look-up.
func (r *rig) last(what, job, said, truth string) {
	r.t.Helper()
	all := r.lookups()
	got := all[len(all)-1]
	if got.Job != job || got.Said != said || got.Truth != truth {
		r.t.Errorf("%s: %q said %q, and true was %q; want %q, %q and %q", what, got.Job, got.Said, got.Truth, job, said, truth)
	}
}

// A search lags as configured, and the log says what was true meanwhile.
func TestTheLagOfLookupsCanBeSet(t *testing.T) {
	t.Parallel()
	for _, gateway := range []string{"checkout/v1", "stripe/v1", "mollie/v2"} {
		r := newRig(t, gateway, Options{Lag: time.Minute})
		path := map[string]string{"checkout/v1": "/payments?reference=inv-1", "stripe/v1": "/payment_intents/search?query=" + url.QueryEscape("metadata['job']:'inv-1'"),
			"mollie/v2": "/payments"}[gateway]
		job := "inv-1"
		if gateway == "mollie/v2" {
			job = "" // a list is about all
		}
		truth := map[bool]string{true: "paid"}[job != ""]
		r.get(path)
		r.last(gateway+" before the payment", job, "nothing", "")
		r.pay(charge{job: "inv-1", key: keyOf("inv-1")})
		r.hands.advance(time.Minute - 1)
		r.get(path)
		r.last(gateway+" before its lag is over", job, "nothing", truth)
		r.hands.advance(1)
		r.get(path)
		r.last(gateway+" when it is", job, "paid "+r.firstID(), truth)
		r.want(gateway+" by its id", r.get("/"+strings.ReplaceAll(r.pathOf("get"), "{id}", r.firstID())), 200, r.firstID())
	}
	if _, err := New(newRig(t, "stripe/v1", Options{}).table, Options{Lag: -1}); err == nil {
		t.Error("a lag below zero is taken")
	}
}

// pathOf returns the path of the first endpoint of a kind.
func (r *rig) pathOf(kind string) string {
	for _, e := range r.table.Endpoints {
		if e.Kind == kind {
			return e.Path
		}
	}
	r.t.Fatalf("%s has no %s", r.table.Gateway, kind)
	return ""
}

// A payment with a lag of its own is found when that lag is over, whatever the table says.
func TestAPaymentHasALagOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v1", Options{})
	r.arm("not-found-yet=job=inv-1,delay=5s", "not-found-yet=job=inv-2")
	search := func(job string) string {
		return r.get("/payment_intents/search?query=" + url.QueryEscape("metadata['job']:'"+job+"'")).body
	}
	r.want("cut", r.pay(charge{job: "inv-1", key: "k1"}), 0)
	r.want("cut", r.pay(charge{job: "inv-2", key: "k2"}), 0)
	for _, c := range []struct {
		wait   time.Duration
		one    bool
		second bool
	}{{5*time.Second - 1, false, false}, {1, true, false}, {time.Hour - 5*time.Second - 1, true, false}, {1, true, true}} {
		r.hands.advance(c.wait)
		if one, second := strings.Contains(search("inv-1"), "pi_"), strings.Contains(search("inv-2"), "pi_"); one != c.one || second != c.second {
			t.Errorf("after %s more: %v and %v, want %v and %v", c.wait, one, second, c.one, c.second)
		}
	}
}

// Each trouble of look-ups meets the look-ups for which it is armed, and the log has the truth.
func TestTroubleOfLookups(t *testing.T) {
	t.Parallel()
	const path = "/payments?reference=inv-1"
	for _, c := range []struct {
		fate, said string
		status     int
		texts      []string
	}{
		{"look-absent=job=inv-1,calls=2", "nothing", 200, []string{`{"data":[]}`}},
		{"look-another=share=100%,calls=2", "paid pay_9", 200, []string{`"reference":"of-somebody-else"`, `"amount":2250`}},
		{"look-5xx=job=inv-*,calls=2", "", 502, nil},
		{"look-429=job=inv-1,calls=2", "", 429, nil},
		{"look-down=job=inv-1,calls=2", "", 503, nil},
		{"look-cut=job=inv-1,calls=2", "", 0, nil},
		{"look-truncated=job=inv-1,calls=2", "", 200, []string{`{"data":[`}},
	} {
		r := newRig(t, "checkout/v1", Options{})
		r.arm(c.fate)
		r.pay(charge{job: "inv-1", key: "k1"}) // payments don't meet it
		for range 2 {
			got := r.get(path)
			r.want(c.fate, got, c.status, c.texts...)
			if last := r.lookups()[len(r.lookups())-1]; !strings.HasPrefix(last.Said, c.said) || c.said == "" && last.Said != "" || last.Truth != "paid" || last.Fate == "" {
				t.Errorf("%s: %+v", c.fate, last)
			}
			if c.fate == "look-truncated=job=inv-1,calls=2" && json.Valid([]byte(got.body)) {
				t.Errorf("it is whole: %s", got.body)
			}
		}
		r.want(c.fate+", the third time", r.get(path), 200, "pay_00000001")
		r.charged(c.fate, 1)
	}
	late := newRig(t, "checkout/v1", Options{})
	late.arm("look-absent=job=inv-1,calls=all,delay=5s")
	late.pay(charge{job: "inv-1", key: "k1"})
	late.hands.advance(5*time.Second - 1)
	late.want("younger than that", late.get(path), 200, `{"data":[]}`)
	late.hands.advance(1)
	late.want("and older", late.get(path), 200, "pay_00000001")
	list := newRig(t, "mollie/v2", Options{})
	list.arm("look-absent=job=*,calls=all,delay=5s")
	list.pay(charge{job: "inv-1", key: keyOf("1")})
	list.hands.advance(5 * time.Second)
	list.pay(charge{job: "inv-2", key: keyOf("2")})
	if got := list.get("/payments").body; !strings.Contains(got, "inv-1") || strings.Contains(got, "inv-2") {
		t.Errorf("a list hides what is young: %s", got)
	}
}

// A look-up by reference shows another caller's payment, finds nothing, or takes long.
func TestTroubleOfAPaymentsOwnPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, "mangopay/v2", Options{})
	r.pay(charge{job: "inv-1", key: oneKey})
	id := r.firstID()
	r.arm("look-another=job=inv-1")
	r.want("somebody else's", r.get("/payins/"+id), 200, `"Tag":"of-somebody-else"`)
	r.arm("look-absent=job=inv-1")
	r.want("not there", r.get("/payins/"+id), 404)
	r.arm("look-another=job=inv-1")
	r.want("somebody else's answer", r.get("/responses/"+oneKey), 200, `"StatusCode":"200"`, `"Tag":"of-somebody-else"`)
	r.want("ours", r.get("/responses/"+oneKey), 200, `"Tag":"inv-1"`)
	r.last("of the key", "inv-1", "paid "+id, "paid")
	r.arm("look-slow=job=inv-1,delay=40s")
	slow := make(chan said, 1)
	go func() { slow <- r.get("/payins/" + id) }()
	r.hands.awaits(t, 1)
	r.hands.advance(40 * time.Second)
	r.want("slow", <-slow, 200, id)
}

// A long list has each payment once over its pages, which are linked as the gateway does it.
func TestListsGoOnAsTheGatewaySays(t *testing.T) {
	t.Parallel()
	for gateway, next := range map[string]func(body map[string]any) string{
		"mollie/v2": func(body map[string]any) string {
			link, _ := body["_links"].(map[string]any)["next"].(map[string]any)
			text, _ := link["href"].(string)
			if _, rest, ok := strings.Cut(text, "//"); ok {
				_, text, _ = strings.Cut(rest, "/")
				return "/" + text
			}
			return ""
		},
		"square/v2": func(body map[string]any) string {
			if cursor, _ := body["cursor"].(string); cursor != "" {
				return "/payments?limit=3&cursor=" + cursor
			}
			return ""
		},
		"qonto/v2": func(body map[string]any) string {
			if page, _ := body["meta"].(map[string]any)["next_page"].(float64); page > 0 {
				return fmt.Sprintf("/transfers?per_page=3&page=%.0f", page)
			}
			return ""
		},
	} {
		r := newRig(t, gateway, Options{})
		for i := range 7 {
			r.pay(charge{job: fmt.Sprint("inv-", i), key: keyOf(fmt.Sprint(i))})
		}
		size := map[string]string{"mollie/v2": "limit", "square/v2": "limit", "qonto/v2": "per_page"}[gateway]
		seen, pages := "", 0
		for at := "/" + r.pathOf("list") + "?" + size + "=3"; at != ""; pages++ {
			var body map[string]any
			got := r.get(at)
			if err := json.Unmarshal([]byte(got.body), &body); err != nil || pages > 5 {
				t.Fatalf("%s %s: %v: %s", gateway, at, err, got.body)
			}
			seen += got.body
			at = next(body)
		}
		if pages != 3 {
			t.Errorf("%s: %d pages of three for seven payments", gateway, pages)
		}
		for i := range 7 {
			if n := strings.Count(seen, fmt.Sprintf(`"inv-%d"`, i)); n != 1 {
				t.Errorf("%s: inv-%d is on %d pages", gateway, i, n)
			}
		}
		r.want(gateway+", a page after no payment", r.get("/"+r.pathOf("list")+"?from=x&cursor=x"), map[string]int{"mollie/v2": 422, "square/v2": 400, "qonto/v2": 200}[gateway])
	}
}

// A list can begin at a moment and with the oldest payment. A list below an order has only that order's payments.
func TestListsOfAPart(t *testing.T) {
	t.Parallel()
	r := newRig(t, "square/v2", Options{})
	r.pay(charge{job: "inv-1", key: "k1"})
	r.hands.advance(time.Minute)
	since := url.QueryEscape(r.hands.Now().Format(time.RFC3339))
	r.pay(charge{job: "inv-2", key: "k2"})
	r.pay(charge{job: "inv-3", key: "k3"})
	got := r.get("/payments?begin_time=" + since + "&sort_order=ASC")
	if at := strings.Index(got.body, "inv-2"); strings.Contains(got.body, "inv-1") || at < 0 || at > strings.Index(got.body, "inv-3") {
		t.Errorf("since a minute: %s", got.body)
	}
	r.want("no moment", r.get("/payments?begin_time=yesterday"), 400)
	klarna := newRig(t, "klarna/v1", Options{})
	klarna.pay(charge{job: "inv-1", key: keyOf("1"), path: "/orders/o1/captures"})
	klarna.pay(charge{job: "inv-2", key: keyOf("2"), path: "/orders/o2/captures"})
	if got := klarna.get("/orders/o1").body; !strings.Contains(got, `"reference":"inv-1"`) || strings.Contains(got, "inv-2") {
		t.Errorf("the captures of an order: %s", got)
	}
}

// Look-ups use up the limits that count them.
func TestLookupsAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, "checkout/v1", Options{})
	r.pay(charge{job: "inv-1", key: "k1"})
	for range 100 {
		r.want("a hundred a second", r.get("/payments?reference=inv-1"), 200)
	}
	r.want("and no more", r.get("/payments?reference=inv-1"), 429)
	r.want("payments have their own", r.pay(charge{job: "inv-2", key: "k2"}), 201)
	if s := r.Stats(); s.Lookups != 101 || s.Calls != 103 {
		t.Errorf("%+v", s)
	}
}
