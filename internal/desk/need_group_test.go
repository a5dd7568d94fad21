package desk

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// Equal needs of many gateways become one, in the place of the first. Needs of one gateway stay apart.
func TestNeedsThatAreAlikeAreOne(t *testing.T) {
	t.Parallel()
	at := func(hour int) *time.Time { return new(time.Date(2026, 11, 30, hour, 0, 0, 0, time.UTC)) }
	var euro job.Totals
	euro.Amount.Add(job.Money{Minor: big.NewInt(150), Currency: "EUR"})
	euro.Jobs = 2
	all := []Need{{Kind: NeedKind(job.UnknownOutcome), Gateway: "g", What: "nobody knows", Totals: euro, Do: "look"}}
	for i := range 2000 {
		all = append(all, Need{Kind: NeedUnserved, Gateway: fmt.Sprintf("m%04d", i), What: fmt.Sprint("nobody serves it since ", i), Since: at(5 + i%3), Totals: euro, Do: fmt.Sprint("dispatcher run -g m", i)})
	}
	for i := range 4 {
		all = append(all, Need{Kind: NeedBatch, Gateway: "g", Batch: fmt.Sprint("b", i), What: "it has stopped itself"})
	}
	for i := range 4 {
		all = append(all, Need{Kind: NeedKind(job.Refused), Gateway: fmt.Sprint("r", i), What: "refused", Totals: euro, Do: fmt.Sprint("list -g r", i)})
	}
	for i := range 6 {
		all = append(all, Need{Kind: NeedPaused, Gateway: fmt.Sprint("p", i), What: fmt.Sprint("paused: ", i/3), Totals: euro})
	}
	var got []string
	for _, g := range GroupNeeds(all) {
		got = append(got, fmt.Sprintf("%s: %s | %s", g.Kind, g.Text(), g.Do))
	}
	want := []string{
		"unknown_outcome: g: nobody knows; 2 jobs (EUR 1.50) | look",
		"unserved: m0000, m0001, m0002 and 1,997 more: no dispatcher serves these gateways; 4,000 jobs, since 2026-11-30T05:00:00Z | dispatcher run",
		"batch_stopped: g: it has stopped itself | ", "batch_stopped: g: it has stopped itself | ", "batch_stopped: g: it has stopped itself | ", "batch_stopped: g: it has stopped itself | ",
		"refused: r0, r1, r2 and 1 more: refused; 8 jobs (EUR 6.00) | for each of them: list -g r0",
	}
	for i := range 6 {
		want = append(want, fmt.Sprintf("paused: p%d: paused: %d; 2 jobs (EUR 1.50) | ", i, i/3))
	}
	full := make([]Need, 4)
	for i := range full {
		full[i] = Need{Kind: NeedUnserved, Gateway: fmt.Sprint("f", i), What: "Redis is full", Totals: euro, NoWrites: true, Do: "look at Redis"}
	}
	if got := GroupNeeds(full); len(got) != 1 || got[0].Text() != "f0, f1, f2 and 1 more: Redis is full; 8 jobs" || got[0].Do != "look at Redis" {
		t.Errorf("in a full Redis: %+v", got)
	}
	slow := GroupNeeds([]Need{Overload{Process: "host.7", Gateways: []string{"a", "b"}}.need(), {Kind: NeedDenied, Gateway: "c", What: "denied"}})
	if slow[0].Names() != "" || !strings.HasPrefix(slow[0].What, "a, b: ") || slow[1].Names() != "c" {
		t.Errorf("gateways are named twice, or not at all: %+v", slow)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// While Redis takes no writes, no dispatcher is missing: its needs say so, and are one.
func TestNeedsTellThatRedisTakesNoWrites(t *testing.T) {
	t.Parallel()
	for refuses, want := range map[string]bool{"": false, "it is full": true} {
		v := dispatch.Glance{Stopped: "not served", Refuses: refuses}
		v.Queued = 1
		n, is := StatusOf("g", v, nil).heldNeed()
		if !is || n.Kind != NeedUnserved || n.NoWrites != want || (n.Runbook == NeedUnserved.Runbook()) == want {
			t.Errorf("Redis refuses %q: %+v", refuses, n)
		}
	}
}
