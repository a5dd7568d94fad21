package main

import (
	"fmt"
	"strings"
	"testing"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// badAmounts are payloads with invalid amounts.
var badAmounts = []string{
	`{"amount":-500,"currency":"EUR"}`, `{"amount":0,"currency":"EUR"}`, `{"amount":1.5,"currency":"EUR"}`, `{"amount":1e2,"currency":"EUR"}`,
	`{"amount":1e999999999,"currency":"EUR"}`, `{"amount":"+100","currency":"EUR"}`, `{"amount":999999999999999999,"currency":"EUR"}`,
	`{"amount":"1.698,81","currency":"EUR"}`, `{"amount":"","currency":"EUR"}`, `{"amount":true,"currency":"EUR"}`, `{"amount":100,"currency":"EURO"}`,
}

// A line with an invalid amount is not enqueued. It is written to --rejects unchanged, and the other lines are enqueued.
func TestAmountsThatAreNoneAreInvalidLines(t *testing.T) {
	b := setup(t, place{})
	var bad, all strings.Builder
	for i, money := range badAmounts {
		fmt.Fprintf(&bad, `{"id":"bad-%d","payload":{"money":%s}}`+"\n", i, money)
	}
	for i := range 300 {
		fmt.Fprintf(&bad, `{"id":"x-%d","payload":{"money":{"amount":1,"currency":"Q%02X"}}}`+"\n", i, i)
	}
	all.WriteString(lines("good", 2) + bad.String() + lines("more", 2) + `{"id":"none"}` + "\n" + `{"id":"null","payload":{"money":{"amount":null}}}` + "\n")
	b.write("a.ndjson", all.String())
	n := len(badAmounts) + 300
	dry := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--dry-run")
	if !strings.Contains(dry.out, fmt.Sprintf(`"invalid":%d,`, n)) || dry.code != 3 {
		t.Errorf("a dry run: exit code %d: %s", dry.code, dry.out)
	}
	got := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--rejects", "rejected.ndjson", "--batch", "big")
	b.want(result{got.code, got.out, ""}, result{3, counts(6+n, 6, 0, 0, n, 0), ""})
	if rejected := b.read("rejected.ndjson"); rejected != bad.String() {
		t.Errorf("rejected:\n%.2000s", rejected)
	}
	if !strings.Contains(got.err, "line 3: the amount in the field \"money.amount\" is below 1, which amount.least allows\n") {
		t.Errorf("standard error: %.1000s", got.err)
	}
	fields, err := testkit.Client(t).HLen(t.Context(), redisdb.NewKeys(b.g).Batch("big")).Result()
	if err != nil || fields > 10 {
		t.Errorf("the books of the batch have %d fields (%v)", fields, err)
	}
}

// A control sum must include all lines. A file with an invalid amount is refused, even if the other amounts add up to the sum.
func TestControlTotalsRefuseAmountsThatAreNone(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 1)+`{"id":"b","payload":{"money":{"amount":"-1","currency":"eur"}}}`+"\n")
	got := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--expect-count", "1", "--expect-sum", "1")
	b.want(result{got.code, got.out, ""}, result{3, withControl(counts(2, 0, 0, 0, 1, 1), `{"count":1,"expected_count":1,"sum":1,"expected_sum":1}`), ""})
}
