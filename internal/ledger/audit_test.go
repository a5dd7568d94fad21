package ledger_test

import (
	"slices"
	"testing"

	"spillway/internal/audit"
	"spillway/internal/ledger"
)

// audit checks the books, and repairs those of batches if asked to.
func (b *bench) audit(repair bool) audit.Report {
	b.t.Helper()
	a, err := audit.New(b.c, b.cfg.Gateway, b.books).Audit(b.ctx, audit.Params{Most: 100, Repair: repair})
	b.must(err)
	return a
}

// clean expects no fault in the books.
func (b *bench) clean(when string) audit.Report {
	b.t.Helper()
	a := b.audit(false)
	for _, f := range a.Faults.List {
		b.t.Errorf("%s: job %q: %s", when, f.ID, f.Describe())
	}
	want(b.t, when+": faults", a.Faults.Total, 0)
	return a
}

// One round trip finds the gateways whose totals don't add up, and one that can't be read does not hide the others.
func TestOddTotalsAreFoundAmongManyGateways(t *testing.T) {
	t.Parallel()
	calm, lost, broken := setup(t, 10, nil), setup(t, 10, nil), setup(t, 10, nil)
	for _, b := range []*bench{calm, lost, broken} {
		b.on(calm.c)
		b.accept("park", numbered(1, 3)...)
	}
	all := []*ledger.Books{calm.books, broken.books, lost.books, calm.books}
	odd, err := ledger.Odd(calm.ctx, calm.c, all)
	if calm.must(err); slices.Contains(odd, true) {
		t.Errorf("odd: %v, want none", odd)
	}
	lost.c.RPop(lost.ctx, lost.keys.Pending())
	broken.c.Set(broken.ctx, broken.keys.Retrying(), "not a set", 0)
	if odd, err = ledger.Odd(calm.ctx, calm.c, all); err != nil || !slices.Equal(odd, []bool{false, true, true, false}) {
		t.Errorf("odd: %v, %v", odd, err)
	}
	if _, err = ledger.Odd(calm.ctx, calm.c, []*ledger.Books{broken.books}); err == nil {
		t.Error("no error where nothing could be read")
	}
}
