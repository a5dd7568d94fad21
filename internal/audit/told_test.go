package audit_test

import (
	"strings"
	"testing"

	"spillway/internal/audit"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// toldFaults audits, and returns what is wrong with the outcome feed.
func (b *bench) toldFaults() (all []string) {
	b.t.Helper()
	report, err := b.g.Audit(b.ctx, audit.Params{Most: 100, Patience: -1})
	b.must(err)
	for _, f := range report.Faults.List {
		if f.What == audit.Outcomes {
			all = append(all, f.ID+": "+f.Describe())
		}
	}
	return all
}

func TestTheAuditHoldsTheOutcomesAgainstTheRecords(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	if all := b.toldFaults(); all != nil {
		t.Errorf("a gateway without a feed: %q", all)
	}
	b.cfg.Feed = true
	b.on(b.c)
	b.accept("park", numbered(1, 60)...) // but for the first, all are parked
	b.now += 3_600_000_000
	_, _, err := b.books.Readmit(b.ctx, []job.Return{{ID: "j2", Generation: 1, Reason: job.Rejected, Key: job.KeepKey}})
	b.must(err)
	if all := b.toldFaults(); all != nil {
		t.Errorf("all in order: %q", all)
	}
	for id, state := range map[string]string{"j3": "done", "j60": "discarded"} {
		b.must(b.c.HSet(b.ctx, b.keys.Job(id), record.Short("state"), state).Err())
	}
	b.must(b.c.HSet(b.ctx, b.keys.Job("j4"), record.Short("state"), "done", record.Short("accepted_at"), 1).Err()) // another life
	b.must(b.c.HIncrBy(b.ctx, redisdb.NewKeys(b.name).Feed(), "number", 7).Err())
	all := b.toldFaults()
	for _, want := range []string{"j3: the outcome feed said last that it is parked/rejected, and its record says done", "j60: ", `: the latest outcome that is kept is number 59, and the feed says that there were "66"`} {
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("it lacks %q: %q", want, all)
		}
	}
	if len(all) != 3 {
		t.Errorf("%q", all)
	}
}
