package ledger_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// refusal is the gateway's answer for a job. It may contain anything that the job's payload had.
const refusal = "HTTP 402: card 4111 was declined"

// waysToBeOver are all ways in which a job of the batch nov can end.
var waysToBeOver = map[string]struct {
	do    func(b *bench)
	state job.State
}{
	"done": {func(b *bench) {
		id, generation := b.pull()
		a, _ := b.open(id, generation, "w")
		b.must(b.books.Done(b.ctx, a, success(b)))
	}, job.Done},
	"resolved as done": {func(b *bench) {
		b.refused(job.UnknownOutcome)
		b.took(deadletter.New(b.c, b.name).Resolve(b.ctx, b.back("a"), b.cfg.Dedupe, "ch_1"))
	}, job.Done},
	"discarded": {func(b *bench) {
		b.refused(job.Refused)
		b.took(deadletter.New(b.c, b.name).Discard(b.ctx, b.back("a"), b.cfg.Dedupe))
	}, job.Discarded},
	"discarded though it may be charged": {func(b *bench) {
		b.refused(job.UnknownOutcome)
		b.took(deadletter.New(b.c, b.name).Discard(b.ctx, b.back("a"), b.cfg.Dedupe))
	}, job.Discarded},
	"discarded while it waits": {func(b *bench) {
		b.took(b.books.WithdrawForGood(b.ctx, b.back("a"), ledger.Discarding{Why: "discarded by me: x", Dedupe: b.cfg.Dedupe}))
	}, job.Discarded},
	"discarded in a back-off": {func(b *bench) {
		id, generation := b.pull()
		a, _ := b.open(id, generation, "w")
		b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 402, Error: refusal, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}, time.Minute))
		b.took(b.books.WithdrawForGood(b.ctx, b.back("a"), ledger.Discarding{Why: "discarded by me: x", Dedupe: b.cfg.Dedupe}))
	}, job.Discarded},
	"discarded, and charged after all": {func(b *bench) {
		id, generation := b.pull()
		stalled, _ := b.open(id, generation, "w1")
		b.now += 3600e6
		second, _ := b.open(id, generation, "w2")
		b.must(b.books.Back(b.ctx, second, job.Ending{}, 0))
		b.took(b.books.WithdrawForGood(b.ctx, b.back("a"), ledger.Discarding{Why: "discarded by me: x", Dedupe: b.cfg.Dedupe, MayBeCharged: true}))
		b.must(b.books.Done(b.ctx, stalled, success(b)))
	}, job.Done},
}

func success(b *bench) job.Ending {
	return job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, Reference: "ch_1", At: time.UnixMicro(b.now)}
}

// refused pulls the next job, and parks it for a reason with what the gateway said.
func (b *bench) refused(reason job.Reason) {
	b.t.Helper()
	id, generation := b.pull()
	a, _ := b.open(id, generation, "w")
	e := job.Ending{Called: true, Spent: true, Status: 402, Error: refusal, Verdict: job.VerdictRefused, At: time.UnixMicro(b.now), Unsure: reason == job.UnknownOutcome}
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, e, reason))
}

// took expects all jobs to be taken.
func (b *bench) took(taken []bool, err error) {
	b.t.Helper()
	b.must(err)
	if slices.Contains(taken, false) {
		b.t.Fatalf("taken %v", taken)
	}
}

// However a job ends, the result is the same: its payload and what the gateway said are gone, its id and its money are known for the
// dedupe window, and the books of its batch outlive it by an hour.
func TestAJobThatIsOverLeavesItsIDAndItsMoney(t *testing.T) {
	t.Parallel()
	for name, way := range waysToBeOver {
		for _, size := range []int{1, 300, 100_000} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, size), func(t *testing.T) {
				t.Parallel()
				b := setup(t, 20, func(c *ledger.Config) { c.Money = eurosOrMore })
				secret := strings.Repeat("7", size)
				j := job.Job{ID: "a", Batch: "nov", Payload: fmt.Appendf(nil, `{"amount":1050,"currency":"EUR","card":"%s"}`, secret)}
				b.accept("park", j)
				way.do(b)
				b.over(j, way.state)
			})
		}
	}
}

// over checks for a job of the batch nov what is true of every job that is over.
func (b *bench) over(j job.Job, state job.State) {
	b.t.Helper()
	r := b.record("a")
	want(b.t, "state", r.State, state)
	for field, value := range b.c.HGetAll(b.ctx, b.keys.Job("a")).Val() {
		if field == "e" && strings.Contains(value, "4111") || field[0] == 'p' && field != "pa" {
			b.t.Errorf("its record has %s still: %.60s", field, value)
		}
	}
	want(b.t, "money", r.Money, "1050 EUR")
	want(b.t, "the same job again", b.accept("park", j)[0], job.Duplicate)
	other := j
	other.Payload = bytes.Replace(j.Payload, []byte("1050"), []byte("1051"), 1)
	want(b.t, "another one of its id", b.accept("park", other)[0], job.Conflict)
	known := b.c.PTTL(b.ctx, b.keys.Job("a")).Val()
	if known <= b.cfg.Dedupe-time.Minute || known > b.cfg.Dedupe {
		b.t.Errorf("it is known for %v, want %v", known, b.cfg.Dedupe)
	}
	for _, key := range []string{b.keys.Batch("nov"), b.keys.BatchIDs("nov")} {
		if stays := b.c.PTTL(b.ctx, key).Val(); stays <= b.cfg.Dedupe || stays > b.cfg.Dedupe+time.Hour {
			b.t.Errorf("%s stays for %v, want an hour more than the record", key, stays)
		}
	}
	batch, _, err := b.books.Batch(b.ctx, "nov")
	b.must(err)
	if sum := batch.Places[record.Place{State: state}]; sum.Jobs != 1 || sum.Amount["EUR"].Int64() != 1050 {
		b.t.Errorf("the batch has %+v", batch.Places)
	}
	b.clean("over")
}

// usedMemory returns how much memory the bench's Redis uses, in bytes.
func (b *bench) usedMemory() int {
	b.t.Helper()
	_, after, _ := strings.Cut(b.c.Info(b.ctx, "memory").Val(), "used_memory:")
	text, _, _ := strings.Cut(after, "\r")
	n, err := strconv.Atoi(text)
	b.must(err)
	return n
}

// Discarding jobs frees memory when Redis fills up.
func TestADiscardFreesTheMemory(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	b := setup(t, 1, nil)
	b.on(testkit.Server(t).Client())
	empty := b.usedMemory()
	var ids []string
	for i := range 110 {
		id := fmt.Sprintf("j%d", i)
		b.accept("park", job.Job{ID: id, Payload: fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, i, strings.Repeat("x", 1<<20))})
		if i > 0 { // the first one found room
			ids = append(ids, id)
		}
	}
	for _, id := range ids { // their digests are as long as the payloads here
		b.c.HSet(b.ctx, b.keys.Job(id), "d", "digest")
	}
	full := b.usedMemory()
	b.took(deadletter.New(b.c, b.name).Discard(b.ctx, b.back(ids...), b.cfg.Dedupe))
	left := b.usedMemory()
	t.Logf("used_memory: %d bytes before, %d with %d parked jobs of 1 MiB, %d when they were discarded", empty, full, len(ids), left)
	if left-empty > (full-empty)/20 {
		t.Errorf("%d of %d bytes are left", left-empty, full-empty)
	}
}
