package producer

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"spillway/internal/job"
)

// account reads everything and checks that each byte of the input is in one line or in a blank one.
func account(t *testing.T, r *Reader, in []byte) (lines []Line) {
	t.Helper()
	last, seen := 0, 0
	for {
		l, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if l.Number <= last || l.Last < l.Number {
			t.Fatalf("line %d to %d after line %d", l.Number, l.Last, last)
		}
		last = l.Last
		at := bytes.Index(in[seen:], l.Raw)
		if at < 0 || !blank(in[seen:seen+at]) {
			t.Fatalf("line %d: %q is not what comes next after byte %d", l.Number, l.Raw, seen)
		}
		seen += at + len(l.Raw)
		if l.Err == nil {
			checkJob(t, l.Job)
		}
		lines = append(lines, l)
	}
	if !blank(in[seen:]) {
		t.Fatalf("%q was swallowed", in[seen:])
	}
	return lines
}

func checkJob(t *testing.T, j job.Job) {
	t.Helper()
	if job.CheckID(j.ID) != nil || job.CheckGateway(j.Gateway) != nil || j.Cost < 1 || len(j.Payload) == 0 || j.Payload[0] != '{' {
		t.Fatalf("not a job: %+v", j)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, j.Payload); err != nil || !bytes.Equal(b.Bytes(), j.Payload) {
		t.Fatalf("payload %q is not compact JSON: %v", j.Payload, err)
	}
}

func FuzzNDJSON(f *testing.F) {
	f.Add([]byte(`{"id":"a","payload":{"x":[1,2.5e-3,{"y":"\u00e9\ud83d\ude00"}]}}`+"\n\n bad\r\n"), "")
	f.Add([]byte("\xef\xbb\xbf{\"id\":1,\"cost\":2,\"at\":\"2026-11-30T18:00:00Z\",\"batch\":\"b\"}"), "")
	f.Add([]byte(`{"invoice":7,"a":true,"b":null}`), "invoice")
	f.Fuzz(func(t *testing.T, in []byte, idField string) {
		r, err := New(bytes.NewReader(in), Options{Gateway: "stripe", IDField: idField})
		if err != nil {
			return
		}
		body := bytes.TrimPrefix(in, []byte("\xef\xbb\xbf"))
		blanks, physical := 0, strings.Split(string(body), "\n")
		if physical[len(physical)-1] == "" {
			physical = physical[:len(physical)-1]
		}
		for _, l := range physical {
			if blank([]byte(l)) {
				blanks++
			}
		}
		lines := account(t, r, body)
		if len(lines)+blanks != len(physical) {
			t.Fatalf("%d lines in, %d lines and %d blanks out", len(physical), len(lines), blanks)
		}
		for _, l := range lines {
			if l.Err == nil && !json.Valid(l.Raw) {
				t.Fatalf("%q is not JSON", l.Raw)
			}
		}
	})
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("id,x\na,\"b\nc\"\n\nd,5\"\ne,\"f\"g\nh,\"i"))
	f.Add([]byte("\xef\xbb\xbfid\r\n\"a\"\r\n\"\"\"\"\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := New(bytes.NewReader(in), csvOptions())
		if err != nil {
			return
		}
		body := bytes.TrimPrefix(in, []byte("\xef\xbb\xbf"))
		at := bytes.Index(body, r.Header())
		account(t, r, body[at+len(r.Header()):])
	})
}

// FuzzParser compares the grammar with the standard library's, which is laxer on three counts.
func FuzzParser(f *testing.F) {
	for _, s := range []string{`{"a":-0.0e+1,"b":[[],{}]}`, `{"a":"\ud800"}`, `{"a":1,"a":2}`, ` {} `, `{"a":1}}`, `{"a":.5}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if checkText(in) != nil {
			return
		}
		var p parser
		err := p.object(in)
		standard := json.Valid(in) && bytes.HasPrefix(bytes.TrimLeft(in, " \t\r\n"), []byte("{"))
		if err == nil && !standard {
			t.Fatalf("%q is not JSON", in)
		}
		if err == nil || !standard {
			return
		}
		for _, stricter := range []string{"twice", "surrogate", "nested"} {
			if strings.Contains(err.Error(), stricter) {
				return
			}
		}
		t.Fatalf("%q: %v", in, err)
	})
}

func FuzzDigest(f *testing.F) {
	f.Add([]byte(`{"b":1,"a":{"d":[1,{"z":1,"y":2}],"c":"\u0041"}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var p parser
		if checkText(in) != nil || p.object(in) != nil {
			_ = Digest(in)
			return
		}
		d := json.NewDecoder(bytes.NewReader(in))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		other, err := json.MarshalIndent(v, " ", "\t") // sorts keys, escapes <, > and &
		if err != nil {
			t.Fatal(err)
		}
		if Digest(in) != Digest(other) {
			t.Fatalf("%q and %q differ", in, other)
		}
	})
}

// FuzzMap: whatever a record holds, its payload is compact JSON whose fields stand in order, or the line can't be used.
func FuzzMap(f *testing.F) {
	f.Add([]byte("Rechnung;Kunde;Betrag;Waehrung;Plätze;Abwesend;Notiz;Rest\r\nR-1;M\xfcller;1.698,81;EUR;1;yes;\"a\";z\r\n"), true)
	f.Add([]byte(`{"Rechnung":1,"Notiz":{"b":[1,{"z":null,"a":"\u00fc"}]},"Betrag":1.50,"Waehrung":"kwd","x":{},"x!":1,"x\"":2,"x y":3}`), false)
	f.Fuzz(func(t *testing.T, in []byte, csv bool) {
		for _, keep := range []bool{false, true} {
			m := stripeMap()
			m.Keep = keep
			o := mappedOptions(m)
			o.Encoding = Latin1
			if !csv {
				o.Format, o.Separator, o.Encoding = NDJSON, 0, ""
			}
			r, err := New(bytes.NewReader(in), o)
			if err != nil {
				return
			}
			for l, err := r.Next(); err == nil; l, err = r.Next() {
				if l.Err != nil {
					continue
				}
				checkJob(t, l.Job)
				var c canon
				c.p.in = l.Job.Payload
				if text, err := c.whole(); err != nil || !bytes.Equal(text, l.Job.Payload) {
					t.Fatalf("%s is %s in order (%v)", l.Job.Payload, text, err)
				}
			}
		}
	})
}
