package main

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

func withControl(report, control string) string {
	return strings.Replace(report, "}\n", ",\"control\":"+control+"}\n", 1)
}

func TestControlTotalsThatFit(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 4))
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--expect-count", "4", "--expect-sum", "10"), result{0,
		withControl(counts(4, 4, 0, 0, 0, 0), `{"count":4,"expected_count":4,"sum":10,"expected_sum":10}`), ""})
}

func TestControlTotalsOfAPipe(t *testing.T) {
	b := setup(t, place{})
	b.stdin = strings.NewReader(lines("a", 4))
	b.want(b.run("-g", b.g, "-f", "-", "-o", "json", "--expect-sum", "10"), result{0,
		withControl(counts(4, 4, 0, 0, 0, 0), `{"count":4,"sum":10,"expected_sum":10}`), ""})
}

func TestControlTotalsThatDoNotFitRefuseTheFile(t *testing.T) {
	b := setup(t, place{})
	refused := "hint: nothing was enqueued; ask for a complete file, or correct the control totals\n"
	b.write("a.ndjson", lines("a", 4))
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--expect-count", "5", "--expect-sum", "15"), result{3,
		withControl(counts(4, 0, 0, 0, 0, 4), `{"count":4,"expected_count":5,"sum":10,"expected_sum":15}`),
		"enqueue: a.ndjson is refused: it holds 4 usable jobs, and 5 were expected; its amounts add up to EUR 0.10 (10), and 15 was expected\n" + refused})
	b.write("b.ndjson", lines("b", 1)+"bad\n"+`{"id":"x"}`+"\n")
	b.want(b.run("-g", b.g, "-f", "b.ndjson", "-o", "json", "--expect-sum", "2"), result{3,
		withControl(counts(3, 0, 0, 0, 1, 2), `{"count":2,"sum":1,"expected_sum":2}`),
		"line 2: not a JSON object\nline 3: the field \"money.amount\" has no amount in minor units (a whole number)\n" +
			"enqueue: b.ndjson is refused: its amounts add up to EUR 0.01 (1), and 2 was expected; 1 line has an amount that can't be read, so the sum is unknown\n" +
			"enqueue: 1 of 3 lines could not be used\nhint: nothing was enqueued; mend these lines or take them out, or leave out --expect-sum: then they are reported, and the others are enqueued\n"})
	if got := b.run("-g", b.g, "-f", "b.ndjson", "--expect-sum", "2", "--rejects", "bad"); strings.Contains(got.err, "mend them in bad") {
		t.Errorf("nothing was written to bad: %s", got.err)
	}
	b.write("c.ndjson", lines("c", 1)+`{"id":"usd","payload":{"money":{"amount":"1","currency":"usd"}}}`)
	b.want(b.run("-g", b.g, "-f", "c.ndjson", "-o", "json", "--expect-sum", "2"), result{3,
		withControl(counts(2, 0, 0, 0, 0, 2), `{"count":2,"expected_sum":2}`),
		"enqueue: c.ndjson is refused: its amounts add up to EUR 0.01 (1) and USD 0.01 (1), and 2 was expected\n" +
			"hint: nothing was enqueued; the file has several currencies: expect a sum of each, like --expect-sum EUR=9635.86,JPY=1050\n"})
	if got := b.run("-g", b.g, "-f", "b.ndjson", "--expect-sum", "1"); got.code != 3 ||
		!strings.Contains(got.err, "1 line has an amount that can't be read, so the sum is unknown; the others add up to EUR 0.01 (1), as expected\n") {
		t.Errorf("the sum of the others: %+v", got)
	}
	if got := b.queued(b.g); len(got) > 0 {
		t.Errorf("queued: %v", got)
	}
}

func TestControlSumNeedsTheAmountsField(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 1))
	got := b.run("-g", b.g2, "-f", "a.ndjson", "--expect-sum", "1")
	got.err = strings.ReplaceAll(got.err, b.g2, "G2")
	b.want(got, result{2, "", "enqueue: gateway G2 has no amount.field, so there is nothing to add up\n" +
		"hint: name it in the configuration: amount: {field: amount}, or leave out --expect-sum\n"})
}

// A file has an amount that can't be read. It is refused, although the other amounts add up to the expected sum: otherwise the job
// without an amount would be enqueued.
func TestAmountsThatAreMissingRefuseEvenAMatchingSum(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 2)+`{"id":"x","payload":{"money":{"amount":1.5,"currency":"eur"}}}`+"\n")
	got := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "--expect-sum", "3")
	if got.code != 3 || !strings.Contains(got.err, "line 3: the field \"money.amount\" has no amount") || len(b.queued(b.g)) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestInterruptedWhileCheckingTotals(t *testing.T) {
	b := setup(t, place{})
	w := b.pipe()
	b.during = func(p *os.Process) {
		// This is more than a pipe holds. When all of it is written, the program has begun to read.
		_, _ = io.WriteString(w, lines("a", 5000))
		_ = p.Signal(syscall.SIGINT)
	}
	b.want(b.run("-g", b.g, "-f", "-", "-o", "json", "--expect-count", "5000"), result{130, counts(0, 0, 0, 0, 0, 0),
		"enqueue: interrupted; nothing had been enqueued\nhint: run the same again: that is safe, jobs that are in already are counted as duplicate\n"})
}
