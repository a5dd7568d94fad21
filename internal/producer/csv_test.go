package producer

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"spillway/internal/job"
)

func csvOptions() Options { return Options{Format: CSV, IDField: "id", Gateway: "stripe"} }

func TestCSVRecordsBecomeObjectsOfStrings(t *testing.T) {
	t.Parallel()
	in := "\xef\xbb\xbf" + "memo,id,\"amount, minor\"\r\n" +
		"\"say \"\"hi\"\"\nand\r\nbye\",inv-1,10\r\n" +
		"\r\n" +
		",inv-2,\r\n" +
		"\t\\,inv-3,x"
	all, err := readAll(t, in, csvOptions())
	if err != nil || len(all) != 3 {
		t.Fatalf("%d lines, %v", len(all), err)
	}
	want := []struct {
		id, payload string
		from, to    int
	}{
		{"inv-1", `{"memo":"say \"hi\"\nand\r\nbye","id":"inv-1","amount, minor":"10"}`, 2, 4},
		{"inv-2", `{"memo":"","id":"inv-2","amount, minor":""}`, 6, 6},
		{"inv-3", `{"memo":"\t\\","id":"inv-3","amount, minor":"x"}`, 7, 7},
	}
	for i, w := range want {
		l := all[i]
		if l.Err != nil || l.Job.ID != w.id || string(l.Job.Payload) != w.payload || l.Number != w.from || l.Last != w.to {
			t.Errorf("got %+v %s %v, want %+v", l, l.Job.Payload, l.Err, w)
		}
	}
}

func TestCSVLinesThatCantBeUsed(t *testing.T) {
	t.Parallel()
	cases := []struct{ record, want string }{
		{"a", "has 1 fields, but the header row has 2"},
		{"a,b,c", "has 3 fields"},
		{",b", `no id: the field "id" is empty`},
		{" a,b", "only visible ASCII"},
		{"a,5\" pipe", `field 2 ("memo") has a quote within`},
		{`a,"Joe" Smith`, `field 2 ("memo") goes on after its closing quote`},
		{"a,\xff", "byte 3 is not UTF-8"},
		{`a,"b"x,"y` + "\n" + `z"`, "the 1 lines after it stand within the quote"},
	}
	for _, c := range cases {
		all, err := readAll(t, "id,memo\n"+c.record+"\nnext,1\n", csvOptions())
		if err != nil || len(all) != 2 {
			t.Fatalf("%s: %d lines, %v", c.record, len(all), err)
		}
		if all[0].Err == nil || !strings.Contains(all[0].Err.Error(), c.want) {
			t.Errorf("%q: got %v, want …%s…", c.record, all[0].Err, c.want)
		}
		if string(all[0].Raw) != c.record+"\n" {
			t.Errorf("%q: raw %q", c.record, all[0].Raw)
		}
		if all[1].Err != nil || all[1].Job.ID != "next" {
			t.Errorf("%q: the rest does not go on: %v", c.record, all[1].Err)
		}
	}
}

func TestCSVQuoteThatIsNeverClosedSaysWhatItTook(t *testing.T) {
	t.Parallel()
	all, err := readAll(t, "id,memo\na,1\nb,\"oops\nc,3\nd,4\n", csvOptions())
	if err != nil || len(all) != 2 {
		t.Fatalf("%d lines, %v", len(all), err)
	}
	l := all[1]
	want := `field 2 ("memo") opens a quote that is not closed before the end of the file; the 2 lines after it stand within the quote and were not used either`
	if l.Err == nil || l.Err.Error() != want || l.Number != 3 || l.Last != 5 || string(l.Raw) != "b,\"oops\nc,3\nd,4\n" {
		t.Errorf("lines %d to %d, %q: %v", l.Number, l.Last, l.Raw, l.Err)
	}
}

func TestCSVQuoteOverManyMegabytes(t *testing.T) {
	t.Parallel()
	in := "id,memo\na,\"" + strings.Repeat("some text \"\"here\"\"\n", 200_000) + "\"\nb,2\n"
	r, err := New(strings.NewReader(in), csvOptions())
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Next()
	if err != nil || !errors.Is(l.Err, errLongRecord) || l.Rest == nil || len(l.Raw) > job.MaxLine+readSize {
		t.Fatalf("%v, %v, %d bytes", err, l.Err, len(l.Raw))
	}
	n, err := io.Copy(io.Discard, l.Rest)
	if err != nil || int(n)+len(l.Raw) != len(in)-len("id,memo\n")-len("b,2\n") || r.Number() != 200_002 {
		t.Fatalf("%d bytes, up to line %d, %v", n, r.Number(), err)
	}
	if l, err = r.Next(); err != nil || l.Err != nil || l.Job.ID != "b" || l.Number != 200_003 {
		t.Errorf("%+v %v", l, err)
	}
}

func TestCSVHeadersThatCantBe(t *testing.T) {
	t.Parallel()
	cases := []struct{ in, want, hint string }{
		{"", "has no header row", "names of its columns"},
		{"\n\r\n", "has no header row", "names of its columns"},
		{"id,,x\n", "line 1: the header row: column 2 has no name", "name"},
		{"\nid,x,x\n", `line 2: the header row: columns 2 and 3 are both named "x"`, "name of its own"},
		{"invoice,amount\n", `no column is named "id"`, `the columns are "invoice", "amount"`},
		{"id;amount\n", `no column is named "id"`, "another separator"},
		{"id,\"x\n1,2\n", "not closed", "mend"},
		{"id,\xff\n", "not UTF-8", "UTF-8"},
		{"id," + strings.Repeat("x", job.MaxLine) + "\n", "longer than", "names of its columns"},
	}
	for _, c := range cases {
		_, err := New(strings.NewReader(c.in), csvOptions())
		e, ok := errors.AsType[*job.Error](err)
		if !ok || e.Code != job.CodeUsage || !strings.Contains(e.Error(), c.want) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%.40q: %v (%+v)", c.in, err, e)
		}
	}
}

// TestCSVAgreesWithTheStandardLibrary writes random records with encoding/csv and reads them back.
func TestCSVAgreesWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.StringMatching(`[a",\n é\\]{0,8}`)
		rows := rapid.SliceOfN(rapid.SliceOfN(field, 2, 2), 0, 8).Draw(t, "rows")
		crlf := rapid.Bool().Draw(t, "crlf")
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		w.UseCRLF = crlf
		_ = w.Write([]string{"id", "x", "y"})
		for _, row := range rows {
			_ = w.Write(append([]string{"k"}, row...))
		}
		w.Flush()
		r, err := New(&b, csvOptions())
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range rows {
			l, err := r.Next()
			if err != nil || l.Err != nil {
				t.Fatalf("row %d: %v %v", i, err, l.Err)
			}
			var got map[string]string
			if err := json.Unmarshal(l.Job.Payload, &got); err != nil {
				t.Fatal(err)
			}
			for k, want := range map[string]string{"id": "k", "x": row[0], "y": row[1]} {
				if crlf {
					want = strings.ReplaceAll(want, "\n", "\r\n")
				}
				if got[k] != want {
					t.Fatalf("row %d: %s is %q, want %q", i, k, got[k], want)
				}
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
}
