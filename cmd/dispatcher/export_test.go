package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// table parses an export in CSV. It returns the cells of each job by their columns, by the id of the job.
func (r *rig) table(out string) map[string]map[string]string {
	r.t.Helper()
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	r.must(err)
	all := map[string]map[string]string{}
	for _, row := range rows[1:] {
		cells := map[string]string{}
		for i, title := range rows[0] {
			cells[title] = row[i]
		}
		if all[cells["id"]] != nil {
			r.t.Errorf("%s is there twice", cells["id"])
		}
		all[cells["id"]] = cells
	}
	return all
}

// ledgerOf adds up an export as finance does: by state and currency, in units of the currency.
func ledgerOf(rows map[string]map[string]string) map[string]string {
	sums := map[string]*big.Rat{}
	digits := map[string]int{}
	for _, row := range rows {
		n, ok := new(big.Rat).SetString(row["amount_major"])
		if !ok {
			continue
		}
		key := row["state"] + " " + row["currency"]
		if sums[key] == nil {
			sums[key] = new(big.Rat)
		}
		sums[key].Add(sums[key], n)
		_, fraction, _ := strings.Cut(row["amount_major"], ".")
		digits[key] = len(fraction)
	}
	text := map[string]string{}
	for key, sum := range sums {
		text[key] = sum.FloatString(digits[key])
	}
	return text
}

// pay accepts n jobs in three currencies at gateway one. Half of them are done, the others parked. It returns the sums by state and currency.
func (r *rig) pay(n int) map[string]string {
	r.t.Helper()
	minor := map[string]int64{}
	for i := range n {
		currency := []string{"EUR", "JPY", "KWD"}[i%3]
		amount := int64(1_000_001*i + 99)
		j := job.Job{ID: fmt.Sprintf("%s-%d", currency, i), Payload: fmt.Appendf(nil, `{"amount":%d,"currency":"%s","customer":{"name":"Müller, \"A\" %d"},"n":-7}`, amount, strings.ToLower(currency), i)}
		if i%4 < 2 {
			j.Batch = "b1"
		}
		r.accept(r.manual(r.one), job.Enqueued, j)
		if i%2 == 0 {
			minor["done "+currency] += amount
			r.succeed(r.one, "=pi_"+j.ID)
		} else {
			minor["parked "+currency] += amount
			r.call(r.one, j.ID, job.Refused, 402, "HTTP 402: no")
		}
	}
	units := map[string]string{}
	for key, sum := range minor {
		units[key] = new(big.Rat).SetFrac64(sum, map[string]int64{"EUR": 100, "JPY": 1, "KWD": 1000}[key[len(key)-3:]]).FloatString(map[string]int{"EUR": 2, "JPY": 0, "KWD": 3}[key[len(key)-3:]])
	}
	return units
}

func TestExportEqualsTheLedgerToTheCent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := r.pay(30)
	out := r.untidied("export", "--format", "csv", "--fields", "payload.customer.name,payload.n,payload.none")
	rows := r.table(out)
	if got := ledgerOf(rows); len(rows) != 30 || !maps.Equal(got, want) {
		t.Errorf("%d rows: %v, the ledger has %v", len(rows), got, want)
	}
	if row := rows["EUR-0"]; row["reference"] != "'=pi_EUR-0" || row["payload.customer.name"] != "" || row["status"] != "201" {
		t.Errorf("a job that is done has no payload, and its reference starts no formula: %v", row)
	}
	if row := rows["EUR-3"]; row["payload.customer.name"] != `Müller, "A" 3` || row["payload.n"] != "-7" || row["payload.none"] != "" || row["reason"] != "refused" {
		t.Errorf("a parked job: %v", row)
	}
	minor := map[string]*big.Int{}
	for line := range strings.Lines(r.untidied("export", "-g", r.one, "-o", "json", "--fields", "payload.n")) {
		var l desk.JobLine
		r.must(json.Unmarshal([]byte(line), &l))
		if row := rows[l.ID]; row["amount"] != l.Amount.String() || row["currency"] != l.Currency || (l.State == job.Parked) != (l.Fields["payload.n"] != nil) {
			t.Errorf("CSV has %v, JSON %s", row, line)
		}
		minor[l.ID] = l.Amount
	}
	if len(minor) != 30 {
		t.Errorf("%d lines of JSON", len(minor))
	}
	batch := r.table(r.untidied("batch", "b1", "--export", "--format", "csv"))
	var v desk.Batch
	r.must(json.Unmarshal([]byte(r.untidied("batch", "b1", "-o", "json")), &v))
	sums := map[string]*big.Int{}
	for id, row := range batch {
		if sums[row["currency"]] == nil {
			sums[row["currency"]] = new(big.Int)
		}
		sums[row["currency"]].Add(sums[row["currency"]], minor[id])
	}
	for currency, sum := range v.Amount {
		if sums[currency].Cmp(sum) != 0 || int64(len(batch)) != v.Jobs {
			t.Errorf("%s of the batch: %s, exported %s", currency, sum, sums[currency])
		}
	}
}

// "export --batch" writes the same as "batch --export".
func TestExportOfABatchIsThatOfTheBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.accept(r.gateway(r.one), job.Enqueued, job.Job{ID: "b", Batch: "2026-11", Cost: 1, Payload: []byte(`{"amount":1050}`)}, job.Job{ID: "a", Batch: "2026-11", Cost: 1}, job.Job{ID: "c", Cost: 1})
	want, got := r.command("batch", "2026-11", "--export", "--format", "csv"), r.command("export", "--batch", "2026-11", "--format", "csv")
	if got.code != 0 || got.out != want.out || strings.Count(got.out, "\n") != 3 {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	for _, args := range [][]string{{"--batch", ""}, {"--batch", "2026-11", "--state", "done"}, {"--batch", "2026-11", "--since", "1h"}} {
		if got := r.command(append([]string{"export"}, args...)...); got.code != 2 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := r.command("export", "--batch", "nobody"); got.code != 4 {
		t.Errorf("%+v", got)
	}
}

func TestExportChoosesByStateAndTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(r.one, charge("a", "1", ""), job.Refused, 402, "no")
	r.park(r.one, charge("u", "5", ""), job.UnknownOutcome, 0, "timed out")
	r.accept(r.gateway(r.two), job.Enqueued, charge("b", "2", ""))
	r.accept(r.manual(r.one), job.Enqueued, charge("c", "3", "b1"))
	r.succeed(r.one, "pi_3")
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Job("c"), record.Short("accepted_at"), time.Now().AddDate(0, -2, 0).UnixMicro()).Err())
	r.must(r.c.Set(r.ctx, redisdb.NewKeys(r.two).Job("rubbish"), "x", 0).Err())
	if got := r.run("resolve", "--done", "--id", "u", "--why", "statement 12", "--reference", "ch_9", "--yes"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	ids := func(args ...string) string {
		rows := r.table(r.untidied(append([]string{"export", "--format", "csv"}, args...)...))
		var all []string
		for _, id := range []string{"a", "b", "c", "u", "rubbish"} {
			if rows[id] != nil {
				all = append(all, id)
			}
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct{ args, want string }{
		{"", "a b c u rubbish"}, {"--state done", "c u"}, {"--state parked --state queued -g " + r.one, "a"}, {"--since 30d", "a b u"}, {"--until 30d", "c rubbish"},
		{"--time finished --since 30d", "c u"}, {"--time finished --until 2100-01-01", "c u"}, {"--state discarded", ""},
	} {
		if got := ids(strings.Fields(c.args)...); got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
	if row := r.table(r.untidied("export", "--format", "csv"))["u"]; row["settled_as"] != "done" || row["settled_why"] != "statement 12" || row["settled_by"] == "" || row["settled_at"] == "" || row["reference"] != "ch_9" {
		t.Errorf("who settled it: %v", row)
	}
	for _, args := range []string{"--state charged", "--since yesterdayish", "--fields customer", "--fields payload.", "--format csv -o json", "--format xml", "--since 1h --until 2h"} {
		if got := r.command(append([]string{"export"}, strings.Fields(args)...)...); got.code != 2 || got.out != "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := r.command("batch", "b1", "--format", "csv"); got.code != 2 {
		t.Errorf("a format for no export: %+v", got)
	}
}

func TestExportOpensSealedPayloadsForWhoHasTheKey(t *testing.T) {
	r := newRig(t)
	r.encrypt("k1")
	r.park(r.one, job.Job{ID: "a", Payload: []byte(cardholder), Batch: "b1"}, job.Refused, 402, "HTTP 402")
	for _, args := range [][]string{{"export"}, {"batch", "b1", "--export"}} {
		if row := r.table(r.untidied(append(args, "--format", "csv", "--fields", "payload.card")...))["a"]; row["payload.card"] != "CANARY4111" || row["amount_major"] != "10.50" {
			t.Errorf("%v with the key: %v", args, row)
		}
	}
	r.forgetKey()
	if got := r.command("export", "--fields", "payload.card"); got.code != 2 || got.out != "" || !strings.Contains(got.err, "${SPILLWAY_TEST_KEY} is not set") {
		t.Errorf("without the key: %+v", got)
	}
	if row := r.table(r.untidied("export", "--format", "csv"))["a"]; row["amount_major"] != "10.50" {
		t.Errorf("without fields it needs no key: %v", row)
	}
}
