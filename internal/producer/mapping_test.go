package producer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"spillway/internal/job"
)

// stripeMap is the map of docs/configuration.md, and more.
func stripeMap() *job.Map {
	return &job.Map{Currency: "currency", Fields: []job.MapField{
		{To: "amount", From: "Betrag", As: job.MapMinor},
		{To: "currency", From: "Waehrung", As: job.MapLower},
		{To: "metadata.invoice", From: "Rechnung"},
		{To: "metadata.a.b", From: "Notiz"},
		{To: "customer", From: "Kunde", As: job.MapUpper},
		{To: "seats", From: "Plätze", As: job.MapNumber},
		{To: "off_session", From: "Abwesend", As: job.MapBoolean},
		{To: "confirm", From: "confirm", Value: json.RawMessage("true")},
		{To: "note", From: "note", Value: json.RawMessage(`"\u003cb\u003e"`)},
	}}
}

func mappedOptions(m *job.Map) Options {
	return Options{Format: CSV, IDField: "Rechnung", Gateway: "stripe", Separator: ';', Decimal: ',', Map: func(string) *job.Map { return m }}
}

// payloads returns the payloads of a text, or what is wrong with its lines.
func payloads(t *testing.T, text string, o Options) (all []string) {
	t.Helper()
	lines, err := readAll(t, text, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if l.Err != nil {
			all = append(all, l.Err.Error())
			continue
		}
		if !json.Valid(l.Job.Payload) {
			t.Errorf("line %d: %s is not JSON", l.Number, l.Job.Payload)
		}
		all = append(all, string(l.Job.Payload))
	}
	return all
}

const (
	erpHeader = "Rechnung;Kunde;Betrag;Waehrung;Plätze;Abwesend;Notiz;Rest\r\n"
	whole     = `{"amount":169881,"confirm":true,"currency":"eur","customer":"MÜLLER","metadata":{"a":{"b":"x \"y\""},"invoice":"R-1"},"note":"<b>","off_session":true,"seats":1200.5}`
)

func TestAMapMakesThePayload(t *testing.T) {
	t.Parallel()
	csv := erpHeader + `R-1;Müller;1.698,81;EUR;1.200,50;Yes;"x ""y""";z` + "\r\n" + "R-2;;5;JPY;;;;\r\n"
	small := `{"amount":5,"confirm":true,"currency":"jpy","metadata":{"invoice":"R-2"},"note":"<b>"}`
	want := []string{whole, small}
	o := mappedOptions(stripeMap())
	if got := payloads(t, csv, o); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("CSV:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	o.Format, o.Separator = NDJSON, 0
	plain := `{"Rest":"z", "Notiz":"x \u0022y\"","Abwesend":true,"Plätze":1200.50,"Waehrung":"EUR","Betrag":"1.698,81","Kunde":"M\u00fcller","Rechnung":"R-1"}` + "\n" +
		`{"Rechnung":"R-2","Betrag":5,"Kunde":null,"Waehrung":"JPY","Notiz":""}` + "\n"
	if got := payloads(t, plain, o); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("NDJSON:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	o.IDField = ""
	var wrapped strings.Builder
	for i, line := range strings.Split(strings.TrimSpace(plain), "\n") {
		fmt.Fprintf(&wrapped, `{"payload":%s,"id":"R-%d"}`+"\n", line, i+1)
	}
	if got := payloads(t, wrapped.String(), o); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("wrapped:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What dlq export and dlq show write is what a map has made: made again, it would be another payload.
func TestPayloadsAreMappedOnce(t *testing.T) {
	t.Parallel()
	o := Options{Map: func(string) *job.Map { return stripeMap() }, Open: func(string, string, []byte) ([]byte, error) { return []byte(`{"s":1}`), nil }}
	for line, want := range map[string]string{
		`{"id":"a","gateway":"stripe","payload":{"x":1},"mapped":true}`:    `{"x":1}`,
		`{"mapped":true,"id":"a","gateway":"stripe","payload":{"x":1}}`:    `{"x":1}`,
		`{"id":"a","gateway":"stripe","sealed":"AAAA"}`:                    `{"s":1}`,
		`{"id":"a","gateway":"stripe","payload":{},"mapped":"yes"}`:        "mapped must be true or false: whether the payload is already what the gateway's map makes",
		`{"id":"a","gateway":"stripe","payload":{"Kunde":"k"}}`:            `{"confirm":true,"customer":"K","note":"<b>"}`,
		`{"id":"a","payload":{"Kunde":"k"}}`:                               errNoGateway.Error(),
		`{"id":"a","gateway":"stripe","payload":{"Kunde":{"name":"k"}}}`:   `the field "Kunde" is not a text`,
		`{"id":"a","gateway":"stripe","payload":{"Notiz":{"b":1,"a":[]}}}`: `{"confirm":true,"metadata":{"a":{"b":{"a":[],"b":1}}},"note":"<b>"}`,
	} {
		if got := payloads(t, line, o); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	o.Shown = true
	if got := payloads(t, `{"id":"a","gateway":"stripe","payload":{"x":1},"error":"e"}`, o); got[0] != `{"x":1}` {
		t.Errorf("what dlq show writes: %s", got)
	}
}

func TestTheRestIsKeptWhereTheMapSaysSo(t *testing.T) {
	t.Parallel()
	m := &job.Map{Keep: true, Currency: "cur", Fields: []job.MapField{{To: "amount", From: "Betrag", As: job.MapMinor}, {To: "metadata.name", From: "kunde.name"}}}
	want := []string{`{"amount":150,"cur":"EUR","metadata":{"name":"x"},"z.z":"1"}`}
	o := mappedOptions(m)
	if got := payloads(t, "z.z;Rechnung;Betrag;cur;metadata;kunde.name;leer\n1;R;1,5;EUR;lost;x;\n", o); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("CSV: %s", got)
	}
	o.Format, o.Separator = NDJSON, 0
	m.Fields[1].From = "kunde.name"
	if got := payloads(t, `{"cur":"EUR","kunde":{"name":"x","more":[]},"Betrag":"1,5","z.z":"1","Rechnung":"R","metadata":{"m":1}}`, o); len(got) != 1 ||
		got[0] != `{"amount":150,"cur":"EUR","kunde":{"more":[],"name":"x"},"metadata":{"name":"x"},"z.z":"1"}` {
		t.Errorf("NDJSON: %s", got)
	}
	m.Fields = nil
	if got := payloads(t, `{"Rechnung":"R","b":1,"a":2}`, o); got[0] != `{"a":2,"b":1}` {
		t.Errorf("all but the id: %s", got)
	}
}

func TestNumbersAreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	const no = "-"
	for _, c := range []struct {
		text        string
		mark        byte
		plain, cent string // as a number, and in hundredths
	}{
		{"1.698,81", ',', "1698.81", "169881"}, {"1698,81", ',', "1698.81", "169881"}, {"1,698.81", '.', "1698.81", "169881"}, {"5", ',', "5", "500"},
		{" 12,5 ", ',', "12.5", "1250"}, {"12,500", ',', "12.5", "1250"}, {"1.234.567", ',', "1234567", "123456700"}, {"007,10", ',', "7.1", "710"},
		{"-1,00", ',', "-1", "-100"}, {"+1", ',', "1", "100"}, {"-0,00", ',', "0", "0"}, {"0,01", ',', "0.01", "1"}, {"1'698.81", '.', "1698.81", "169881"},
		{"1\u00a0698,81", ',', "1698.81", "169881"}, {"1\u202f698,81", ',', "1698.81", "169881"}, {"1 698,81", ',', "1698.81", "169881"}, {"1’000", '.', "1000", "100000"},
		{"1698.81", 0, "1698.81", "169881"}, {"1 698.81", 0, "1698.81", "169881"}, {"1.690", 0, "1.69", no}, {"1.690", '.', "1.69", "169"}, {"1.69", 0, "1.69", "169"}, {"1.000", '.', "1", "100"}, {"7,125", 0, no, no}, {"1,698.81", 0, no, no}, {"12,5", 0, no, no},
		{"0,001", ',', "0.001", no}, {"12,345", ',', "12.345", no},
		{"12.34", ',', no, no}, {"1.698,81", '.', no, no}, {"1698,8,1", ',', no, no}, {"", ',', no, no}, {"-", ',', no, no}, {",5", ',', no, no}, {"5,", ',', no, no},
		{"1.2345", ',', no, no}, {"1.23.456", ',', no, no}, {"1234.567", ',', no, no}, {"1.234'567", ',', no, no}, {".123", ',', no, no}, {"1.", ',', no, no},
		{"1e3", '.', no, no}, {"--1", '.', no, no}, {"1 -", '.', no, no}, {"EUR 5", '.', no, no}, {"٣", '.', no, no}, {"1,-", ',', no, no},
	} {
		var n number
		plain, cent := no, no
		if n.read([]byte(c.text), c.mark) {
			plain = string(n.appendPlain(nil))
			n.read([]byte(c.text), c.mark)
			if minor, ok := n.appendMinor(nil, 2); ok {
				cent = string(minor)
			}
		}
		if plain != c.plain || cent != c.cent {
			t.Errorf("%q is read as %s and %s, want %s and %s", c.text, plain, cent, c.plain, c.cent)
		}
	}
}

func TestEachCurrencyHasItsOwnDecimals(t *testing.T) {
	t.Parallel()
	o := mappedOptions(&job.Map{Currency: "c", Fields: []job.MapField{{To: "a", From: "a", As: job.MapMinor}, {To: "c", From: "c"}}})
	file := "Rechnung;a;c\n" + "1;1,5;EUR\n2;1,5;kwd\n3;1,00;JPY\n4;1,5;JPY\n5;1,005;EUR\n6;1;XYZ\n7;1;\n8;1.5;EUR\n9;viel;EUR\n10;;EUR\n"
	want := []string{`{"a":150,"c":"EUR"}`, `{"a":1500,"c":"kwd"}`, `{"a":1,"c":"JPY"}`,
		`the amount in the field "a" has 1 decimals, and its currency is divided into 0`, `the amount in the field "a" has 3 decimals, and its currency is divided into 2`,
		`the field "c" has no currency that ISO 4217 lists: write its three letters, like EUR`,
		`the field "c" has no currency that ISO 4217 lists: write its three letters, like EUR`,
		`the field "a" is not a number with ',' before its decimals: say --decimal '.' if the file has '.' there`,
		`the field "a" is not a number: write it like 1698,81`, `{"c":"EUR"}`}
	if got := payloads(t, file, o); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	lines, err := readAll(t, file, o)
	for _, l := range lines[3:9] {
		if _, ok := l.Err.(job.MoneyError); err != nil || !ok {
			t.Errorf("line %d: %v is not a fault of money", l.Number, l.Err)
		}
	}
}

func TestAPointThatNobodyExplainedMayStandBetweenThousands(t *testing.T) {
	t.Parallel()
	o := mappedOptions(&job.Map{Currency: "c", Fields: []job.MapField{{To: "a", From: "a", As: job.MapMinor}, {To: "c", From: "c"}}})
	o.Decimal = 0
	why := `the amount in the field "a" has 3 decimals, and its currency is divided into 2; say --decimal ',' if the point stands between thousands`
	want := fmt.Sprint([]string{why, `{"a":1690,"c":"KWD"}`, `the amount in the field "a" has 4 decimals, and its currency is divided into 2`})
	if got := payloads(t, "Rechnung;a;c\n1;1.690;EUR\n2;1.690;KWD\n3;1.6900;EUR\n", o); fmt.Sprint(got) != want {
		t.Errorf("CSV: %s", strings.Join(got, "\n"))
	}
	o.Format, o.Separator = NDJSON, 0
	if got := payloads(t, `{"Rechnung":1,"a":1.690,"c":"EUR"}`, o); got[0] != `{"a":169,"c":"EUR"}` {
		t.Errorf("NDJSON: %s", got)
	}
}

// 7,125 is seven or seven thousand. Nobody is charged a thousand times too much because nobody said which.
func TestACommaThatNobodyExplainedIsNoNumber(t *testing.T) {
	t.Parallel()
	o := mappedOptions(&job.Map{Fields: []job.MapField{{To: "n", From: "n", As: job.MapNumber}}})
	file := "Rechnung;n\n1;7,125\n2;7.125\n3;x\n"
	for decimal, want := range map[byte][]string{
		0: {`the field "n" has a comma: say --decimal ',' if it stands before the decimals, or --decimal '.' if it stands between thousands`, `{"n":7.125}`,
			`the field "n" is not a number: write it like 1698.81`},
		',': {`{"n":7.125}`, `{"n":7125}`, `the field "n" is not a number: write it like 1698,81`},
		'.': {`{"n":7125}`, `{"n":7.125}`, `the field "n" is not a number: write it like 1698.81`},
	} {
		o.Decimal = decimal
		if got := payloads(t, file, o); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("with %q:\n%s", decimal, strings.Join(got, "\n"))
		}
	}
}

func TestAFieldOfAMapNeedsItsColumn(t *testing.T) {
	t.Parallel()
	_, err := New(strings.NewReader("Rechnung;Betrag\n"), mappedOptions(&job.Map{Fields: []job.MapField{{To: "amount", From: "Betreg"}}}))
	e, _ := err.(*job.Error)
	if e == nil || e.Code != job.CodeUsage || e.Message != `line 1: the header row: no column is named "Betreg", from which the gateway's map takes amount` ||
		e.Hint != `mend the map in the configuration, or the header row; the columns are "Rechnung", "Betrag"` {
		t.Errorf("%+v", e)
	}
}

func TestBooleansAreWords(t *testing.T) {
	t.Parallel()
	o := mappedOptions(&job.Map{Fields: []job.MapField{{To: "b", From: "b", As: job.MapBoolean}}})
	bad := `the field "b" is neither true nor false: write true, yes or 1, or false, no or 0`
	want := fmt.Sprint([]string{`{"b":true}`, `{"b":true}`, `{"b":true}`, `{"b":false}`, `{"b":false}`, `{"b":false}`, `{}`, bad})
	if got := payloads(t, "Rechnung;b\n1;TRUE\n2; yes\n3;1\n4;false\n5;No\n6;0\n7;\n8;2\n", o); fmt.Sprint(got) != want {
		t.Errorf("%s", got)
	}
}

// TestCSVAndNDJSONMakeTheSamePayloads writes random records both ways.
func TestCSVAndNDJSONMakeTheSamePayloads(t *testing.T) {
	t.Parallel()
	columns := []string{"id", "a.b", "Betrag", "Währung", "z", "x \"y\""}
	rapid.Check(t, func(t *rapid.T) {
		m := &job.Map{Keep: rapid.Bool().Draw(t, "keep"), Currency: "c", Fields: []job.MapField{{To: "c", From: "Währung", As: job.MapLower},
			{To: "amount", From: "Betrag", As: job.MapMinor}, {To: "m.n", From: "a.b"}, {To: "m.a", From: "z"}, {To: "k", Value: json.RawMessage("7")}}}
		o := mappedOptions(m)
		o.IDField = "id"
		record := []string{"k", "", rapid.SampledFrom([]string{"1,5", "1.000", "x", ""}).Draw(t, "amount"), rapid.SampledFrom([]string{"EUR", "Jpy", "Q"}).Draw(t, "currency"), "", ""}
		for _, i := range []int{1, 4, 5} {
			record[i] = rapid.StringMatching(`[a";\n é\\<]{0,6}`).Draw(t, columns[i])
		}
		var csv bytes.Buffer
		for _, row := range [][]string{columns, record} {
			for i, f := range row {
				fmt.Fprintf(&csv, `%s"%s"`, strings.Repeat(";", b2i(i > 0)), strings.ReplaceAll(f, `"`, `""`))
			}
			csv.WriteString("\n")
		}
		object := map[string]string{}
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "order") {
			object[columns[i]] = record[i]
		}
		line, _ := json.Marshal(object) // escapes <, and sorts
		one := first(t, csv.String(), o)
		o.Format, o.Separator = NDJSON, 0
		if other := first(t, string(line), o); string(one.Job.Payload) != string(other.Job.Payload) || fmt.Sprint(one.Err) != fmt.Sprint(other.Err) {
			t.Fatalf("%s\n%s\n%s %v\n%s %v", csv.String(), line, one.Job.Payload, one.Err, other.Job.Payload, other.Err)
		}
		if one.Err == nil && Digest(one.Job.Payload) == "" {
			t.Fatal("no digest")
		}
	})
}

func first(t *rapid.T, text string, o Options) Line {
	r, err := New(strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Next()
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return l
}
