package provider

import (
	"slices"
	"strings"
	"testing"
)

// TestCallsSayWhatWasCharged checks that each charge is shown once, with the fields of its request. A repeat and a decline charge nothing.
func TestCallsSayWhatWasCharged(t *testing.T) {
	t.Parallel()
	limit, err := ParseLimitBy("header:X-Lane=1000/s")
	if err != nil {
		t.Fatal(err)
	}
	path, err := ParseLimitBy("path=1000/s")
	if err != nil {
		t.Fatal(err)
	}
	r := setup(t, Config{Amount: "amount.value", Currency: "amount.currency", Fates: []Fate{{ID: "no", Status: 402}}, Limits: []Limit{limit, path}})
	for _, c := range []struct{ key, body string }{
		{"a", `{"amount":{"value":4900,"currency":"eur"}}`}, {"a", `{"amount":{"value":4900,"currency":"eur"}}`}, {"b", "amount[value]=7&amount[currency]=USD"},
		{"c", `{"amount":{"value":"1.5","currency":"EUR"}}`}, {"d", `{"amount":5}`}, {"e", "{"}, {"no", `{"amount":{"value":1}}`},
	} {
		r.do("POST", "/pay", c.key, c.body)
	}
	_, _, text := r.do("GET", "/calls", "", "")
	want := []string{
		`"charged":true,"reference":"ch_1","amount":4900,"currency":"EUR"`, `"charged":false`, `"charged":true,"reference":"ch_2","amount":7,"currency":"USD"`,
		`"charged":true,"reference":"ch_3","currency":"EUR"`, `"charged":true,"reference":"ch_4"`, `"charged":true,"reference":"ch_5"`, `"charged":false`,
	}
	var got []string
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(line, `"charged"`)
		what, common, _ := strings.Cut(`"charged"`+rest, `,"path"`)
		if got = append(got, what); common != `:"/pay","headers":{"X-Lane":""}}`+"\n" {
			t.Errorf("%s", line)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("GET /calls has\n%s", text)
	}
}
