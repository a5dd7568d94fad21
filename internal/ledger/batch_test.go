package ledger_test

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// payloads have small and large sums, a refund, and amounts that can't be booked.
var payloads = [][]byte{nil, []byte(`{"amount":1050,"currency":"eur"}`), []byte(`{"amount":999999999999999999,"currency":"EUR"}`),
	[]byte(`{"amount":-1000000001,"currency":"USD"}`), []byte(`{"amount":"x","currency":"USD"}`), []byte(`{"amount":0,"currency":"EUR"}`), []byte(`{"amount":1000000000000000000,"currency":"USD"}`)}

func eurosOrMore(payload []byte) string { return job.MoneyField(payload, "amount", "currency") }

// recount compares the books of each batch, and of the parked money, with the records of all jobs.
func (w *walk) recount(rt *rapid.T) {
	want, parked := map[string]map[record.Place]job.Totals{}, map[job.Reason]job.Totals{}
	for id := range w.accepted {
		h := w.c.HGetAll(w.ctx, w.keys.Job(id)).Val()
		r := record.Parse(w.name, id, record.Named(h))
		p := record.Place{State: r.State}
		if p.State == job.Parked {
			p.Reason = r.Reason
		}
		one := sumsOf(h["m"])
		if want[r.Job.Batch] == nil {
			want[r.Job.Batch] = map[record.Place]job.Totals{}
		}
		s := want[r.Job.Batch][p]
		s.Add(one)
		want[r.Job.Batch][p] = s
		if p.State == job.Parked {
			s := parked[p.Reason]
			s.Add(job.Totals{Amount: one.Amount, NoAmount: one.NoAmount})
			parked[p.Reason] = s
		}
	}
	for _, name := range []string{"a:b", "c"} {
		got, _, err := w.books.Batch(w.ctx, name)
		w.must(err)
		if text(got.Places) != text(want[name]) {
			rt.Fatalf("the books of batch %s say\n%s, its records\n%s", name, text(got.Places), text(want[name]))
		}
	}
	got, err := w.books.ParkedMoney(w.ctx)
	w.must(err)
	if text(got) != text(parked) {
		rt.Fatalf("the money parked is %s, the records say %s", text(got), text(parked))
	}
}

// sumsOf is one job with the money in its record.
func sumsOf(money string) job.Totals {
	s := job.Totals{Jobs: 1}
	minor, currency, ok := strings.Cut(money, " ")
	switch n, fits := new(big.Int).SetString(minor, 10); {
	case ok && fits:
		s.Amount = job.Amounts{currency: n}
	case money != "":
		s.NoAmount = 1
	}
	return s
}

// text is sums in words, without those that are zero.
func text[K comparable](all map[K]job.Totals) string {
	var lines []string
	for place, s := range all {
		line := fmt.Sprintf("%v: %d jobs, %d unread", place, s.Jobs, s.NoAmount)
		for _, c := range slices.Sorted(maps.Keys(s.Amount)) {
			if s.Amount[c].Sign() != 0 {
				line += fmt.Sprintf(", %s %s", c, s.Amount[c])
			}
		}
		if s.Jobs > 0 || s.NoAmount > 0 || line != fmt.Sprintf("%v: 0 jobs, 0 unread", place) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}

func TestBooksOfABatchOutliveItsRecords(t *testing.T) {
	t.Parallel()
	b := setup(t, 5, nil)
	for i := range 2 {
		b.accept("park", job.Job{ID: fmt.Sprint(i), Batch: "november"})
	}
	for i := range 2 {
		if ttl := b.c.PTTL(b.ctx, b.keys.Batch("november")).Val(); ttl >= 0 {
			t.Errorf("with %d jobs to go the books expire in %s", 2-i, ttl)
		}
		id, generation := b.pull()
		a, _ := b.open(id, generation, "o")
		b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	}
	for _, key := range []string{b.keys.Batch("november"), b.keys.BatchIDs("november")} {
		if ttl := b.c.PTTL(b.ctx, key).Val(); ttl <= b.cfg.Dedupe {
			t.Errorf("%s goes in %s, before the records", key, ttl)
		}
	}
	b.accept("park", job.Job{ID: "late", Batch: "november"})
	if ttl := b.c.PTTL(b.ctx, b.keys.Batch("november")).Val(); ttl >= 0 {
		t.Errorf("a new job came, and the books expire in %s", ttl)
	}
	if ids := b.c.LRange(b.ctx, b.keys.BatchIDs("november"), 0, -1).Val(); !slices.Equal(ids, []string{"0", "1", "late"}) {
		t.Errorf("the batch has %v", ids)
	}
}

func noted(ledger.Shelved) error { return nil }

// member is a job of a batch.
func member(id, batch string) job.Job {
	return job.Job{ID: id, Batch: batch, Payload: []byte(`{"amount":100,"currency":"EUR"}`)}
}

// parkedAs returns the ids that are parked for a reason, oldest first.
func (b *bench) parkedAs(r job.Reason) []string {
	return b.c.ZRange(b.ctx, b.keys.Parked(string(r)), 0, -1).Val()
}

func (b *bench) pending() (ids []string) {
	for _, line := range b.keys.Lines() {
		tasks := b.c.LRange(b.ctx, line, 0, -1).Val()
		slices.Reverse(tasks)
		for _, task := range tasks {
			id, _, _ := job.ParseTaskID(task)
			ids = append(ids, id)
		}
	}
	return ids
}

func TestACancelledBatchLeavesTheQueueAndKeepsItsOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, 8, func(c *ledger.Config) { c.Money = eurosOrMore })
	later := member("later", "bad")
	later.At = time.UnixMicro(b.now + 60e6)
	b.accept("park", member("first", "bad"), later, member("again", "bad"), member("x1", "good"), member("n1", "bad"), member("x2", "good"),
		member("n2", "bad"), member("x3", ""), member("r1", "bad"), member("r2", "good"), member("r3", "bad"))
	id, generation := b.pull()
	flying, _ := b.open(id, generation, "o")
	id, generation = b.pull()
	a, _ := b.open(id, generation, "o2")
	b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}, 10*time.Second))

	var sum ledger.Shelved
	b.must(b.books.CancelBatch(b.ctx, "bad", "me", "mistake", 0, func(s ledger.Shelved) error { sum.Add(s); return nil }))
	if got, want := b.parkedAs(job.Cancelled), []string{"later", "again", "n1", "n2", "r1", "r3"}; !slices.Equal(got, want) {
		t.Errorf("cancelled are %v, want %v", got, want)
	}
	if sum.Jobs != 6 || sum.Amount["EUR"].Int64() != 600 {
		t.Errorf("it did %+v", sum)
	}
	if got, want := b.pending(), []string{"x1", "x2", "x3"}; !slices.Equal(got, want) {
		t.Errorf("in the queue are %v, want %v", got, want)
	}
	if got := b.parkedAs(job.Rejected); !slices.Equal(got, []string{"r2"}) {
		t.Errorf("rejected are %v", got)
	}
	b.must(b.books.Done(b.ctx, flying, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	if r := b.record("first"); r.State != job.Done {
		t.Errorf("the call under way ended, and its job is %s", r.State)
	}
	b.clean("with batches")
}

func TestAPausedBatchComesBackInItsOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, 6, nil)
	b.accept("park", member("a", "p"), member("x", "q"), member("b", "p"), member("c", "p"))
	id, generation := b.pull()
	flying, _ := b.open(id, generation, "o")
	b.must(b.books.PauseBatch(b.ctx, "p", "me@here", "bank closed", noted))
	batch, _, err := b.books.Batch(b.ctx, "p")
	b.must(err)
	if batch.Paused.IsZero() || batch.Why != "bank closed" || batch.Who != "me@here" {
		t.Errorf("the books say %+v", batch)
	}
	if got := b.accept("fail", member("d", "p"), member("y", "q")); !slices.Equal(got, []job.Admittance{job.ParkedNow, job.Enqueued}) {
		t.Errorf("newcomers: %v", got)
	}
	b.must(b.books.Back(b.ctx, flying, job.Ending{}, 0))
	id, generation = b.pull()
	b.finish(id, generation)
	a, opening := b.open(id, generation, "o2")
	if id != "a" || opening != job.OpenPaused || a.LastError != "its batch is paused: bank closed" {
		t.Fatalf("%s opened: %s, %q", id, opening, a.LastError)
	}
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Paused))
	if got := b.pending(); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("in the queue are %v", got)
	}
	b.clean("with batches")

	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	if got, want := b.parkedAs(job.Rejected), []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("waiting for room are %v, want %v", got, want)
	}
	back, err := b.rejected(10)
	b.must(err)
	b.now += 10e6
	_, _, err = b.books.Readmit(b.ctx, back)
	b.must(err)
	if got, want := b.pending(), []string{"x", "y", "a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("in the queue are %v, want %v", got, want)
	}
	b.clean("with batches")
}

// A cancel also takes what a pause has parked: a resume does not bring it back.
func TestACancelEndsAPause(t *testing.T) {
	t.Parallel()
	b := setup(t, 5, nil)
	b.accept("park", member("a", "p"), member("b", "p"))
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "w", noted))
	b.must(b.books.CancelBatch(b.ctx, "p", "me", "mistake", 0, noted))
	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	if got := b.parkedAs(job.Cancelled); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("cancelled are %v", got)
	}
	if r := b.record("a"); r.Error != "its batch was cancelled: mistake" {
		t.Errorf("the error is %q", r.Error)
	}
	b.clean("with batches")
}
