package producer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"spillway/internal/job"
)

func benchFile(lines int, format string) []byte {
	var b bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&b, format, i, 1000+i, i)
	}
	return b.Bytes()
}

const (
	payload200 = `{"amount":%d,"currency":"eur","customer":"cus_%014d","description":"Subscription for November 2026, thank you","metadata":{"plan":"gold","seats":12,"country":"DE"},"confirm":true,"off_session":true}`
	wrapped200 = `{"id":"inv-%09d","payload":` + payload200 + `}` + "\n"
	plain200   = `{"invoice":"inv-%09d","amount":%d,"customer":"cus_%014d","description": "Subscription for November 2026, thank you", "plan": "gold"}` + "\n"
	csv200     = "inv-%09d,%d,eur,cus_%014d,\"Subscription for November 2026, thank you\",gold,12,DE\n"
)

func benchmark(b *testing.B, file []byte, lines int, o Options) {
	b.ReportAllocs()
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		r, err := New(bytes.NewReader(file), o)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			l, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil || l.Err != nil {
				b.Fatal(err, l.Err)
			}
			n++
		}
		if n != lines {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

func BenchmarkWrapped(b *testing.B) {
	benchmark(b, benchFile(10_000, wrapped200), 10_000, Options{Gateway: "stripe"})
}

func BenchmarkIDField(b *testing.B) {
	benchmark(b, benchFile(10_000, plain200), 10_000, Options{Gateway: "stripe", IDField: "invoice"})
}

func BenchmarkCSV(b *testing.B) {
	file := append([]byte("id,amount,currency,customer,description,plan,seats,country\n"), benchFile(10_000, csv200)...)
	benchmark(b, file, 10_000, csvOptions())
}

func BenchmarkDigest(b *testing.B) {
	p := fmt.Appendf(nil, payload200, 1050, 7)
	b.ReportAllocs()
	for b.Loop() {
		Digest(p)
	}
}

// BenchmarkMap is BenchmarkCSV with a map, and the same in latin-1 with decimal commas.
func BenchmarkMap(b *testing.B) {
	m := &job.Map{Currency: "currency", Fields: []job.MapField{
		{To: "amount", From: "amount", As: job.MapMinor}, {To: "currency", From: "currency", As: job.MapLower}, {To: "customer", From: "customer"},
		{To: "description", From: "description"}, {To: "metadata.plan", From: "plan"}, {To: "metadata.seats", From: "seats", As: job.MapNumber},
		{To: "metadata.country", From: "country"}, {To: "confirm", From: "confirm", Value: json.RawMessage("true")}}}
	o := csvOptions()
	o.Map = func(string) *job.Map { return m }
	file := append([]byte("id,amount,currency,customer,description,plan,seats,country\n"), benchFile(10_000, csv200)...)
	b.Run("csv", func(b *testing.B) { benchmark(b, file, 10_000, o) })
	plain := benchFile(10_000, `{"id":"inv-%09d","amount":%d,"currency":"eur","customer":"cus_%014d","description":"Subscription for November 2026","plan":"gold","seats":12,"country":"DE"}`+"\n")
	o.Format = NDJSON
	b.Run("ndjson", func(b *testing.B) { benchmark(b, plain, 10_000, o) })
	o.Format, o.Separator, o.Decimal, o.Encoding = CSV, ';', ',', Latin1
	file = append([]byte("id;amount;currency;customer;description;plan;seats;country\n"), benchFile(10_000, "inv-%09d;%d,50;EUR;cus_%014d;Abo f\xfcr November;gold;12;DE\n")...)
	b.Run("latin1", func(b *testing.B) { benchmark(b, file, 10_000, o) })
}
