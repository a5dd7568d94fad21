package ledger_test

import (
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

func TestAnAuditFindsAndRepairsTheMoneyParked(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(b *bench){
		"gone":          func(b *bench) { b.c.Del(b.ctx, b.keys.Money()) },
		"too much":      func(b *bench) { b.c.HIncrBy(b.ctx, b.keys.Money(), "m:parked:rejected:EUR", 1) },
		"milliards":     func(b *bench) { b.c.HIncrBy(b.ctx, b.keys.Money(), "M:parked:rejected:EUR", 1) },
		"another place": func(b *bench) { b.c.HIncrBy(b.ctx, b.keys.Money(), "u:parked:refused", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1, func(c *ledger.Config) { c.Money = eurosOrMore })
			var jobs []job.Job
			for i, j := range numbered(1, 620) { // more than a page
				j.Payload, j.Batch = payloads[i%len(payloads)], []string{"", "x"}[i%2]
				jobs = append(jobs, j)
			}
			b.accept("park", jobs...)
			b.clean("before")
			before, err := b.books.ParkedMoney(b.ctx)
			b.must(err)
			spoil(b)
			a := b.check(false)
			if a.Faults.Total != 1 || a.Faults.List[0].What != ledger.MoneyBooks || !strings.HasPrefix(a.Faults.List[0].Describe(), "the sums of what is parked as re") || a.Faults.List[0].Hint() == "" {
				t.Errorf("the audit finds %+v", a.Faults)
			}
			if a := b.check(true); a.Faults.Total != 0 {
				t.Errorf("to be repaired: %+v", a.Faults)
			}
			b.clean("after the repair")
			if after, err := b.books.ParkedMoney(b.ctx); err != nil || text(after) != text(before) {
				t.Errorf("the sums were %s, and are %s, %v", text(before), text(after), err)
			}
		})
	}
}
