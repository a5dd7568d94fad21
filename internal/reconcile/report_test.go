package reconcile

import (
	"fmt"
	"io"
	"math/big"
	"strings"
	"testing"

	"spillway/internal/job"
)

func TestLinesOfAReport(t *testing.T) {
	t.Parallel()
	units := ReportOptions{Columns: Columns{ID: "id", Amount: "a", Currency: "c", Reference: "r"}, Gateway: "g", Format: "csv"}
	nested := ReportOptions{Columns: Columns{ID: "meta.job", Amount: "pay.cents", Status: "code", Reference: "ch.id"}, Gateway: "g", Minor: true, OneCurrency: "JPY", Done: []string{"200"}, Refused: []string{"402"}}
	for _, c := range []struct {
		opt        ReportOptions
		text, want string
	}{
		{units, "id,a,c,r\nx,49.00,eur,ch_1\n", "2 x 4900 EUR ch_1"},
		{units, "id,a,c,r\nx,49,JPY,\n", "2 x 49 JPY "},
		{units, "id,a,c,r\nx,1.05,KWD,\"a \"\"b\"\"\"\n", `2 x 1050 KWD a "b"`},
		{units, "id,a,c,r\nx,1.005,EUR,\n", `2 the amount in the field "a" has 3 decimals, and its currency is divided into 2; say --decimal ',' if the point stands between thousands`},
		{units, "id,a,c,r\nx,1.00,XXZ,\n", `2 the field "c" has no currency that ISO 4217 lists: write its three letters, like EUR`},
		{units, "id,a,c,r\nx,,EUR,\n", `2 the field "a" has no amount`},
		{units, "id,a,c,r\nx,1234567890123456789.00,EUR,\n", `2 the amount in the field "a" is larger than any in the books`},
		{units, "id,a,c,r\na b,1.00,EUR,\n", `2 the id has the character ' ' at place 2`},
		{nested, `{"meta":{"job":"x"},"pay":{"cents":1050},"code":200,"ch":{"id":"ch_1"}}`, "1 x 1050 JPY ch_1"},
		{nested, `{"meta.job":"x","pay":{"cents":"1050"},"code":"402"}`, "1 x 1050 JPY  refused"},
		{nested, `{"meta":{"job":7},"code":"pending"}`, "1 7   passed over pending"},
		{nested, `{"meta":{"job":"x"},"pay":{"cents":10.5},"code":200}`, `1 the field "pay.cents" has no amount in minor units, which is a whole number: leave --amounts minor out if it is in units of the currency`},
		{nested, `{"meta":{"job":"x"},"pay":{"cents":1},"code":200,"ch":{"id":{}}}`, `1 the field "ch.id" is neither a text nor a number`},
		{nested, `{"meta":{},"code":200}`, `1 no id: the field "meta.job" is missing, null or empty`},
	} {
		r := reportOf(t, c.text, c.opt)
		l, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%d %s %s %s", l.Number, l.ID, l.Money, l.Reference)
		switch {
		case l.Err != nil:
			got = fmt.Sprintf("%d %v", l.Number, l.Err)
		case l.PassedOver:
			got += " passed over " + l.Status
		case l.Refused:
			got += " refused"
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
}

// FuzzReport checks that each line of any report has an id that a job may have and money that the books may have, or says why it can't be used.
func FuzzReport(f *testing.F) {
	f.Add([]byte("id;a;c;s;r\nx;1.050,00;EUR;paid;ch_1\n;;;;\n"), true)
	f.Add([]byte("\ufeffid;a;c;s;r\r\n\"x\n\";1;JPY;failed;\r\n"), true)
	f.Add([]byte(`{"id":"x","a":"1,05","c":"eur","s":"paid","r":7}`+"\n{\n"), false)
	f.Add([]byte(`{"id":9,"a":10.5,"c":"KWD","s":1e3,"r":[]}`), false)
	f.Fuzz(func(t *testing.T, text []byte, csv bool) {
		opt := ReportOptions{Columns: Columns{"id", "a", "c", "s", "r"}, Gateway: "g", Format: "ndjson", Decimal: ',', Done: []string{"paid"}, Refused: []string{"failed"}}
		if csv {
			opt.Format, opt.Separator = "csv", ';'
		}
		r, err := NewReport(strings.NewReader(string(text)), opt)
		if err != nil {
			if job.CodeOf(err) != job.CodeUsage {
				t.Fatal(err)
			}
			return
		}
		for last := 0; ; {
			l, err := r.Next()
			if err == io.EOF {
				return
			}
			if err != nil || l.Number <= last {
				t.Fatalf("line %d after %d: %v", l.Number, last, err)
			}
			last = l.Number
			if l.Err != nil || l.PassedOver {
				continue
			}
			if job.CheckID(l.ID) != nil {
				t.Fatalf("the id %q", l.ID)
			}
			m, ok := job.Booked(l.Money)
			if !l.Refused && (!ok || !job.IsCurrency(m.Currency) || m.Minor.CmpAbs(big.NewInt(1e18)) >= 0) {
				t.Fatalf("the money %q", l.Money)
			}
		}
	})
}
