package cli

import (
	"bytes"
	"math/big"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

// A part of an amount is another amount. So sums break only between currencies, however narrow the terminal is.
func TestSumsAreWholeOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	large, _ := new(big.Int).SetString("123456789012345678901", 10)
	sums := job.Totals{Amount: job.Amounts{"EUR": large, "JPY": big.NewInt(1050), "KWD": large}, NoAmount: 12}
	for width := 40; width <= 200; width++ {
		var out bytes.Buffer
		table := NewTable(Streams{Out: &out, OutTerminal: true, OutWidth: width}, time.Now(), "GATEWAY", "STATE", "REASON", "JOBS", "MONEY", "ETA")
		table.Row(Uncut("stripe-marketplace"), job.Parked, job.UnknownOutcome, int64(1000000), table.Money(sums), "")
		table.Row("all", "total", "", int64(1000000), table.Money(sums), "2d4h")
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"EUR 1,234,567,890,123,456,789.01", "JPY 1,050", "KWD 123,456,789,012,345,678.901", "12 jobs without an amount"} {
			if n := strings.Count(out.String(), want); n != 2 {
				t.Fatalf("at %d columns %q is there %d times:\n%s", width, want, n, out.String())
			}
		}
	}
}
