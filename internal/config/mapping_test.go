package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"spillway/internal/job"
)

// mapped is a gateway with a map of these lines.
func mapped(amount, lines string) string {
	return strings.TrimPrefix(minimal, "\n") + "    amount: " + amount + "\n    map:\n      " + strings.ReplaceAll(lines, "\n", "\n      ") + "\n"
}

const bothFields = "{field: amount, currency: currency}"

func TestAMapIsRead(t *testing.T) {
	t.Parallel()
	g := parse(t, mapped(bothFields, `amount: {from: Betrag, minor: true}
currency: {from: "Währung", lower: true, upper: false}
metadata.invoice: {from: Rechnung}
customer: {}
count: {number: true}
confirm: {value: true}
types: {value: [card, 7, 1.5, "7"]}
text: {value: "${CANARY} & <b>"}
rest: {upper: true}
rest2: {boolean: true}
`)).Gateways[0]
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	want := &job.Map{Currency: "currency", Fields: []job.MapField{
		{To: "amount", From: "Betrag", As: job.MapMinor},
		{To: "currency", From: "Währung", As: job.MapLower},
		{To: "metadata.invoice", From: "Rechnung"},
		{To: "customer", From: "customer"},
		{To: "count", From: "count", As: job.MapNumber},
		{To: "confirm", From: "confirm", Value: raw("true")},
		{To: "types", From: "types", Value: raw(`["card",7,1.5,"7"]`)},
		{To: "text", From: "text", Value: raw(`"` + canary + ` \u0026 \u003cb\u003e"`)},
		{To: "rest", From: "rest", As: job.MapUpper},
		{To: "rest2", From: "rest2", As: job.MapBoolean},
	}}
	if !reflect.DeepEqual(g.Map, want) {
		t.Errorf("got\n%+v\nwant\n%+v", g.Map, want)
	}
	if !g.Amount.Required {
		t.Error("a gateway with a map does not ask for amounts")
	}
	kept := parse(t, mapped("{field: amount, required: false}", "rest: keep")).Gateways[0]
	if !kept.Map.Keep || kept.Map.Currency != "" || kept.Amount.Required {
		t.Errorf("%+v, %+v", kept.Map, kept.Amount)
	}
}

func TestAmountsAreRequiredWhereTheFileSaysSo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": false, "    amount: {field: a}\n": false, "    amount: {field: a, required: true}\n": true} {
		if got := parse(t, minimal+text).Gateways[0].Amount.Required; got != want {
			t.Errorf("%q: required is %v", text, got)
		}
	}
}

func TestAURLTakesWhatTheMapMakes(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"m.a": "", "o.x": "",
		"m.b": `f:3:20: gateways.g.request.url: the url takes the payload's field "m.b", and the map does not make it: name it there`,
	} {
		text := mapped("{field: o.a}", "o: {}\nm.a: {}")
		_, err := Parse("f", []byte(strings.Replace(text, "https://api.example.com/", `"https://api.example.com/{id}/{payload.`+field+`}"`, 1)), Options{})
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s: got %s, want %s", field, got, want)
		}
	}
}

func TestMapsThatCantBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ amount, lines, want string }{
		{bothFields, "{}", "f:6:5: gateways.g.map: there are no fields, so every payload would be empty: write at least one, like amount: {from: Betrag, minor: true}"},
		{bothFields, "rest: drop", "f:6:5: gateways.g.map: there are no fields, so every payload would be empty: write at least one, like amount: {from: Betrag, minor: true}"},
		{bothFields, "rest: keeep", `f:7:13: gateways.g.map.rest: "keeep" is not a way with the rest: did you mean keep?`},
		{"{field: a}", "a:", "f:7:7: gateways.g.map.a: there is no value: write {} to take the field from the column of its own name, or take the line out"},
		{"{field: a}", "a: Betrag", "f:7:10: gateways.g.map.a: this is not a mapping: write its keys below it, each as key: value"},
		{"{field: a}", "a: {form: Betrag}", "f:7:11: gateways.g.map.a.form: unknown key: did you mean from?"},
		{"{field: a}", `a: {from: ""}`, `f:7:17: gateways.g.map.a.from: "" is empty: write the column's name as it stands in the header row`},
		{"{field: a}", "a: {}\nb..c: {}", `f:8:7: gateways.g.map["b..c"]: "b..c" is not a field: write its name, with dots between the levels, like amount or order.total`},
		{"{field: a}", "a: {from: x, value: 1}", "f:7:27: gateways.g.map.a.value: value is a constant, and from names a column: keep one of them"},
		{"{field: a}", "a: {value: 1, number: true}", "f:7:29: gateways.g.map.a.number: value goes out as it stands here, so there is nothing to make of it: take number or value out"},
		{"{field: a}", "a: {lower: true, upper: true}", "f:7:31: gateways.g.map.a.upper: a field can't be both lower and upper: keep one of them"},
		{"{field: a}", "a: {number: yes}", `f:7:19: gateways.g.map.a.number: "yes" is neither true nor false`},
		{"{field: a}", "a: {value: 0x10}", `f:7:18: gateways.g.map.a.value: "0x10" is neither a number nor a word of JSON: write it like 1050, 10.5 or true, or in quotes to send a text`},
		{"{field: a}", "a: {value: {b: 1}}", "f:7:11: gateways.g.map.a.value: this is not a single value: write one, such as a text or a number"},
		{"{field: a.b}", "a: {}\na.b: {}", "f:7:7: gateways.g.map.a: a can't have a value of its own, as a.b stands within it: take one of them out"},
		{"{field: a}", "a: {minor: true}", "f:7:18: gateways.g.map.a.minor: the currency says how many minor units there are, and amount.currency does not say which field has it: " +
			"write amount: {field: amount, currency: currency}"},
		{"{field: a, currency: c}", "a: {minor: true}", `f:7:18: gateways.g.map.a.minor: the currency says how many minor units there are, and the map does not make "c", which amount.currency names: add it`},
		{"{field: amount}", "a: {}", `f:5:21: gateways.g.amount.field: the map makes no field "amount": name it there, or name another field here`},
		{"{field: a, currency: c}", "a: {}", `f:5:34: gateways.g.amount.currency: the map makes no field "c": name it there, or name another field here`},
	} {
		_, err := Parse("f", []byte(mapped(c.amount, c.lines)), Options{Env: testEnv})
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.lines, err, c.want)
		}
	}
}
