package audit_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/audit"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// amounts have small and large sums, and one that can't be booked.
var amounts = [][]byte{nil, []byte(`{"amount":1050,"currency":"eur"}`), []byte(`{"amount":999999999999999999,"currency":"EUR"}`),
	[]byte(`{"amount":-1000000001,"currency":"USD"}`), []byte(`{"amount":"x","currency":"USD"}`)}

func TestAnAuditFindsAndRepairsTheMoneyParked(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(b *bench){
		"gone":          func(b *bench) { b.c.Del(b.ctx, b.keys.Money()) },
		"too much":      func(b *bench) { b.c.HIncrBy(b.ctx, b.keys.Money(), "m:parked:rejected:EUR", 1) },
		"milliards":     func(b *bench) { b.c.HIncrBy(b.ctx, b.keys.Money(), "M:parked:rejected:EUR", 1) },
		"bytes":         func(b *bench) { b.c.HIncrBy(b.ctx, b.keys.Counters(), "b:parked:rejected", 1) },
		"no bytes":      func(b *bench) { b.c.HDel(b.ctx, b.keys.Counters(), "b:parked:rejected") },
		"another place": func(b *bench) { b.c.HIncrBy(b.ctx, b.keys.Money(), "u:parked:refused", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1).withMoney()
			var jobs []job.Job
			for i, j := range numbered(1, 620) { // more than a page
				j.Payload, j.Batch = amounts[i%len(amounts)], []string{"", "x"}[i%2]
				jobs = append(jobs, j)
			}
			b.accept("park", jobs...)
			b.clean("before")
			before, err := b.books.ParkedMoney(b.ctx)
			b.must(err)
			spoil(b)
			a := b.check(false)
			if a.Faults.Total != 1 || a.Faults.List[0].What != audit.MoneyBooks || !strings.HasPrefix(a.Faults.List[0].Describe(), "the sums of what is parked as re") || a.Faults.List[0].Hint() == "" {
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

// swap calls does before each page of a list but the first is read.
func swap(set string, does func()) testkit.Hook {
	return testkit.Hook{Alone: func(cmd redis.Cmder, send func() error) error {
		if args := cmd.Args(); len(args) > 2 && args[1] == set && slices.ContainsFunc(args[2:], func(a any) bool { text, ok := a.(string); return ok && strings.HasPrefix(text, "(") }) {
			does()
		}
		return send()
	}}
}

// While one job goes and another one of the same length and amount comes, the sums stay the same, and no count is of a single moment. An audit finds no
// fault, and repairs nothing.
func TestSumsThatComeBackAreNoProof(t *testing.T) {
	t.Parallel()
	b := setup(t, 1).withMoney()
	b.accept("park", numbered(1, 620)...)
	n, off := 0, false
	b.c.AddHook(swap(b.keys.Parked("rejected"), func() {
		if off {
			return
		}
		n++
		which := []job.Return{{ID: "j" + strconv.Itoa(100+n), Generation: 1, Reason: job.Rejected}}
		taken, err := deadletter.New(b.c, b.name).Discard(b.ctx, which, time.Hour)
		if b.must(err); !taken[0] {
			b.t.Fatal("the job was not discarded")
		}
		want(t, "the newcomer", b.accept("park", numbered(620+n, 620+n)...)[0], job.ParkedNow)
	}))
	for _, repair := range []bool{false, true} {
		if a := b.check(repair); a.Faults.Total != 0 {
			t.Errorf("repair %v: %s", repair, a.Faults.List[0].Describe())
		}
	}
	if off = true; n == 0 {
		t.Error("nothing went and came")
	}
	b.clean("afterwards")
}
