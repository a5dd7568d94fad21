package dispatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/double"
	"spillway/internal/job"
	"spillway/internal/packs"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// sale is the outcome of one job in the run of a pack.
type sale struct {
	id      string
	cents   int64
	charged int64 // cents, by the double's ledger
	times   int
	rec     job.Record
}

// wrong says what is wrong with how the job ended; empty: nothing.
func (s sale) wrong() string {
	rec := s.rec
	switch {
	case rec.State != job.Done && rec.State != job.Parked:
		return "is neither done nor parked"
	case rec.Reason == job.Paused:
		return "waits in a batch that has stopped itself"
	case s.times > 1:
		return "is charged more than once"
	case s.times == 1 && s.charged != s.cents:
		return "is charged another amount"
	case rec.State == job.Done && s.times == 0:
		return "is done and not charged"
	case rec.State == job.Parked && !rec.InDoubt() && s.times > 0:
		return "is charged, and nobody will look it up"
	}
	return ""
}

// Each pack runs against the double of its gateway, with 2 % of each trouble that the double knows, at the published limit or 100/s. The dispatcher's books
// agree with the double's ledger to the cent. The long form has 2,000 jobs of each pack.
func TestEachPacksBooksAgreeWithItsDouble(t *testing.T) {
	t.Parallel()
	for _, name := range packs.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sell(t, name, testkit.Often(250, 2000))
		})
	}
}

// sell runs n jobs of a pack.
func sell(t *testing.T, name string, n int) {
	t.Helper()
	table, err := double.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	pack, err := packs.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	text := written(t, table) + "    admission: {limits: [100000/s], burst: 100000}\n"
	if pack.Gateway["amount"] == nil {
		text += "    amount: {field: " + inCents + "}\n"
	}
	open(t, table, double.Options{Service: 50 * time.Millisecond}, text, func(s *shop) {
		sales, jobs := make([]sale, n), make([]job.Job, n)
		for i := range sales {
			sales[i] = sale{id: fmt.Sprintf("inv-%04d", i), cents: int64(1000 + 7*i)}
			jobs[i] = job.Job{ID: sales[i].id, Gateway: s.g.Name, Batch: "run", Payload: payment(table, sales[i].id, int(sales[i].cents)), Cost: 1}
		}
		s.trouble(table)
		s.hire()
		for chunk := range slices.Chunk(jobs, 500) {
			s.take(chunk...)
		}
		s.settled(30 * 24 * time.Hour)
		s.keepsTheLimit()
		s.closeTheBooks(sales)
	})
}

// trouble has 2 % of the jobs meet each fate. Others' payments, which the gateway gives for ours, no rule can tell from ours: the matrix has them. What shuts the
// account out for a tenth of its longest window comes once.
func (s *shop) trouble(table *double.Table) {
	s.t.Helper()
	all := rows(s.t, expected[table.Gateway])
	for _, fate := range table.FatesOfPayments() {
		theirs := slices.ContainsFunc(all, func(r row) bool { return r.fate == fate && slices.Contains(r.ends, endTheirs) })
		switch {
		case theirs:
		case fate == "long-windows":
			if longest(table) <= time.Hour || testkit.Often(0, 1) == 1 { // 2.4 hours of waiting take 15 s
				s.arm(fate + "=job=inv-0100")
			}
		case fate == "slow":
			s.arm(fate + "=share=2%,delay=45s")
		default:
			s.arm(fate + "=share=2%")
		}
	}
}

// closeTheBooks compares the dispatcher's books with the double's ledger.
func (s *shop) closeTheBooks(sales []sale) {
	s.t.Helper()
	ledger := map[string][]double.Entry{}
	for _, e := range s.double.Ledger() {
		if e.State != "failed" && e.State != "canceled" {
			ledger[e.Job] = append(ledger[e.Job], e)
		}
	}
	want, taken := map[record.Place]int64{}, map[record.Place]int64{}
	for i := range sales {
		one := &sales[i]
		one.rec, one.times = s.record(one.id), len(ledger[one.id])
		for _, e := range ledger[one.id] {
			one.charged += cents(s.t, s.double.Table(), e)
		}
		if wrong := one.wrong(); wrong != "" {
			s.t.Errorf("%s %s: %s %s, charged %d times, %d of %d cents: %s%s", one.id, wrong, one.rec.State, one.rec.Reason, one.times, one.charged, one.cents, one.rec.Error, s.story(one.id))
		}
		place := record.Place{State: one.rec.State, Reason: one.rec.Reason}
		want[place] += one.cents
		taken[place] += one.charged
	}
	books, ok, err := Books(s.v.db.Client, s.g).Batch(s.t.Context(), "run")
	s.must(err)
	if !ok {
		s.t.Fatal("the batch has no books")
	}
	var sums []string
	for place, total := range books.Places {
		var minor int64
		for _, sum := range total.Amount {
			minor += sum.Int64()
		}
		sums = append(sums, fmt.Sprintf("%s %s", place.Field(), total))
		switch {
		case minor != want[place]:
			s.t.Errorf("the books have %d cents as %s, and its jobs are worth %d", minor, place.Field(), want[place])
		case place.State == job.Done && minor != taken[place]:
			s.t.Errorf("the books have %d cents as done, and the gateway has taken %d", minor, taken[place])
		case place.Reason == job.Refused && taken[place] != 0:
			s.t.Errorf("the gateway has taken %d cents of refused jobs", taken[place])
		}
		delete(want, place)
	}
	if len(want) > 0 {
		s.t.Errorf("the books know nothing of %v", want)
	}
	slices.Sort(sums)
	s.t.Logf("%s after %s: %s", s.double.Table().Gateway, time.Since(s.began).Round(time.Second), strings.Join(sums, ", "))
}

// cents returns the amount of a ledger entry.
func cents(t *testing.T, table *double.Table, e double.Entry) int64 {
	t.Helper()
	text := e.Amount
	if table.Request.Unit != "minor" {
		whole, fraction, _ := strings.Cut(text, ".")
		text = whole + (fraction + "00")[:2]
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("the ledger has %+v: %v", e, err)
	}
	return n
}
