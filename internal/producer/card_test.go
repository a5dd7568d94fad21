package producer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

const (
	visa    = "4111111111111111"
	visaEnd = "************1111"
)

func cardsThen(then job.CardsThen, allow ...string) func(string) job.CardRule {
	return func(string) job.CardRule { return job.CardRule{Then: then, Allow: allow} }
}

func TestALineWithACardNumberIsRefusedByTheFieldsName(t *testing.T) {
	t.Parallel()
	escaped := strings.NewReplacer("4", `\u0034`, "1", `\u0031`).Replace(visa)
	for line, want := range map[string]string{
		`{"id":"a","payload":{"pan":"` + visa + `"}}`:                                     "the field pan has what",
		`{"id":"a","payload":{"pan":4111111111111111}}`:                                   "the field pan has what",
		`{"id":"a","payload":{"pan":4.111111111111111e15}}`:                               "the field pan has what",
		`{"id":"a","payload":{"card":{"n":["x",{"of":"4111 1111-1111.1111"}]}}}`:          "the field card.n.of has what",
		`{"id":"a","payload":{"note":"paid with ` + visa + ` today","b":"` + visa + `"}}`: "the fields note, b have what",
		`{"id":"a","payload":{"n":"` + escaped + `"}}`:                                    "the field n has what",
		`{"id":"a","payload":{"n":"4111\t1111\t1111\t1111"}}`:                             "the field n has what",
		`{"id":"a","payload":{"` + visa + `":1}}`:                                         "in the name of a field",
		`{"id":"a","payload":{"x":{"` + escaped + `":1}}}`:                                "in the name of a field",
		`{"id":"inv-` + visa + `"}`:                                                       "the id has what",
		`{"id":` + visa + `}`:                                                             "the id has what",
		`{"id":"a","batch":"4111-1111-1111-1111"}`:                                        "the batch has what",
		`{"id":"a","lane":"` + visa + `"}`:                                                "the lane has what",
		`{"id":"a","route":"` + visa + `"}`:                                               "the route has what",
		`{"id":"a","` + visa + `":1}`:                                                     `unknown key "` + visaEnd + `"`,
		`{"id":"a","gateway":"` + visa + ` "}`:                                            visaEnd,
		`{"id":"a","payload":{"` + visa + `":1,"` + visa + `":2}}`:                        `"` + visaEnd + `" stands twice`,
	} {
		j, err := One([]byte(line), Options{Gateway: "g"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), visa) || j.ID != "" {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	r, err := New(strings.NewReader("invoice,"+visa+"\na,1\n"+visa+",2\n"), Options{Gateway: "g", Format: CSV, IDField: "invoice"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"in the name of a field", "the id has what"} {
		if l, err := r.Next(); err != nil || l.Err == nil || !strings.Contains(l.Err.Error(), want) || strings.Contains(l.ID, visa) || strings.Contains(string(l.Masked()), visa) {
			t.Errorf("%+v %v, want %s", l, err, want)
		}
	}
}

func TestCardNumbersMayStandWhereTheRuleSays(t *testing.T) {
	t.Parallel()
	const line = `{"id":"a","payload":{"token":{"v":["4111111111111111"]},"tokens":1}}`
	if j, err := One([]byte(line), Options{Gateway: "g", Cards: cardsThen("", "token")}); err != nil || !strings.Contains(string(j.Payload), visa) {
		t.Errorf("%s %v", j.Payload, err)
	}
	if _, err := One([]byte(line), Options{Gateway: "g", Cards: cardsThen("", "tok", "token.v.x", "v")}); err == nil || !strings.Contains(err.Error(), "the field token.v has what") {
		t.Errorf("%v", err)
	}
	if _, err := One([]byte(`{"id":"`+visa+`"}`), Options{Gateway: "g", Cards: cardsThen("", "id")}); err == nil {
		t.Error("an id with a card number was taken in")
	}
	all := `{"id":"` + visa + `","payload":{"` + visa + `":"` + visa + `"}}`
	if j, err := One([]byte(all), Options{Gateway: "g", Cards: cardsThen(job.CardsAllow)}); err != nil || j.ID != visa {
		t.Errorf("%+v %v", j, err)
	}
}

func TestCardNumbersAreMaskedWhereTheRuleSays(t *testing.T) {
	t.Parallel()
	o := Options{Gateway: "g", Cards: cardsThen(job.CardsMask, "keep")}
	for payload, want := range map[string]string{
		`{"pan":"4111111111111111","n":1}`:                                     `{"pan":"************1111","n":1}`,
		`{"a":[4111111111111111,"x"],"keep":"4111111111111111"}`:               `{"a":["************1111","x"],"keep":"4111111111111111"}`,
		`{"a":"\u0034111 1111 1111 1111\n","b":{"c":"ä 371449635398431 \"x"}}`: `{"a":"**** **** **** 1111\n","b":{"c":"ä ***********8431 \"x"}}`,
		`{"a":"\\4111"}`: `{"a":"\\4111"}`,
	} {
		j, err := One([]byte(`{"id":"a","payload":`+payload+`}`), o)
		if err != nil || string(j.Payload) != want {
			t.Errorf("%s became %s, want %s (%v)", payload, j.Payload, want, err)
		}
	}
	for _, line := range []string{`{"id":"` + visa + `"}`, `{"id":"a","payload":{"` + visa + `":1}}`} {
		if _, err := One([]byte(line), o); err == nil {
			t.Errorf("%s was taken in", line)
		}
	}
}

func TestWhatIsKeptOfARefusedLineHasNoCardNumber(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`{"id":"a","payload":{"n":"` + visa + `"}}`, `{"id":"a","payload":{"n":"\u0034111\u00201111\u002D11111111"}}`} {
		r, err := New(strings.NewReader(raw+"\n"+`{"id":"b"}`), Options{Gateway: "g"})
		if err != nil {
			t.Fatal(err)
		}
		l, err := r.Next()
		if _, refused := errors.AsType[job.CardError](l.Err); err != nil || !refused {
			t.Fatal(l.Err, err)
		}
		if kept := string(l.Masked()); strings.Contains(kept, "111111") || !strings.Contains(kept, "1111\"") || !strings.Contains(kept, "*") {
			t.Errorf("kept %s", kept)
		}
		if good, err := r.Next(); err != nil || good.Err != nil || good.Job.ID != "b" {
			t.Errorf("after it: %+v %v", good, err)
		}
	}
}

func TestAFractionIsNoCardNumber(t *testing.T) {
	t.Parallel()
	for number, refused := range map[string]bool{"41.11111111111111": false, "-4.111111111111111": false, "411111111111.1111": false,
		"4111111111111111.0": true, "4111111111111111.25": true, "4.111111111111111e15": true, `"4111.1111.1111.1111"`: true} {
		_, err := One([]byte(`{"id":"a","payload":{"lat":`+number+`}}`), Options{Gateway: "g"})
		if (err != nil) != refused {
			t.Errorf("%s: %v", number, err)
		}
	}
}

// The sender of a payload chooses the names of its fields and their number.
func TestLongNamesOfFieldsCostNoMoreThanTheirLength(t *testing.T) {
	t.Parallel()
	const most = 2000
	for what, payload := range map[string]string{
		"fields": `{"NAME":{"x":"\n` + visa + `"` + strings.Repeat(`,"a":1`, 50_000) + `}}`,
		"finds":  `{"NAME":["` + visa + `"` + strings.Repeat(`,"`+visa+`"`, 20_000) + `]}`,
	} {
		takes := func(length int) time.Duration {
			text := []byte(strings.Replace(payload, "NAME", strings.Repeat("k", length), 1))
			begun := time.Now()
			_, err := cardless(text, "g", job.CardRule{Allow: []string{"token", "card.token"}})
			took := time.Since(begun)
			if err == nil || len(err.Error()) > most {
				t.Errorf("%s: %t, %d bytes", what, err != nil, len(fmt.Sprint(err)))
			}
			return took
		}
		short := max(takes(1), takes(1), takes(1))
		if long := takes(300 << 10); long > 30*short+time.Second { // a copy for each field would be hundreds of times as much
			t.Errorf("%s: below a long name they take %s, and below a short one %s", what, long, short)
		}
	}
}

func TestAllowedFieldsAreFoundBelowOneAnother(t *testing.T) {
	t.Parallel()
	rule := job.CardRule{Allow: []string{"card.token", "a.b.c"}}
	for path, want := range map[string]bool{"card/token": true, "card/token/x": true, "card.token": true, "card.token.x/y": true, "card/token.x": true, "a/b.c": true, "a.b/c": true,
		"card": false, "card/tokens": false, "cardtoken": false, "card./token": false, "card/": false, "/card/token": false, "a/b": false, "x/card/token": false, "a.b/cc": false} {
		if got := rule.Allows(strings.Split(path, "/")); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}

// clean must never accept a payload in which the walk through all fields finds a card number.
func FuzzClean(f *testing.F) {
	for _, in := range []string{`{"a":"4111\t111111111111"}`, `{"a":"\u00e94111111111111111"}`, `{"a":"\bE6379988799797241111111"}`, `{"a":"M\u00fcller\n","b":4111111111111111}`,
		`{"\u0034111111111111111":"\ud83d\ude00 4"}`, `{"a":"\\t4111 1111 1111 1111"}`, `{"a":"4111\u00a01111\u20111111 1111"}`} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		w := cardWalk{}
		w.p.in = in
		w.p.space()
		if err := w.value(0, false); err == nil && w.p.pos == len(in) && w.fields > 0 && clean(in) {
			t.Errorf("%s: taken for clean", in)
		}
	})
}

// Escapes that programs commonly write do not make a payload suspicious.
func TestUsualEscapesAreClean(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]bool{
		`{"name":"J\u00fcrgen M\u00fcller","note":"a\nb \"c\" https:\/\/d","phone":"0043 664 1234567"}`: true,
		`{"name":"\u4e2d\u6587 \ud83d\ude00 12"}`:                                                       true,
		`{"name":"a\tb"}`: false, `{"name":"\u00311"}`: false, `{"name":"\u00e91"}`: false, `{"name":"\u00a0"}`: false,
	} {
		if clean([]byte(payload)) != want {
			t.Errorf("%s: %t", payload, !want)
		}
	}
}
