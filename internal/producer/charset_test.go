package producer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"spillway/internal/job"
)

func TestOtherEncodingsAreRead(t *testing.T) {
	t.Parallel()
	o := csvOptions()
	o.Encoding = Windows1252
	lines, err := readAll(t, "id,n\xe4me\na,M\xfcller \x80\nb,plain\nc,\x81\nd,Müller\n", o)
	if err != nil || len(lines) != 4 {
		t.Fatal(len(lines), err)
	}
	want := []string{`{"id":"a","näme":"Müller €"} <nil>`, `{"id":"b","näme":"plain"} <nil>`,
		" byte 3 is not a character of windows-1252: convert the file to UTF-8, from the encoding that it has",
		" byte 4 begins a character of UTF-8, not of windows-1252: leave --encoding out"}
	for i, l := range lines {
		if got := fmt.Sprintf("%s %v", l.Job.Payload, l.Err); got != want[i] {
			t.Errorf("got %s, want %s", got, want[i])
		}
	}
	if string(lines[0].Raw) != "a,M\xfcller \x80\n" {
		t.Errorf("the line as read is %q", lines[0].Raw)
	}
	o.Encoding = Latin1
	lines, err = readAll(t, "id,x\na,\x80\nb,\xfc\n", o)
	if err != nil || lines[0].Err == nil || lines[0].Err.Error() != "byte 3 is not a character of latin-1: say --encoding windows-1252" || lines[1].Err != nil ||
		string(lines[1].Job.Payload) != `{"id":"b","x":"ü"}` {
		t.Errorf("%+v %v", lines, err)
	}
	lines, err = readAll(t, `{"id":"a","payload":{"x":"`+"\xfc"+`"}}`, Options{Gateway: "stripe", Encoding: Latin1})
	if err != nil || string(lines[0].Job.Payload) != `{"x":"ü"}` {
		t.Errorf("NDJSON: %+v %v", lines, err)
	}
}

func TestAWrongEncodingOrSeparatorSaysWhatToType(t *testing.T) {
	t.Parallel()
	lines, err := readAll(t, "id,x\na,\xfc\n", csvOptions())
	if err != nil || lines[0].Err.Error() != "byte 3 is not UTF-8: convert the file, as with iconv -t UTF-8; or say --encoding windows-1252, if Excel wrote it, or latin-1" {
		t.Errorf("%v %v", lines, err)
	}
	for _, c := range []struct {
		separator    byte
		header, hint string
	}{
		{0, "id;x", "fields are separated by commas; this file seems to use another separator: say --separator ';'"},
		{0, "Id;x", "fields are separated by commas; this file seems to use another separator: say --separator ';'"},
		{0, "x, y;id", "fields are separated by commas; this file seems to use another separator: say --separator ';'"},
		{0, "x\tid", "fields are separated by commas; this file seems to use another separator: say --separator tab"},
		{';', "id,x", "fields are separated by ';'; this file seems to use another separator: say --separator ','"},
		{'\t', "id|x", "fields are separated by tabs; this file seems to use another separator: say --separator '|'"},
		{';', "Id;x", `the columns are "Id", "x"`},
		{0, "d\xfc", "name the file's encoding with --encoding, or convert the file to UTF-8"},
	} {
		o := csvOptions()
		o.Separator = c.separator
		_, err := New(strings.NewReader(c.header+"\n"), o)
		if e, ok := errors.AsType[*job.Error](err); !ok || e.Hint != c.hint {
			t.Errorf("%q: %v, want the hint %s", c.header, err, c.hint)
		}
	}
}

func TestOtherSeparators(t *testing.T) {
	t.Parallel()
	for _, comma := range []byte(";\t|") {
		o := csvOptions()
		o.Separator = comma
		text := strings.ReplaceAll("id;x;y\na;\"1;\n\"\"2\";a, b\n", ";", string(comma))
		want := strings.ReplaceAll(`{"id":"a","x":"1;\n\"2","y":"a, b"}`, ";", strings.Trim(string(appendQuoted(nil, []byte{comma})), `"`))
		lines, err := readAll(t, text, o)
		if err != nil || len(lines) != 1 || string(lines[0].Job.Payload) != want {
			t.Errorf("%q: %+v %v, want %s", comma, lines, err, want)
		}
	}
}

func TestFormsThatNoFileHas(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"--separator is for CSV files":             {Format: NDJSON, Separator: ';'},
		`'a' can't separate fields`:                {Format: CSV, IDField: "id", Gateway: "g", Separator: 'a'},
		`'"' can't separate fields`:                {Format: CSV, IDField: "id", Gateway: "g", Separator: '"'},
		`'x' can't stand before decimals`:          {Format: NDJSON, Decimal: 'x'},
		`"utf-7" is not an encoding`:               {Format: NDJSON, Encoding: "utf-7"},
		`'\n' can't separate fields`:               {Format: CSV, IDField: "id", Gateway: "g", Separator: '\n'},
		`a CSV file needs --id-field`:              {Format: CSV, Separator: ';', Gateway: "g"},
		`'` + "\u00c3" + `' can't separate fields`: {Format: CSV, IDField: "id", Gateway: "g", Separator: 0xc3},
	} {
		_, err := New(strings.NewReader("id,x\n"), o)
		if e, ok := errors.AsType[*job.Error](err); !ok || e.Code != job.CodeUsage || e.Message != want || e.Hint == "" {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
