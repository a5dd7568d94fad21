package ledger_test

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// payloads have small and large sums, a refund, and amounts that can't be booked.
var payloads = [][]byte{nil, []byte(`{"amount":1050,"currency":"eur"}`), []byte(`{"amount":999999999999999999,"currency":"EUR"}`),
	[]byte(`{"amount":-1000000001,"currency":"USD"}`), []byte(`{"amount":"x","currency":"USD"}`), []byte(`{"amount":1000000000000000000,"currency":"USD"}`)}

func eurosOrMore(payload []byte) string { return job.MoneyField(payload, "amount", "currency") }

// recount holds the books of each batch, and of the money parked, against the records of all jobs.
func (w *walk) recount(rt *rapid.T) {
	want, parked := map[string]map[ledger.Place]ledger.Sums{}, map[job.Reason]ledger.Sums{}
	for id := range w.accepted {
		h := w.c.HGetAll(w.ctx, w.keys.Job(id)).Val()
		r := job.ParseRecord(w.name, id, h)
		p := ledger.Place{State: r.State}
		if p.State == job.Parked {
			p.Reason = r.Reason
		}
		one := sumsOf(h["m"])
		if want[r.Job.Batch] == nil {
			want[r.Job.Batch] = map[ledger.Place]ledger.Sums{}
		}
		s := want[r.Job.Batch][p]
		s.Add(one)
		want[r.Job.Batch][p] = s
		if p.State == job.Parked {
			s := parked[p.Reason]
			s.Add(ledger.Sums{Money: one.Money, Unread: one.Unread})
			parked[p.Reason] = s
		}
	}
	for _, name := range []string{"a:b", "c"} {
		got, _, err := w.books.Batch(w.ctx, name)
		w.must(err)
		if text(got.Places) != text(want[name]) {
			rt.Fatalf("the books of batch %s say\n%s, its records\n%s", name, text(got.Places), text(want[name]))
		}
	}
	got, err := w.books.ParkedMoney(w.ctx)
	w.must(err)
	if text(got) != text(parked) {
		rt.Fatalf("the money parked is %s, the records say %s", text(got), text(parked))
	}
}

// sumsOf is one job with the money that its record has.
func sumsOf(money string) ledger.Sums {
	s := ledger.Sums{Jobs: 1}
	minor, currency, ok := strings.Cut(money, " ")
	switch n, fits := new(big.Int).SetString(minor, 10); {
	case ok && fits:
		s.Money = map[string]*big.Int{currency: n}
	case money != "":
		s.Unread = 1
	}
	return s
}

// text is sums in words, without those that are zero.
func text[K comparable](all map[K]ledger.Sums) string {
	var lines []string
	for place, s := range all {
		line := fmt.Sprintf("%v: %d jobs, %d unread", place, s.Jobs, s.Unread)
		for _, c := range slices.Sorted(maps.Keys(s.Money)) {
			if s.Money[c].Sign() != 0 {
				line += fmt.Sprintf(", %s %s", c, s.Money[c])
			}
		}
		if s.Jobs > 0 || s.Unread > 0 || line != fmt.Sprintf("%v: 0 jobs, 0 unread", place) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}

func TestBooksOfABatchOutliveItsRecords(t *testing.T) {
	t.Parallel()
	b := setup(t, 5, nil)
	for i := range 2 {
		b.accept("park", job.Job{ID: fmt.Sprint(i), Batch: "november"})
	}
	for i := range 2 {
		if ttl := b.c.PTTL(b.ctx, b.keys.Batch("november")).Val(); ttl >= 0 {
			t.Errorf("with %d jobs to go the books expire in %s", 2-i, ttl)
		}
		id, generation := b.pull()
		a, _ := b.open(id, generation, "o")
		b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	}
	for _, key := range []string{b.keys.Batch("november"), b.keys.BatchIDs("november")} {
		if ttl := b.c.PTTL(b.ctx, key).Val(); ttl <= b.cfg.Dedupe {
			t.Errorf("%s goes in %s, before the records", key, ttl)
		}
	}
	b.accept("park", job.Job{ID: "late", Batch: "november"})
	if ttl := b.c.PTTL(b.ctx, b.keys.Batch("november")).Val(); ttl >= 0 {
		t.Errorf("a new job came, and the books expire in %s", ttl)
	}
	if ids := b.c.LRange(b.ctx, b.keys.BatchIDs("november"), 0, -1).Val(); !slices.Equal(ids, []string{"0", "1", "late"}) {
		t.Errorf("the batch has %v", ids)
	}
}
