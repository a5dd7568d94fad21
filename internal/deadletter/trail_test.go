package deadletter_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
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
	b.must(e.Note(b.ctx, deadletter.Deed{Totals: job.Totals{Jobs: 7}}))
	want(t, "acts before it began", len(b.acts()), 0)
	b.must(e.Begin(b.ctx))
	if a := b.acts()[0]; a.Who != "ann@host" || a.Jobs != 0 || a.Ended != nil || a.Amount == nil {
		t.Errorf("begun: %+v", a)
	}
	other := b.store.Entry(deadletter.Act{At: b.Now(), Who: "bob", What: "discard"})
	b.must(other.Begin(b.ctx))
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	b.must(e.Note(b.ctx, deadletter.Deed{Totals: job.Totals{Jobs: 3, Amount: job.Amounts{"EUR": huge}, NoAmount: 1}}))
	if a := b.acts()[0]; a.Jobs != 3 || a.Amount["EUR"].Cmp(huge) != 0 || a.NoAmount != 1 || a.Ended != nil {
		t.Errorf("noted: %+v", a)
	}
	b.must(e.End(b.ctx, deadletter.Deed{Totals: job.Totals{Jobs: 4}}))
	acts := b.acts()
	if a := acts[0]; a.Jobs != 4 || a.Ended == nil || a.Ended.Before(a.At) || a.Ended.After(a.At.Add(time.Minute)) {
		t.Errorf("ended: %+v", a)
	}
	if len(acts) != 2 || acts[1].Who != "bob" || acts[1].Ended != nil {
		t.Errorf("the other: %+v", acts)
	}
}

// For an act that is killed before it records its result, the scripts count, each act in its own entry and in any mixture, until it ends.
func TestAnActThatIsKilledHasTheRightCount(t *testing.T) {
	t.Parallel()
	b := setup(t, 1_000_000)
	b.reject(numbered(1, 10)...)
	b.park(job.Job{ID: "u", Payload: []byte("{}")}, job.UnknownOutcome, timedOut())
	of := func(ids ...string) (all []job.Return) {
		for _, id := range ids {
			r := b.record(id)
			all = append(all, job.Return{ID: id, Generation: r.Generation, Reason: r.Reason, Key: job.KeepKey})
		}
		return all
	}
	var entries []*deadletter.Entry
	for _, what := range []string{"discard", "replay", "resolve", "nothing"} {
		e := b.store.Entry(deadletter.Act{At: b.Now(), What: what})
		b.must(e.Begin(b.ctx))
		entries = append(entries, e)
	}
	taken := of("j1", "j2", "j3")
	_, err := b.store.For(entries[0]).Discard(b.ctx, taken, time.Hour)
	b.must(err)
	_, err = b.store.For(entries[0]).Discard(b.ctx, append(taken, of("j4")...), time.Hour) // three of them are gone
	b.must(err)
	_, _, err = b.books.For(entries[1].Place).Readmit(b.ctx, of("j5", "j6"))
	b.must(err)
	_, _, err = b.books.Readmit(b.ctx, of("j7"))
	b.must(err)
	_, err = b.store.For(entries[2]).Resolve(b.ctx, of("u"), time.Hour, "")
	b.must(err)
	counts := func() (text string) {
		for _, a := range b.acts() {
			text += fmt.Sprintf("%s %d ", a.What, a.Jobs)
		}
		return text
	}
	want(t, "counts", counts(), "discard 4 replay 2 resolve 1 nothing 0 ")
	last, err := b.store.LastActs(b.ctx, 2)
	b.must(err)
	want(t, "the last two", fmt.Sprint(last[0].Jobs, last[1].Jobs), "1 0")
	for i, e := range entries {
		b.must(e.End(b.ctx, deadletter.Deed{Totals: job.Totals{Jobs: 10 + int64(i)}}))
	}
	want(t, "counts at the end", counts(), "discard 10 replay 11 resolve 12 nothing 13 ")
	want(t, "counts that are kept", b.c.Exists(b.ctx, b.keys.Acts()).Val(), 0)
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

// Damaged entries are shown as damaged, and the others unchanged.
func TestADamagedEntryHidesNoOther(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"nonsense", "", "{", "[]", "3e9", `{"jobs":"many"}`, `{"at":-1}`, "\xff\x00"} {
		b := setup(t, 10)
		b.must(b.store.Entry(deadletter.Act{At: b.Now(), What: "replay"}).Begin(b.ctx))
		b.must(b.c.RPush(b.ctx, b.keys.Trail(), line).Err())
		b.must(b.store.Entry(deadletter.Act{At: b.Now(), What: "discard"}).Begin(b.ctx))
		last, err := b.store.LastActs(b.ctx, 2)
		b.must(err)
		for _, acts := range [][]deadletter.Act{b.acts()[1:], last} {
			if len(acts) != 2 || acts[0].What != deadletter.Damaged || !strings.Contains(acts[0].Why, "entry 2 of "+b.keys.Trail()+" can't be read") || acts[1].What != "discard" {
				t.Errorf("%q: %+v", line, acts)
			}
		}
	}
}

func TestNoCardNumberStandsInTheTrail(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	const card = "4111 1111 1111 1111"
	e := b.store.Entry(deadletter.Act{At: b.Now(), Who: card, Said: "ann " + card, What: "limit set " + card, Why: card, Filter: card})
	b.must(e.Begin(b.ctx))
	b.must(e.End(b.ctx, deadletter.Deed{}))
	if a := b.acts()[0]; strings.Contains(fmt.Sprintf("%+v", a), "4111") || a.Said != "ann **** **** **** 1111" {
		t.Errorf("%+v", a)
	}
}
