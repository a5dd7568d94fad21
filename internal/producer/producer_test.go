package producer

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"spillway/internal/job"
)

func known(name string) (int64, bool) { return 60, name == "stripe" || name == "adyen" }

func options(o Options) Options {
	if o.Gateways == nil {
		o.Gateways = known
	}
	return o
}

func readAll(t *testing.T, in string, o Options) ([]Line, error) {
	t.Helper()
	r, err := New(strings.NewReader(in), options(o))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	var all []Line
	for {
		l, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, l)
	}
}

func one(t *testing.T, in string, o Options) Line {
	t.Helper()
	all, err := readAll(t, in, o)
	if err != nil || len(all) != 1 {
		t.Fatalf("want one line, got %d, %v", len(all), err)
	}
	return all[0]
}

func TestWrappedLineSaysEverything(t *testing.T) {
	t.Parallel()
	in := `{"id":"inv-1","payload":{"b": 1.50, "a":[1 , {"x":"a b\" c"}]},"gateway":"adyen","cost":3,` +
		`"at":"2026-11-30T18:00:00+01:00","expires":"2026-12-01T00:00:00Z","batch":"2026-11"}` + "\n"
	l := one(t, in, Options{Gateway: "stripe", Batch: "other"})
	if l.Err != nil {
		t.Fatal(l.Err)
	}
	j := l.Job
	if j.ID != "inv-1" || j.Gateway != "adyen" || j.Cost != 3 || j.Batch != "2026-11" {
		t.Errorf("got %+v", j)
	}
	if got, want := string(j.Payload), `{"b":1.50,"a":[1,{"x":"a b\" c"}]}`; got != want {
		t.Errorf("payload %s, want %s", got, want)
	}
	if !j.At.Equal(time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC)) || !j.Expires.Equal(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("at %v expires %v", j.At, j.Expires)
	}
	if string(l.Raw) != in {
		t.Errorf("raw %q", l.Raw)
	}
}

func TestFlagsSpeakWhereTheLineIsSilent(t *testing.T) {
	t.Parallel()
	at, expires := time.Unix(1e9, 0), time.Unix(2e9, 0)
	for _, in := range []string{`{"id":"a"}`, `{"id":"a","cost":null,"at":null,"expires":null,"gateway":null,"batch":null}`} {
		j := one(t, in, Options{Gateway: "stripe", Batch: "b1", At: at, Expires: expires}).Job
		if j.Gateway != "stripe" || j.Batch != "b1" || !j.At.Equal(at) || !j.Expires.Equal(expires) || j.Cost != 1 || string(j.Payload) != "{}" {
			t.Errorf("%s: got %+v", in, j)
		}
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"id":"a"}`: "a", `{"id":17}`: "17", `{"id":-17}`: "-17", `{"id":"\u0041\/"}`: "A/", `{"\u0069d":"k"}`: "k",
		`{"id":12345678901234567890123}`: "12345678901234567890123",
	} {
		if l := one(t, in, Options{Gateway: "stripe"}); l.Err != nil || l.Job.ID != want {
			t.Errorf("%s: id %q, %v", in, l.Job.ID, l.Err)
		}
	}
	l := one(t, ` { "invoice" : 42 , "amount": 10 } `+"\r\n", Options{Gateway: "stripe", IDField: "invoice"})
	if l.Err != nil || l.Job.ID != "42" || string(l.Job.Payload) != `{"invoice":42,"amount":10}` {
		t.Errorf("got %+v, %v", l.Job, l.Err)
	}
}

func TestLinesThatCantBeUsed(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1)
	cases := []struct{ in, want string }{
		{`{"id":"a"`, "the line ends where a comma or '}' is expected"},
		{`{"id":"a",}`, "column 11: a key in quotes is expected"},
		{`{"id":"a"} x`, "column 12: something follows the object"},
		{`{"id":"a}`, "column 7: the string that starts here is not closed"},
		{`{"id" "a"}`, "column 7: a colon is expected"},
		{`{"id":"a","payload":{"x":01}}`, "column 27: a comma or '}' is expected"},
		{`{"id":"a","payload":{"x":1.}}`, "column 28: a digit is expected"},
		{`{"id":"a","payload":{"x":1e}}`, "column 28: a digit is expected"},
		{`{"id":"a","payload":{"x":-}}`, "column 27: a digit is expected"},
		{`{"id":"a","payload":{"x":nul}}`, "column 26: a value is expected"},
		{`{"id":"a","payload":{"x":NaN}}`, "column 26: a value is expected"},
		{`{"id":"a","payload":{"x":[1,]}}`, "column 29: a value is expected"},
		{`{"id":"a","payload":{"x":[1 2]}}`, "column 29: a comma or ']' is expected"},
		{`{"id":"a\x"}`, "not an escape that JSON knows"},
		{`{"id":"a","payload":{"x":"\u12g4"}}`, "not an escape that JSON knows"},
		{`{"id":"a","payload":{"x":"\ud800"}}`, "half a surrogate pair"},
		{`{"id":"a","payload":{"x":"\udc00\ud800"}}`, "half a surrogate pair"},
		{"{\"id\":\"a\tb\"}", "a control character must be escaped"},
		{"{\"id\":\"a\x00\"}", "a control character must be escaped"},
		{"{\"id\":\"\xff\"}", "byte 8 is not UTF-8"},
		{`[{"id":"a"}]`, "not an object but an array"},
		{`"a"`, "not a JSON object"},
		{`inv-1,10`, "not a JSON object"},
		{deep, "nested more than 500 deep"},
		{`{}`, "no id"},
		{`{"id":null}`, "no id"},
		{`{"id":""}`, "no id"},
		{`{"id":1.0}`, "the id must be a text in quotes or a whole number"},
		{`{"id":1e3}`, "the id must be a text in quotes or a whole number"},
		{`{"id":true}`, "the id must be a text in quotes or a whole number"},
		{`{"id":{}}`, "the id must be a text in quotes or a whole number"},
		{`{"id":"a b"}`, `the character ' ' at place 2`},
		{`{"id":"é"}`, "the character 'é' at place 1: only visible ASCII"},
		{`{"id":"` + strings.Repeat("x", 201) + `"}`, "201 characters long"},
		{`{"id":"a","payload":[1]}`, "payload must be an object"},
		{`{"id":"a","payload":null}`, "payload must be an object"},
		{`{"id":"a","payload":"{}"}`, "payload must be an object"},
		{`{"id":"a","amonut":1}`, `unknown key "amonut": known are id, payload, gateway, route, lane, priority, cost, at, expires and batch`},
		{`{"id":"a","ID":"b"}`, `unknown key "ID"`},
		{`{"id":"a","id":"b"}`, `the key "id" stands twice`},
		{`{"id":"a","\u0069d":"b"}`, `the key "id" stands twice`},
		{`{"id":"a","payload":{"x":{"y":1,"z":2,"y":3}}}`, `the key "y" stands twice`},
		{`{"id":"a","gateway":"Stripe"}`, `"Stripe" is not a gateway's name`},
		{`{"id":"a","gateway":"paypal"}`, `no gateway "paypal" is configured`},
		{`{"id":"a","gateway":""}`, "gateway is empty: name one, or leave the key out"},
		{`{"id":"a","gateway":7}`, "gateway must be a text"},
		{`{"id":"a","cost":0}`, "cost must be a whole number of at least 1"},
		{`{"id":"a","cost":-1}`, "cost must be a whole number of at least 1"},
		{`{"id":"a","cost":1.5}`, "cost must be a whole number of at least 1"},
		{`{"id":"a","cost":"1"}`, "cost must be a whole number of at least 1"},
		{`{"id":"a","cost":61}`, "cost 61 is more than 60"},
		{`{"id":"a","cost":99999999999999999999}`, "cost is more than any limit can grant"},
		{`{"id":"a","at":"tomorrow"}`, "at must be a time as in"},
		{`{"id":"a","at":1764500000}`, "at must be a text"},
		{`{"id":"a","expires":"0001-01-01T00:00:00Z"}`, "expires lies before 1970"},
		{`{"id":"a","at":"2026-01-02T00:00:00Z","expires":"2026-01-01T00:00:00Z"}`, "expires must be later than at"},
		{`{"id":"a","batch":""}`, "the batch's name must have 1 to 200 bytes"},
		{`{"id":"a","batch":"a\u001b[2J"}`, "which can't be printed"},
		{`{"id":"a","batch":["x"]}`, "batch must be a text"},
	}
	for _, c := range cases {
		l := one(t, c.in, Options{Gateway: "stripe"})
		if l.Err == nil || !strings.Contains(l.Err.Error(), c.want) {
			t.Errorf("%.80s\n got: %v\nwant: …%s…", c.in, l.Err, c.want)
		}
		if string(l.Raw) != c.in || l.Number != 1 {
			t.Errorf("%.80s: raw %.80q, line %d", c.in, l.Raw, l.Number)
		}
	}
	l := one(t, `{"id":"a"}`, Options{})
	if l.Err == nil || !strings.Contains(l.Err.Error(), "no gateway: name one") {
		t.Errorf("got %v", l.Err)
	}
}

// A backslash in a batch's name is not the first half of the escape that stands at the same place in the next line.
func TestABatchIsNotTakenForTheOneOfTheLineBefore(t *testing.T) {
	t.Parallel()
	got, err := readAll(t, `{"id":"a","batch":"x\\u0079"}`+"\n"+`{"id":"b","batch":"x\u0079"}`, Options{Gateway: "stripe"})
	if err != nil || len(got) != 2 || got[0].Job.Batch != `x\u0079` || got[1].Job.Batch != "xy" {
		t.Errorf("got %+v", got)
	}
}

func TestManyKeysAreComparedToo(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, `"k%d":%d,`, i, i)
	}
	good := `{"id":"a","payload":{` + b.String() + `"last":1}}`
	if l := one(t, good, Options{Gateway: "stripe"}); l.Err != nil {
		t.Error(l.Err)
	}
	for _, twice := range []string{"k0", "k9", "k17", "k4999"} {
		bad := `{"id":"a","payload":{` + b.String() + `"` + twice + `":1}}`
		if l := one(t, bad, Options{Gateway: "stripe"}); l.Err == nil || !strings.Contains(l.Err.Error(), `"`+twice+`" stands twice`) {
			t.Errorf("%s: %v", twice, l.Err)
		}
	}
}

func TestErrorsNeverHoldValues(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`{"id":"a","payload":{"pan":"4111111111111111}`, `{"id":"a","payload":"4111111111111111"}`,
		`{"id":"a","payload":{"pan":4111111111111111x}}`, `4111111111111111`,
	} {
		if l := one(t, in, Options{Gateway: "stripe"}); l.Err == nil || strings.Contains(l.Err.Error(), "4111") {
			t.Errorf("%s: %v", in, l.Err)
		}
	}
}

func TestLineNumbersBlanksAndEndings(t *testing.T) {
	t.Parallel()
	in := "\xef\xbb\xbf\r\n" + `{"id":"a"}` + "\r\n \t\r\n\n" + `bad` + "\n" + `{"id":"b"}`
	all, err := readAll(t, in, Options{Gateway: "stripe"})
	if err != nil || len(all) != 3 {
		t.Fatalf("%d lines, %v", len(all), err)
	}
	for i, want := range []int{2, 5, 6} {
		if all[i].Number != want || all[i].Last != want {
			t.Errorf("line %d is %d to %d, want %d", i, all[i].Number, all[i].Last, want)
		}
	}
	if all[0].Job.ID != "a" || all[1].Err == nil || all[2].Job.ID != "b" {
		t.Errorf("got %+v", all)
	}
	if all, err := readAll(t, "", Options{Gateway: "stripe"}); err != nil || len(all) != 0 {
		t.Errorf("an empty file: %d lines, %v", len(all), err)
	}
}

func TestTooLongLineIsSkippedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	fit := `{"id":"fits","payload":{"x":"` + strings.Repeat("y", job.MaxLine-32) + `"}}`
	if len(fit) != job.MaxLine {
		t.Fatalf("the longest line has %d bytes", len(fit))
	}
	for _, end := range []string{"\n", "\r\n"} {
		in := fit + end + fit + " " + end + strings.Repeat("z", 5<<20) + end + `{"id":"after"}`
		r, err := New(strings.NewReader(in), Options{Gateway: "stripe"})
		if err != nil {
			t.Fatal(err)
		}
		if l, err := r.Next(); err != nil || l.Err != nil || l.Job.ID != "fits" {
			t.Fatalf("longest: %v %v", err, l.Err)
		}
		if l, err := r.Next(); err != nil || !errors.Is(l.Err, errLongLine) || l.Number != 2 {
			t.Fatalf("one byte more: %v %v", err, l.Err)
		}
		l, err := r.Next()
		if err != nil || !errors.Is(l.Err, errLongLine) || l.Rest == nil || len(l.Raw) > job.MaxLine+readSize {
			t.Fatalf("far too long: %v %v, %d bytes held", err, l.Err, len(l.Raw))
		}
		tail, err := io.ReadAll(l.Rest)
		if err != nil || string(l.Raw)+string(tail) != strings.Repeat("z", 5<<20)+end {
			t.Fatalf("its rest: %d bytes, %v", len(tail), err)
		}
		if l, err = r.Next(); err != nil || l.Job.ID != "after" || l.Number != 4 {
			t.Fatalf("after: %+v %v", l, err)
		}
	}
}

func TestUnreadRestIsSkipped(t *testing.T) {
	t.Parallel()
	all, err := readAll(t, strings.Repeat("z", 3<<20)+"\n"+`{"id":"a"}`, Options{Gateway: "stripe"})
	if err != nil || len(all) != 2 || all[1].Job.ID != "a" || all[1].Number != 2 {
		t.Errorf("%d lines, %v", len(all), err)
	}
}

func TestInputThatBreaksOffIsNotALine(t *testing.T) {
	t.Parallel()
	boom := errors.New("disk on fire")
	for _, c := range []struct {
		in string
		o  Options
	}{
		{`{"id":"a"}` + "\n" + `{"id":"b"}`, Options{Gateway: "stripe"}},
		{"id,amount\na,10\nb,1", Options{Gateway: "stripe", IDField: "id", Format: CSV}},
	} {
		r, err := New(io.MultiReader(strings.NewReader(c.in), iotest.ErrReader(boom)), c.o)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := r.Next(); err != nil || l.Job.ID != "a" {
			t.Fatalf("%+v %v", l, err)
		}
		if l, err := r.Next(); !errors.Is(err, boom) || job.CodeOf(err) != job.CodeFailed {
			t.Errorf("got %+v, %v", l, err)
		}
	}
}

func TestOneByteAtATime(t *testing.T) {
	t.Parallel()
	in := `{"id":"a"}` + "\n" + `{"id":"b"}`
	r, err := New(iotest.OneByteReader(strings.NewReader(in)), Options{Gateway: "stripe"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b"} {
		if l, err := r.Next(); err != nil || l.Job.ID != want {
			t.Errorf("%+v %v", l, err)
		}
	}
}

func TestOptionsThatCantBe(t *testing.T) {
	t.Parallel()
	cases := []struct {
		o    Options
		in   string
		code job.Code
		want string
	}{
		{Options{Format: "xml"}, "", job.CodeUsage, `"xml" is not a format`},
		{Options{Format: CSV, Gateway: "stripe"}, "", job.CodeUsage, "needs --id-field"},
		{Options{IDField: "id"}, "", job.CodeUsage, "can't name their gateway"},
		{Options{Gateway: "Stripe"}, "", job.CodeUsage, "not a gateway's name"},
		{Options{Gateway: "paypal"}, "", job.CodeNotFound, `no gateway "paypal"`},
		{Options{Batch: "a\nb"}, "", job.CodeUsage, "can't be printed"},
		{Options{At: time.Unix(2, 0), Expires: time.Unix(1, 0)}, "", job.CodeUsage, "would expire before"},
		{Options{}, "\xff\xfe{\x00", job.CodeUsage, "UTF-16"},
		{Options{}, "\x1f\x8b\x08\x00", job.CodeUsage, "compressed"},
	}
	for _, c := range cases {
		_, err := New(strings.NewReader(c.in), options(c.o))
		if err == nil || job.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

type namedReader struct {
	io.Reader
	name string
}

func (n namedReader) Name() string { return n.name }

func TestFormatByName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a.csv": CSV, "A.CSV": CSV, "a.ndjson": NDJSON, "a.jsonl": NDJSON, "csv": NDJSON, "": NDJSON} {
		if got := FormatOf(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	r, err := New(namedReader{strings.NewReader("id\na\n"), "x.csv"}, Options{Gateway: "stripe", IDField: "id"})
	if err != nil || string(r.Header()) != "id\n" {
		t.Errorf("%v", err)
	}
}
