package double

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/fates.txt as it is now, to be read against the documents")

// Each fate of each table plays as the table says. A line of testdata/fates.txt is what the calls of one job get: the first one, a
// repeat at once, one a minute later, and one when the key's life is over. A star marks calls whose key was known. The lines were
// read against the documents one by one.
func TestFatesPlayAsTheTablesSay(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, gateway := range Names() {
		table, err := Load(gateway)
		if err != nil {
			t.Fatal(err)
		}
		for _, fate := range table.FatesOfPayments() {
			lines = append(lines, fmt.Sprintf("%-19s %-20s %s", gateway, fate, story(t, table, fate)))
		}
	}
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("testdata/fates.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/fates.txt")
	if err != nil {
		t.Fatal(err)
	}
	was := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(was) || was[i] != line {
			t.Errorf("line %d is\n%s\nwant\n%s", i+1, line, strings.Join(was[min(i, len(was)):min(i+1, len(was))], ""))
		}
	}
	if len(was) != strings.Count(got, "\n")+1 {
		t.Errorf("testdata/fates.txt has %d lines, and there are %d stories", len(was), strings.Count(got, "\n"))
	}
}

func story(t *testing.T, table *Table, fate string) string {
	t.Helper()
	r := rigOf(t, table, Options{})
	r.arm(fate + "=job=inv-1")
	c := charge{job: "inv-1", key: keyOf("inv-1")}
	var waiting []chan said
	play := func(c charge) { waiting = append(waiting, r.start(c)) }
	play(c)
	play(c)
	if fate == "two-steps" {
		if i := slices.IndexFunc(table.Endpoints, func(e Endpoint) bool { return e.Kind == "step" }); i >= 0 {
			c.path = "/" + strings.ReplaceAll(table.Endpoints[i].Path, "{id}", r.firstID())
			c.key = keyOf("inv-1, the second step")
			play(c)
			play(c)
			c.path, c.key = "", keyOf("inv-1")
		}
	}
	r.hands.advance(time.Minute)
	play(c)
	life := 400 * 24 * time.Hour
	for _, k := range table.Keys[:min(len(table.Keys), 1)] {
		life = time.Duration(k.Life)
		if table.plan(fate).Short {
			life = time.Duration(k.Short)
		}
	}
	if life <= 400*24*time.Hour {
		r.hands.advance(life)
		play(c)
	}
	for _, w := range waiting {
		<-w
	}
	var told []string
	for _, call := range r.Calls() {
		text := fmt.Sprintf("%d %s", call.Status, call.Answer)
		if call.Status == 0 {
			text = "cut"
		}
		if call.Repeat {
			text += "*"
		}
		told = append(told, text)
	}
	text := strings.Join(told, ", ") + "; charged"
	for _, e := range r.Ledger() {
		text += " " + e.State
	}
	return text
}

// A fate that a document excludes is refused with the reason, and nothing is armed.
func TestFatesThatAGatewayCanNotHave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ gateway, fate, says string }{
		{"stripe/v1", "5xx-not-saved=job=a", "stripe/v1 has no fate 5xx-not-saved (a server error after the charge is not saved: a repeat charges again): a 500 is saved"},
		{"stripe/v1", "409-done=job=a", "its documents say nothing of the kind; it has 2xx-action"},
		{"adyen/v72", "not-found-yet=share=5%", "no look-up at all"},
		{"qonto/v2", "other-body=job=a", "even if the body differs"},
		{"worldpay/v1", "saved-500=job=a", "knows no keys"},
		{"mollie/v2", "saved-5000=job=a", `there is no fate "saved-5000"; did you mean saved-500?`},
		{"stripe/v1", "429=job=a,reason=endpoint-rat", `no reason "endpoint-rat"`},
		{"stripe/v1", "slow=job=a,running=wait", `stripe/v1 has no answer "wait"; it has in-use`},
		{"stripe/v1", "2xx-later=job=a,final=lost", `can't end as "lost"`},
		{"stripe/v1", "decline=job=a,share=5%", "of one job, of some keys or of a share of all"},
		{"stripe/v1", "decline=", "write job, key, share"},
		{"stripe/v1", "decline=job=a,call=3", "did you mean calls?"},
		{"stripe/v1", "decline=job=a,calls=0", "write 1, 2, … or all"},
		{"stripe/v1", "decline=share=0", "not a share of jobs"},
		{"stripe/v1", "slow=job=a,delay=long", "is not a duration"},
		{"stripe/v1", "saved-500=job=a,save=it", "write answer or nothing"},
		{"stripe/v1", "cut-after-charge=job=a,charge=false", "cut-before-charge has not charged"},
	} {
		r := newRig(t, c.gateway, Options{})
		f, err := ParseFate(c.fate)
		if err == nil {
			err = r.Arm(f)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s of %s: %v, want %q", c.fate, c.gateway, err, c.says)
		}
		if n := len(r.armedNow()); n != 0 {
			t.Errorf("%s of %s: %d armed", c.fate, c.gateway, n)
		}
	}
}

func TestAFateIsOfJobsOfKeysOrOfAShare(t *testing.T) {
	t.Parallel()
	r := newRig(t, "checkout/v1", Options{})
	r.arm("decline=job=old-*,calls=2", "decline=key=special", "unavailable=share=30%,seed=7")
	if got := r.pay(charge{job: "old-1", key: "k1"}); !strings.Contains(got.body, `"approved":false`) {
		t.Errorf("old-1: %s", got.body)
	}
	if got := r.pay(charge{job: "new-1", key: "special-1"}); !strings.Contains(got.body, `"approved":false`) {
		t.Errorf("by its key: %s", got.body)
	}
	down := 0
	for i := range 1000 {
		if r.pay(charge{job: fmt.Sprint("inv-", i), key: fmt.Sprint("k-", i)}).status == 503 {
			down++
		}
		r.hands.advance(10 * time.Millisecond)
	}
	if down < 250 || down > 350 {
		t.Errorf("%d of 1000 jobs met a fate with a share of 30 %%", down)
	}
	// The same share has the same jobs.
	again := newRig(t, "checkout/v1", Options{Fates: []Fate{{Name: "unavailable", Share: 0.3, Seed: 7}}})
	for i := range 50 {
		c := charge{job: fmt.Sprint("inv-", i), key: fmt.Sprint("k-", i)}
		first := slices.IndexFunc(r.Calls(), func(l Call) bool { return l.Job == c.job && l.Status == 503 }) >= 0
		if second := again.pay(c).status == 503; first != second {
			t.Errorf("%s meets it: %v, and the second time %v", c.job, first, second)
		}
		again.hands.advance(10 * time.Millisecond)
	}
	// It is a share of jobs: another key of a job makes no difference, and another fate or seed selects others.
	jobs := func(fate string, generation string) (met string) {
		r := newRig(t, "checkout/v1", Options{})
		r.arm(fate)
		for i := range 60 {
			r.pay(charge{job: fmt.Sprint("inv-", i), key: fmt.Sprint("k-", i, generation)})
			r.hands.advance(10 * time.Millisecond)
		}
		for _, c := range r.Calls() {
			if c.Fate != "" {
				met += c.Job + " "
			}
		}
		return met
	}
	if one, two := jobs("unavailable=share=30%", ""), jobs("unavailable=share=30%", "~2"); one != two || one == "" {
		t.Errorf("%s, and with other keys %s", one, two)
	}
	if one := jobs("unavailable=share=30%", ""); one == jobs("expired-token=share=30%", "") || one == jobs("unavailable=share=30%,seed=1", "") {
		t.Errorf("%s, and the same with another fate, or with another seed", one)
	}
}

// At a gateway without keys, a payment without a reference is a job of its own: a share is drawn for each, and none is charged twice.
func TestASharePicksAmongPaymentsWithoutAName(t *testing.T) {
	t.Parallel()
	r := newRig(t, "worldpay/v1", Options{})
	r.arm("decline=share=30%")
	declined := 0
	for range 300 {
		req := r.request(charge{})
		body := strings.NewReader(`{"instruction":{"value":{"amount":4900,"currency":"EUR"}}}`)
		req.Body, req.ContentLength = io.NopCloser(body), int64(body.Len())
		if strings.Contains(r.do(req).body, "refused") {
			declined++
		}
	}
	if declined < 50 || declined > 130 {
		t.Errorf("%d of 300 payments met a fate with a share of 30 %%", declined)
	}
	if twice := r.Stats().ChargedTwice; twice != 0 {
		t.Errorf("%d were charged twice, and each was called once", twice)
	}
}

// After a fate is used up, the job succeeds.
func TestAFateIsOfSoManyCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		calls string
		want  []int
	}{
		{"", []int{429, 200, 200}}, {",calls=2", []int{429, 429, 200}}, {",calls=all", []int{429, 429, 429}},
	} {
		r := newRig(t, "stripe/v1", Options{})
		r.arm("429=job=inv-1" + c.calls + ",reason=global-rate")
		var got []int
		for range c.want {
			got = append(got, r.pay(charge{job: "inv-1", key: "k"}).status)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("calls%s: %v, want %v", c.calls, got, c.want)
		}
	}
}
