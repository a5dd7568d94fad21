package producer_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/testkit"
)

// moneyParts are what payloads are put together from: amounts and currencies plain and not, keys twice, escapes, broken JSON.
var moneyParts = []string{
	`{"amount":`, `"amount":`, `{"amount":{"value":`, `"currency":`, `"a\u006dount":`, `"note":"x"`, `"currency":"eur"`, `"currency":"EUR"`, `"currency":"E\u0055R"`,
	`1050`, `0`, `-0`, `007`, `-12`, `1.0`, `1e3`, `"1050"`, `"+5"`, `123456789012345678`, `1234567890123456789`, `null`, `"EUR"`, `"e:u"`, `"é"`,
	`{`, `}`, `,`, `[1,{"amount":7}]`, ` `, "\n", `"`, `\`, `{"amount":1050,"currency":"usd"}`, `{"amount":1234567890123456789,"currency":"EUR"}`, `{"amount":-5,"currency":"EUR"}`,
	`{"amount":12,"currency":"EUR","amount":13}`, `{"amount":12,"currency":"E:R"}`, `{"amount":12,"currency":""}`, `{"amount":{"value":12,"currency":"SEK"}}`, "\xff", "\u212a",
}

func TestMoneyIsWhatTheSlowWayReads(t *testing.T) {
	t.Parallel()
	fields := [][2]string{{"amount", "currency"}, {"amount", ""}, {"amount.value", "amount.currency"}, {"amount.value.x", "currency"}, {"", "currency"}}
	r := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range testkit.Often(40_000, 200_000) {
		var b strings.Builder
		for range 1 + r.IntN(9) {
			b.WriteString(moneyParts[r.IntN(len(moneyParts))])
		}
		f := fields[r.IntN(len(fields))]
		want := job.MoneyField([]byte(b.String()), f[0], f[1])
		if got := producer.Money([]byte(b.String()), f[0], f[1]); got != want {
			t.Fatalf("%q has %q at %v, and was read as %q", b.String(), want, f, got)
		}
		if want != "-" {
			read++
		}
		rule := job.AmountRule{Field: f[0], Currency: f[1], Least: 1, Most: 1<<53 - 1, Required: r.IntN(2) == 0}
		if f[0] == "" {
			continue
		}
		if got, want := producer.CheckAmount([]byte(b.String()), rule), rule.Check([]byte(b.String())); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q is checked as %v at %v, want %v", b.String(), got, f, want)
		}
	}
	if read < 1000 {
		t.Errorf("only %d of the payloads had an amount: this test looks at nothing", read)
	}
}

func BenchmarkMoney(b *testing.B) {
	payload := []byte(`{"amount":1050,"currency":"EUR","customer":"cus_00000001","note":"` + strings.Repeat("x", 130) + `"}`)
	for b.Loop() {
		producer.Money(payload, "amount", "currency")
	}
}
