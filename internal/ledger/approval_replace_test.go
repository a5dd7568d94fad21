package ledger_test

import (
	"testing"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// replaces gives jobs other payloads, under a typed name, and returns which of them await an approval.
func (b *bench) replaces(who string, jobs ...job.Job) (awaiting []string) {
	b.t.Helper()
	store := deadletter.New(b.c, b.name)
	store.NowMicros = b.cfg.NowMicros
	rules := deadletter.Rules{Keys: true, KeyLifetime: b.cfg.KeyLifetime, Money: b.cfg.Money, Approvals: b.books.ReplacedBy(roles.Identity{Name: who, Proof: roles.ByRedis})}
	digests := make([]string, len(jobs))
	for i, j := range jobs {
		digests[i] = "other:" + string(j.Payload)
	}
	got, err := store.Replace(b.ctx, rules, jobs, digests)
	b.must(err)
	for i, r := range got {
		if r.Err != nil || r.Same {
			b.t.Errorf("%s was not replaced: %+v", jobs[i].ID, r)
		}
		if r.Awaits {
			awaiting = append(awaiting, jobs[i].ID)
		}
	}
	return awaiting
}

// refuses makes the next job be called and refused.
func (b *bench) refuses() {
	b.t.Helper()
	id, generation := b.pull()
	a, opening := b.open(id, generation, "o")
	if opening != job.OpenGo {
		b.t.Fatalf("%s opened: %s", id, opening)
	}
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Called: true, Error: "no"}, job.Refused))
	b.finish(id, generation)
}

// A payload that replaces another is checked like a new one. Above the sum, its batch waits, whether the amount or the payee has changed, and an earlier approval does not count.
func TestAReplacedPayloadNeedsAnApprovalOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, upTo)
	b.brings("ann", bill("a", "p", "400"), bill("b", "p", "500"), bill("alone", "", "1"))
	b.refuses()
	b.refuses()
	b.refuses()
	if got := b.replaces("eve@laptop", bill("a", "p", "450"), bill("alone", "", "99999")); got != nil || !b.batch("p").Awaits.Since.IsZero() {
		t.Fatalf("below the sum, and without a batch: %v await", got)
	}
	if got := b.replaces("eve@laptop", bill("a", "p", "700")); len(got) != 1 {
		t.Fatalf("above the sum: %v await", got)
	}
	b.wantParked("raised", map[job.Reason][]string{job.AwaitsApproval: {"a"}, job.Refused: {"b", "alone"}})
	if _, _, err := b.books.Readmit(b.ctx, b.back("b")); err != nil {
		t.Fatal(err)
	}
	id, generation := b.pull()
	if a, opening := b.open(id, generation, "o"); id != "b" || opening != job.OpenAwaits {
		t.Errorf("another one of the batch, %s, opened: %s", id, opening)
	} else {
		b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.AwaitsApproval))
	}
	b.finish(id, generation)
	if err := b.approve("ann", b.batch("p").ApprovedAs()); err == nil {
		t.Error("who brought it in approves it")
	}
	if err := b.approve("Eve", b.batch("p").ApprovedAs()); err == nil {
		t.Error("who replaced the payload approves it")
	}
	b.must(b.approve("ben", b.batch("p").ApprovedAs()))
	b.wantParked("approved", map[job.Reason][]string{job.Rejected: {"a", "b"}, job.Refused: {"alone"}})
	b.clean("approved")

	if got := b.replaces("eve@laptop", bill("a", "p", "699")); len(got) != 1 { // less than what was approved, but maybe to another payee
		t.Errorf("changed after the approval: %v await", got)
	}
	b.shelve()
	b.wantParked("changed after the approval", map[job.Reason][]string{job.AwaitsApproval: {"a", "b"}, job.Refused: {"alone"}})
	first := b.record("a").ParkedAt
	if got := b.replaces("eve@laptop", bill("a", "p", "698")); len(got) != 1 || !b.record("a").ParkedAt.Equal(first) {
		t.Errorf("changed while it awaits: %v await, since %s, was %s", got, b.record("a").ParkedAt, first)
	}
	shown := b.batch("p").ApprovedAs()
	if got := b.replaces("eve@laptop", job.Job{ID: "a", Batch: "p", Payload: []byte(`{"amount":698,"currency":"EUR","payee":"eve"}`)}); len(got) != 1 || b.record("a").Money != "698 EUR" {
		t.Errorf("another payee: %v await, with %s", got, b.record("a").Money)
	}
	if err := b.approve("ben", shown); err == nil {
		t.Error("a payee is approved that was never shown")
	}
	b.must(b.approve("ben", b.batch("p").ApprovedAs()))
	b.wantParked("approved again", map[job.Reason][]string{job.Rejected: {"a", "b"}, job.Refused: {"alone"}})
	b.clean("approved again")
}

// A payload with an amount below zero makes no room for another one.
func TestAReplacedPayloadMakesNoRoom(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, upTo)
	b.brings("ann", bill("a", "p", "400"), bill("b", "p", "400"))
	b.refuses()
	b.refuses()
	if got := b.replaces("eve", bill("a", "p", "-9000")); got != nil {
		t.Errorf("less than nothing: %v await", got)
	}
	if got := b.replaces("eve", bill("b", "p", "5000")); len(got) != 1 {
		t.Errorf("with the room of a refund: %v await", got)
	}
	b.clean("replaced")
}

// A paused or cancelled batch keeps its jobs where they are, and lets none out that was not approved.
func TestAReplacedPayloadOfAStoppedBatch(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, upTo)
	b.brings("ann", bill("a", "p", "400"), bill("b", "p", "400"))
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "wait", noted))
	if got := b.replaces("eve", bill("a", "p", "5000")); got != nil {
		t.Errorf("paused: %v await", got)
	}
	b.wantParked("paused", map[job.Reason][]string{job.Paused: {"a", "b"}})
	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	b.wantParked("resumed", map[job.Reason][]string{job.AwaitsApproval: {"a", "b"}})
	b.must(b.books.CancelBatch(b.ctx, "p", "me", "no", 0, noted))
	if got := b.replaces("eve", bill("a", "p", "6000")); got != nil {
		t.Errorf("cancelled: %v await", got)
	}
	_, _, err := b.books.Readmit(b.ctx, b.back("a"))
	b.must(err)
	id, generation := b.pull()
	if _, opening := b.open(id, generation, "o"); opening != job.OpenAwaits {
		t.Errorf("out of a cancel it opened: %s", opening)
	}
}
