package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/job"
)

// manyCurrencies parks jobs in seven currencies. Their sums on one line are longer than a cell may be.
func (r *rig) manyCurrencies() {
	r.t.Helper()
	for i, code := range []string{"EUR", "USD", "GBP", "JPY", "KWD", "CHF", "SEK"} {
		j := job.Job{ID: code, Batch: "b1", Payload: fmt.Appendf(nil, `{"amount":8797663860%d,"currency":%q}`, i, code)}
		r.park(r.one, j, job.Refused, 402, "HTTP 402: no")
	}
}

const (
	manyInUnits = "CHF 879,766,386.05, EUR 879,766,386.00, GBP 879,766,386.02, JPY 87,976,638,603, KWD 87,976,638.604, SEK 879,766,386.06, USD 879,766,386.01"
	manyInMinor = "CHF 87976638605, EUR 87976638600, GBP 87976638602, JPY 87976638603, KWD 87976638604, SEK 87976638606, USD 87976638601"
)

// Output for people has money in units of its currency, and never cut. Output for programs has it in minor units.
func TestMoneyIsInUnitsForPeopleAndNeverCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.manyCurrencies()
	for _, args := range [][]string{
		{"status", "-g", r.one}, {"batch", "b1"}, {"dlq", "stats"}, {"dlq", "history"},
	} {
		if args[1] == "history" {
			r.run("replay", "--yes", "-q")
		}
		got := r.commandWith(cli.Streams{In: strings.NewReader(""), OutTerminal: true}, args...)
		if got.code != 0 || !strings.Contains(got.out, manyInUnits) {
			t.Errorf("%v on a terminal (exit code %d) lacks %s:\n%s", args, got.code, manyInUnits, got.out)
		}
		got = r.command(args...)
		if got.code != 0 || !strings.Contains(got.out, "\t"+manyInMinor+"\t") && !strings.Contains(got.out, "\t"+manyInMinor+"\n") {
			t.Errorf("%v in a pipe (exit code %d) lacks a cell %s:\n%s", args, got.code, manyInMinor, got.out)
		}
		if strings.Contains(got.out, "minor") {
			t.Errorf("%v has a text for people in a cell for programs:\n%s", args, got.out)
		}
	}
}

var ofMoney = regexp.MustCompile(`\b[A-Z]{3} [0-9]{4,}\b`)

// The texts about what an act would do, and has done, have money in units of its currency.
func TestActsSayMoneyInUnits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.manyCurrencies()
	r.accept(r.manual(r.one), job.Enqueued, charge("p", "963586", ""))
	for _, args := range [][]string{
		{"dlq", "replay"}, {"dlq", "discard", "--why", "x"}, {"batch", "cancel", "b1", "--why", "x"}, {"park", "p", "--why", "x"}, {"dlq", "show", "EUR"}, {"job", "EUR"}, {"job", "p"}, {"dlq", "replay", "--yes"},
	} {
		s := cli.Streams{In: strings.NewReader(""), OutTerminal: args[1] == "show" || args[0] == "job"}
		got := r.commandWith(s, args...)
		if all := got.out + got.err; got.code != 0 || strings.Contains(all, "minor") || ofMoney.MatchString(all) {
			t.Errorf("%v (exit code %d) says money in minor units:\n%s", args, got.code, all)
		}
		if args[0] != "batch" && !strings.Contains(got.out, "EUR 879,766,386.00") && !strings.Contains(got.out, "EUR 9,635.86") {
			t.Errorf("%v says nothing of the money:\n%s", args, got.out)
		}
	}
}

// A job with an invalid amount is refused as invalid. The other jobs are accepted.
func TestAPIRefusesAmountsThatAreNone(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", "amount: {field: amount, currency: currency, least: 100, most: 5000}")
	bad := []string{`{"amount":-500}`, `{"amount":0}`, `{"amount":99}`, `{"amount":5001}`, `{"amount":1.5}`, `{"amount":1e3}`, `{"amount":"+100"}`, `{"amount":100,"currency":"EURO"}`}
	var bulk strings.Builder
	for i, payload := range bad {
		got := a.post(fmt.Sprintf(`{"id":"alone-%d","payload":%s}`, i, payload), "")
		if v := a.told(got.body); got.code != 400 || v.Code != "invalid_job" {
			t.Errorf("%s: %d %s", payload, got.code, got.body)
		}
		fmt.Fprintf(&bulk, `{"id":"bad-%d","payload":%s}`+"\n"+`{"id":"good-%d","payload":{"amount":100,"currency":"eur"}}`+"\n", i, payload, i)
	}
	told := a.lines(a.bulk(bulk.String() + `{"id":"none"}` + "\n").body)
	for i, v := range told {
		if isBad := i%2 == 0 && i < 2*len(bad); (v.Code == "invalid_job") != isBad || !isBad && v.Result != "enqueued" {
			t.Errorf("line %d: %+v", i+1, v)
		}
	}
	if len(told) != 2*len(bad)+1 {
		t.Errorf("%d lines are answered", len(told))
	}
}
