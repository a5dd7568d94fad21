package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"spillway/internal/cli"
)

func TestStatusShowsTheMoneyThatIsParked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.reject(r.one, charge("a", "1050", ""), charge("b", "50", ""), charge("c", `"?"`, ""))
	for terminal, want := range map[bool]string{true: "  EUR 1100  ", false: "\tEUR 1100\t"} {
		var out, errs bytes.Buffer
		s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, OutTerminal: terminal}
		if code := cli.Main(name, newCommand, []string{"status", "-c", r.file, "-g", r.one}, s); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d, want %q:\n%s%s", code, want, out.String(), errs.String())
		}
	}
	var out bytes.Buffer
	cli.Main(name, newCommand, []string{"status", "-c", r.file, "-o", "json"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	var v struct{ Gateways []gatewayStatus }
	r.must(json.Unmarshal(out.Bytes(), &v))
	if one := v.Gateways[0]; one.Amount.text() != "EUR 1100" || one.Bare != 1 {
		t.Errorf("%+v", one)
	}
	if !strings.Contains(out.String(), `"parked_amount":{},"parked_without_amount":0`) {
		t.Errorf("a gateway without money has the fields too: %s", out.String())
	}
}
