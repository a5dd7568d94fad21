package ledger_test

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/roles"
)

// upTo lets batches up to EUR 10.00 be called without an approval.
func upTo(c *ledger.Config) {
	c.Money = func(payload []byte) string { return job.MoneyField(payload, "amount", "currency") }
	c.Approval = job.Approval{BatchOver: job.Amounts{"EUR": big.NewInt(1000)}}
}

// bill is a job of a batch for an amount in cents.
func bill(id, batch, amount string) job.Job {
	return job.Job{ID: id, Batch: batch, Payload: []byte(`{"amount":` + amount + `,"currency":"EUR"}`)}
}

// brings makes the owner of a token bring jobs in.
func (b *bench) brings(who string, jobs ...job.Job) []job.Admittance {
	b.t.Helper()
	before := b.ctx
	defer func() { b.ctx = before }()
	b.ctx = roles.With(context.Background(), roles.Identity{Name: who, Proof: roles.ByToken})
	return b.accept("park", jobs...)
}

func (b *bench) approve(who, shown string) error {
	return b.books.ApproveBatch(b.ctx, "p", ledger.Approver{Who: who, Why: "looked at it"}, shown, noted)
}

// Chunks, producers and files of one batch are added up. What makes the sum too large waits, and so do jobs that were queued before and are not called yet.
func TestABatchAboveItsSumWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, upTo)
	b.brings("ann", bill("a", "p", "400"), bill("b", "p", "300"), bill("other", "q", "900"))
	id, generation := b.pull()
	flying, opening := b.open(id, generation, "o")
	if id != "a" || opening != job.OpenGo {
		t.Fatalf("below its sum, %s opened: %s", id, opening)
	}
	if got := b.brings("ben", bill("b", "p", "300"), bill("c", "p", "300")); !slices.Equal(got, []job.Admittance{job.Duplicate, job.Enqueued}) {
		t.Fatalf("at its sum, with a job that is known: %v", got)
	}
	if got := b.brings("ben", bill("d", "p", "1"), bill("e", "p", "1")); !slices.Equal(got, []job.Admittance{job.ParkedNow, job.ParkedNow}) {
		t.Fatalf("above its sum: %v", got)
	}
	store := deadletter.New(b.c, b.name)
	id, generation = b.pull()
	a, opening := b.open(id, generation, "o2")
	if id != "b" || opening != job.OpenAwaits || a.LastError != "its batch awaits an approval: its sum in EUR is above what goes without one" {
		t.Fatalf("not yet parked, %s opened: %s, %q", id, opening, a.LastError)
	}
	b.must(store.Park(b.ctx, a, job.Ending{Error: a.LastError}, job.AwaitsApproval))
	b.finish(id, generation)
	if did := b.shelve(); len(did) != 1 || !strings.HasPrefix(did[0], "await") && !strings.Contains(did[0], "await") {
		t.Errorf("a dispatcher does %v", did)
	}
	if got := b.parkedAs(job.AwaitsApproval); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"b", "c", "d", "e"}) {
		t.Errorf("awaiting are %v", got)
	}
	b.must(b.books.Back(b.ctx, flying, job.Ending{}, 0))
	if got := b.batch("p"); got.Awaits.Since.IsZero() || len(got.Awaits.Brought) != 2 || got.Awaits.Brought[0].Jobs != 2 || got.Awaits.Brought[1].Jobs != 3 {
		t.Errorf("the books say %+v", got.Awaits)
	}
	if names, err := b.books.Awaiting(b.ctx); err != nil || !slices.Equal(names, []string{"p"}) {
		t.Errorf("awaiting are %v, %v", names, err)
	}
	b.clean("awaiting")
}

// Amounts in currencies without a sum, and amounts that can't be read, always need an approval.
func TestMoneyOfWhichNoSumIsNamedWaits(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{"other currency": `{"amount":1,"currency":"USD"}`, "no currency": `{"amount":1}`, "no amount": `{"currency":"EUR"}`, "nothing": `{}`} {
		b := setup(t, 9, upTo)
		got := b.brings("ann", job.Job{ID: "a", Batch: "p", Payload: []byte(payload)}, job.Job{ID: "alone", Payload: []byte(payload)}, bill("b", "q", "1"))
		if !slices.Equal(got, []job.Admittance{job.ParkedNow, job.Enqueued, job.Enqueued}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A batch that is above its sum at once is not called at all before it is approved; then it goes in in the order of the file. Jobs that are added later wait again.
func TestAnApprovalIsOfWhatWasShown(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, upTo)
	b.brings("ann", bill("a", "p", "900"), bill("b", "p", "200"), bill("c", "p", "200"))
	shown := b.batch("p").ApprovedAs()
	if len(b.pending()) != 0 {
		t.Errorf("queued are %v", b.pending())
	}
	refused := func(what, says string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
		if got := b.parkedAs(job.AwaitsApproval); len(got) < 3 || b.batch("p").Awaits.Since.IsZero() {
			t.Errorf("%s: awaiting are %v", what, got)
		}
	}
	refused("his own", "submitted jobs of batch", b.approve("ann", shown))
	refused("his own, in capitals", "submitted jobs of batch", b.approve("ANN", shown))
	refused("of another state", "no longer as it was shown", b.approve("eve", "0 3 EUR=1300"))
	b.brings("ben", bill("d", "p", "100"))
	refused("before the last job", "no longer as it was shown", b.approve("eve", shown))
	b.must(b.approve("eve", b.batch("p").ApprovedAs()))
	if got := b.parkedAs(job.Rejected); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("approved, waiting for room are %v", got)
	}
	if err := b.approve("eve", shown); err == nil || !strings.Contains(err.Error(), "eve has approved it") {
		t.Errorf("approved twice: %v", err)
	}
	b.clean("approved")
	b.brings("eve", bill("e", "p", "1"))
	if got := b.parkedAs(job.AwaitsApproval); !slices.Equal(got, []string{"e"}) {
		t.Errorf("grown, awaiting are %v", got)
	}
	refused2 := b.approve("eve", b.batch("p").ApprovedAs())
	if refused2 == nil || !strings.Contains(refused2.Error(), "submitted jobs of batch") {
		t.Errorf("his own addition: %v", refused2)
	}
	b.shelve()
	if got := b.parkedAs(job.AwaitsApproval); len(got) != 5 || len(b.parkedAs(job.Rejected)) != 0 {
		t.Errorf("grown, awaiting are %v", got)
	}
	b.clean("grown")
}

// A person who typed a name, with Redis's password, is recognised by the name without the machine.
func TestATypedNameCountsWithoutItsMachine(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, upTo)
	b.ctx = roles.With(b.ctx, roles.Identity{Name: "Eve@erp-7", Proof: roles.ByRedis})
	b.accept("park", bill("a", "p", "2000"))
	if err := b.approve("eve", b.batch("p").ApprovedAs()); err == nil {
		t.Error("eve approves what eve@erp-7 brought in")
	}
	b.must(b.approve("evelyn", b.batch("p").ApprovedAs()))
}

// One person with two tokens, or a token and a login, is one person: by the file's word or, if it says nothing, by what is before the @.
func TestOnePersonWithTwoNamesIsOne(t *testing.T) {
	t.Parallel()
	token := func(name, person string) roles.Identity {
		return roles.Identity{Name: name, Person: person, Proof: roles.ByToken}
	}
	login := func(name string) roles.Identity { return roles.Identity{Name: name, Proof: roles.ByLogin} }
	for _, c := range []struct {
		brought, approves roles.Identity
		same              bool
	}{
		{token("bob", ""), token("bob", ""), true},
		{token("bob", ""), login("bob@example.com"), true},
		{login("bob@example.com"), token("bob", ""), true},
		{login("bob@example.com"), login("Bob@Example.com"), true},
		{login("bob@example.com"), login("bob@example.org"), false},
		{token("bob", ""), token("bobby", ""), false},
		{token("billing", "bob@example.com"), login("bob@example.com"), true},
		{login("bob@example.com"), token("night-shift", "Bob@example.com"), true},
		{token("billing", "bob@example.com"), token("night-shift", "bob@example.com"), true},
		{token("billing", "bob@example.com"), token("billing", ""), true}, // the file said it later, or no more
		{token("billing", ""), token("billing", "bob@example.com"), true},
		{token("billing", "bob@example.com"), token("bob", ""), true},
		{token("bob", "robert@example.com"), login("bob@example.com"), false}, // the file says that this is another Bob
		{token("billing", "bob@example.com"), token("night-shift", "ann@example.com"), false},
		{roles.Identity{Name: "bob@erp-7", Proof: roles.ByRedis}, login("bob@example.com"), true},
		{roles.Identity{Name: "bob@erp-7", Proof: roles.ByRedis}, token("night-shift", "bob@example.com"), true},
		{roles.Identity{Proof: roles.BySharer}, token("bob", ""), false},
	} {
		b := setup(t, 9, upTo)
		b.ctx = roles.With(b.ctx, c.brought)
		b.accept("park", bill("a", "p", "2000"))
		err := b.books.ApproveBatch(b.ctx, "p", ledger.Approver{Who: c.approves.Name, Person: c.approves.Person, Why: "x"}, b.batch("p").ApprovedAs(), noted)
		if (err != nil) != c.same {
			t.Errorf("%+v brought it in, and %+v approves it: %v", c.brought, c.approves, err)
		}
		if by := b.batch("p").Awaits.Brought; len(by) != 1 || by[0].Name != c.brought.Name || by[0].Person != c.brought.Person {
			t.Errorf("%+v brought it in, and the books say %+v", c.brought, by)
		}
	}
}

// A pause, a resume, a cancel and a replay of cancelled jobs let nothing out that was not approved.
func TestNoOtherActStandsForAnApproval(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, upTo)
	b.brings("ann", bill("a", "p", "900"), bill("b", "p", "200"))
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "wait", noted))
	b.wantParked("paused", map[job.Reason][]string{job.Paused: {"a", "b"}})
	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	b.wantParked("resumed", map[job.Reason][]string{job.AwaitsApproval: {"a", "b"}})
	b.must(b.books.CancelBatch(b.ctx, "p", "me", "no", 0, noted))
	b.wantParked("cancelled", map[job.Reason][]string{job.Cancelled: {"a", "b"}})
	if err := b.approve("eve", b.batch("p").ApprovedAs()); err == nil || !strings.Contains(err.Error(), "is cancelled") {
		t.Errorf("approved while cancelled: %v", err)
	}
	_, _, err := b.books.Readmit(b.ctx, b.back("a"))
	b.must(err)
	id, generation := b.pull()
	if a, opening := b.open(id, generation, "o"); opening != job.OpenAwaits {
		t.Errorf("replayed out of the cancel, it opened: %s", opening)
	} else {
		b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.AwaitsApproval))
	}
	b.finish(id, generation)
	b.wantParked("replayed", map[job.Reason][]string{job.AwaitsApproval: {"a"}, job.Cancelled: {"b"}})
	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "wait", noted))
	b.must(b.approve("eve", b.batch("p").ApprovedAs()))
	b.wantParked("approved while paused", map[job.Reason][]string{job.Paused: {"a"}, job.Cancelled: {"b"}})
	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	b.wantParked("resumed then", map[job.Reason][]string{job.Rejected: {"a"}, job.Cancelled: {"b"}})
	b.clean("resumed")
}

// An approval lets the first jobs of a batch go ahead as enqueue --canary asked, with the rest behind them.
func TestAnApprovalLeavesTheFirstJobsAhead(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, upTo)
	_, err := b.books.SendAhead(b.ctx, "p", 1)
	b.must(err)
	b.brings("ann", bill("a", "p", "900"), bill("b", "p", "200"), bill("c", "p", "200"))
	b.must(b.approve("eve", b.batch("p").ApprovedAs()))
	b.wantParked("approved", map[job.Reason][]string{job.Rejected: {"a"}, job.Paused: {"b", "c"}})
	b.clean("approved")
}

// If an approver's process dies between the yes and the jobs, a dispatcher takes the jobs in.
func TestADispatcherDoesTheRestOfAnApproval(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, upTo)
	var jobs []job.Job
	for i := range 250 { // more than one step
		jobs = append(jobs, bill(fmt.Sprintf("j%03d", i), "p", "900"))
	}
	b.brings("ann", jobs...)
	broken := b.books.ApproveBatch(b.ctx, "p", ledger.Approver{Who: "eve", Why: "fine"}, b.batch("p").ApprovedAs(), func(ledger.Shelved) error { return context.Canceled })
	if broken == nil {
		t.Fatal("it was not broken off")
	}
	if n := len(b.parkedAs(job.AwaitsApproval)); n != 50 {
		t.Fatalf("broken off, %d still wait for an approval", n)
	}
	b.shelve()
	if got := b.parkedAs(job.Rejected); len(got) != 250 || len(b.parkedAs(job.AwaitsApproval)) != 0 {
		t.Errorf("afterwards, %d wait for room", len(got))
	}
	b.clean("afterwards")
}

// Refunds make no room for payments: an amount below zero would let a large one go that nobody has approved.
func TestARefundMakesNoRoomBelowTheSum(t *testing.T) {
	t.Parallel()
	for name, bring := range map[string]func(b *bench) []job.Admittance{
		"at once": func(b *bench) []job.Admittance {
			return b.brings("ann", bill("less", "p", "-9000"), bill("more", "p", "9500"))
		},
		"one by one": func(b *bench) []job.Admittance {
			return append(b.brings("ann", bill("less", "p", "-9000")), b.brings("ann", bill("more", "p", "9500"))...)
		},
		"of many digits": func(b *bench) []job.Admittance {
			return append(b.brings("ann", bill("less", "p", "-7123456789012")), b.brings("ann", bill("more", "p", "1001"))...)
		},
	} {
		b := setup(t, 9, upTo)
		if got := bring(b); got[1] != job.ParkedNow || b.batch("p").Awaits.Since.IsZero() {
			t.Errorf("%s: %v", name, got)
		}
		b.must(b.approve("eve", b.batch("p").ApprovedAs()))
	}
	b := setup(t, 9, upTo)
	b.brings("ann", bill("less", "p", "-9000"), bill("other", "p", "1000"))
	if !b.batch("p").Awaits.Since.IsZero() {
		t.Error("a refund alone needs an approval")
	}
	if got := b.brings("ann", bill("more", "p", "1")); got[0] != job.ParkedNow {
		t.Errorf("above the sum: %v", got)
	}
}
