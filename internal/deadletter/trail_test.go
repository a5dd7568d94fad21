package deadletter_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
)

func (b *bench) acts() []deadletter.Act {
	b.t.Helper()
	var found []deadletter.Act
	for a, err := range b.store.Acts(b.ctx) {
		b.must(err)
		found = append(found, a)
	}
	return found
}

func TestAnActIsInTheTrailBeforeItsFirstJobAndEndsThere(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	e := b.store.Entry(deadletter.Act{At: b.Now(), Who: "ann@host", What: "replay", Why: "bank is back", Filter: "--reason refused"})
	b.must(e.Note(b.ctx, deadletter.Deed{Jobs: 7}))
	want(t, "acts before it began", len(b.acts()), 0)
	b.must(e.Begin(b.ctx))
	if a := b.acts()[0]; a.Who != "ann@host" || a.Jobs != 0 || a.Ended != nil || a.Amount == nil {
		t.Errorf("begun: %+v", a)
	}
	other := b.store.Entry(deadletter.Act{At: b.Now(), Who: "bob", What: "discard"})
	b.must(other.Begin(b.ctx))
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	b.must(e.Note(b.ctx, deadletter.Deed{Jobs: 3, Amount: map[string]*big.Int{"EUR": huge}, Bare: 1}))
	if a := b.acts()[0]; a.Jobs != 3 || a.Amount["EUR"].Cmp(huge) != 0 || a.Bare != 1 || a.Ended != nil {
		t.Errorf("noted: %+v", a)
	}
	b.must(e.End(b.ctx, deadletter.Deed{Jobs: 4}))
	acts := b.acts()
	if a := acts[0]; a.Jobs != 4 || a.Ended == nil || a.Ended.Before(a.At) || a.Ended.After(a.At.Add(time.Minute)) {
		t.Errorf("ended: %+v", a)
	}
	if len(acts) != 2 || acts[1].Who != "bob" || acts[1].Ended != nil {
		t.Errorf("the other: %+v", acts)
	}
}

// More acts than a page holds; nothing is ever trimmed.
func TestTheTrailIsPagedAndKeepsAll(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	const n = 1201
	for i := range n {
		b.must(b.store.Entry(deadletter.Act{At: b.Now(), What: fmt.Sprint(i)}).Begin(b.ctx))
	}
	for i, a := range b.acts() {
		want(t, "act", a.What, fmt.Sprint(i))
	}
	want(t, "acts", len(b.acts()), n)
}

func TestATrailThatCantBeReadSaysWhere(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.must(b.store.Entry(deadletter.Act{At: b.Now()}).Begin(b.ctx))
	b.must(b.c.RPush(b.ctx, b.keys.Trail(), "nonsense").Err())
	var last error
	for _, err := range b.store.Acts(b.ctx) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "entry 2 of the trail of "+b.name+" can't be read") {
		t.Errorf("%v", last)
	}
}
