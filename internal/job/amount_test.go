package job

import (
	"strings"
	"testing"
)

func TestAmountsAreWholeNumbersWithinTheirBounds(t *testing.T) {
	t.Parallel()
	rule := AmountRule{Field: "amount", Currency: "currency", Least: 1, Most: 1<<53 - 1}
	for payload, want := range map[string]string{
		`{"amount":1050,"currency":"EUR"}`:             "",
		`{"amount":"1050","currency":"eur"}`:           "",
		`{"amount":"0001050","currency":"EUR"}`:        "",
		`{"amount":9007199254740991,"currency":"JPY"}`: "",
		`{"currency":"EUR"}`:                           "",
		`{"amount":null,"currency":null}`:              "",
		`{"amount":5}`:                                 "",
		`{}`:                                           "",
		`{"amount":-500,"currency":"EUR"}`:             "below 1,",
		`{"amount":0,"currency":"EUR"}`:                "below 1,",
		`{"amount":-0,"currency":"EUR"}`:               "below 1,",
		`{"amount":-99999999999999999999}`:             "below 1,",
		`{"amount":9007199254740992,"currency":"EUR"}`: "above 9007199254740991,",
		`{"amount":999999999999999999}`:                "above 9007199254740991,",
		`{"amount":99999999999999999999999999}`:        "above 9007199254740991,",
		`{"amount":1.5}`:                               "whole number",
		`{"amount":10.00}`:                             "whole number",
		`{"amount":1e2}`:                               "whole number",
		`{"amount":1e999999999}`:                       "whole number",
		`{"amount":"+100"}`:                            "whole number",
		`{"amount":"1.698,81"}`:                        "whole number",
		`{"amount":" 1050"}`:                           "whole number",
		`{"amount":""}`:                                "whole number",
		`{"amount":"-"}`:                               "whole number",
		`{"amount":"١٠"}`:                              "whole number",
		`{"amount":true}`:                              "whole number",
		`{"amount":{"value":1}}`:                       "whole number",
		`{"amount":[1]}`:                               "whole number",
		`{"amount":1,"currency":"XYZ"}`:                "ISO 4217",
		`{"amount":1,"currency":"EURO"}`:               "ISO 4217",
		`{"amount":1,"currency":""}`:                   "ISO 4217",
		`{"amount":1,"currency":978}`:                  "ISO 4217",
		`{"amount":1,"currency":"ſEK"}`:                "ISO 4217",
		`{"currency":"XYZ"}`:                           "ISO 4217",
		`[]`:                                           "not an object",
	} {
		err := rule.Check([]byte(payload))
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", payload, err, want)
		case err != nil && (strings.Contains(err.Error(), "XYZ") || strings.Contains(err.Error(), "698")):
			t.Errorf("the payload is in the error: %v", err)
		}
	}
	for payload, want := range map[string]string{
		`{"amount":5,"currency":"EUR"}`:    "",
		`{"amount":5}`:                     `no currency: the field "currency" is missing or null, and amount.required asks for it`,
		`{"amount":5,"currency":null}`:     `no currency: the field "currency" is missing or null, and amount.required asks for it`,
		`{"amount":null,"currency":"EUR"}`: `no amount: the field "amount" is missing or null, and amount.required asks for it`,
		`{}`:                               `no amount: the field "amount" is missing or null, and amount.required asks for it`,
	} {
		must := rule
		must.Required = true
		if err := must.Check([]byte(payload)); want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("required, %s: %v, want %q", payload, err, want)
		}
	}
	small := AmountRule{Field: "amount", Least: -100, Most: 100}
	for payload, ok := range map[string]bool{`{"amount":-100}`: true, `{"amount":0}`: true, `{"amount":100,"currency":"XYZ"}`: true, `{"amount":-101}`: false, `{"amount":101}`: false} {
		if err := small.Check([]byte(payload)); (err == nil) != ok {
			t.Errorf("from -100 to 100, %s: %v", payload, err)
		}
	}
}
