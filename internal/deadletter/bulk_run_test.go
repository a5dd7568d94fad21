package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

func (b *bench) bulkRun(f deadletter.Filter) deadletter.BulkRun {
	return deadletter.BulkRun{Store: b.store, Clock: b, Filter: f}
}

func TestReplayGoesThroughAdmissionOldestFirstWithAttemptsAnew(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a", Payload: []byte(`{"n":1}`)}, job.Refused, refused("HTTP 402"))
	b.park(job.Job{ID: "b"}, job.UnknownOutcome, timedOut())
	b.reject(job.Job{ID: "c"})
	b.must(b.store.ParkUnreadable(b.ctx, "d", []byte("hello"), "foreign"))
	held := ""
	c := b.bulkRun(deadletter.Filter{})
	c.HeldBack = func(r job.Record, why string) { held += r.Job.ID + ": " + why }
	var taken []string
	c.Taken = func(r job.Record) { taken = append(taken, r.Job.ID+string(r.Job.Payload)) }
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 3, HeldBack: 1})
	want(t, "taken", fmt.Sprint(taken), `[a{"n":1} b{} c{}]`)
	want(t, "held back", held, "d: not a job: there is nothing to send")
	want(t, "queue", fmt.Sprint(b.queued()), "[a b c]")
	want(t, "parked", ids(b.list(deadletter.Filter{})), "d ")
	a, unknown := b.record("a"), b.record("b")
	want(t, "attempts of a", a.Spent, 0)
	want(t, "replays of a", a.Replays, 1)
	want(t, "key of a, refused", job.IdempotencyKey("a", a.KeyGeneration), "a~2")
	want(t, "key of b, unknown", job.IdempotencyKey("b", unknown.KeyGeneration), "b")
	want(t, "b may have charged", unknown.Unsure, true)
}

func TestReplayHoldsForgottenKeysBackUnlessTold(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a"}, job.UnknownOutcome, timedOut())
	b.now.Add((24 * time.Hour).Microseconds())
	done, err := b.bulkRun(deadletter.Filter{}).Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{HeldBack: 1})
	rules := b.rules()
	rules.ExpiredKeys = true
	done, err = b.bulkRun(deadletter.Filter{}).Replay(b.ctx, b.books, rules)
	b.must(err)
	want(t, "done with --expired-keys", done, deadletter.BulkResult{Taken: 1})
	want(t, "key", b.record("a").KeyGeneration, 1)
	b.call("a", job.Refused, refused("no")) // the ledger lets it be called
}

func TestReplayWaitsForRoomAndGoesOnInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	b.reject(numbered(1, 450)...)
	begun := b.Now()
	var last deadletter.BulkResult
	c := b.bulkRun(deadletter.Filter{})
	c.Progress = func(d deadletter.BulkResult) { last = d }
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 450})
	want(t, "last progress", last, done)
	for i, id := range b.queued() {
		want(t, "place", id, fmt.Sprintf("j%d", i+1))
	}
	// 450 jobs of cost 2 at 100/s, less the burst, take 8.96 s. It takes a little longer, because the replay looks for room only from time to time.
	if took := b.Now().Sub(begun); took < 8900*time.Millisecond || took > 10*time.Second {
		t.Errorf("it took %v, want about 9 s", took)
	}
}

func TestReplayHoldsBackWhatNeverFindsRoom(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.reject(numbered(1, 3)...) // of cost 2
	b.now.Add(1000)
	b.accept(b.books, job.Job{ID: "k1"}, job.Job{ID: "k2"})
	var why string
	c := b.bulkRun(deadletter.Filter{})
	c.HeldBack = func(_ job.Record, w string) { why = w }
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 1, HeldBack: 3})
	want(t, "why", why, "its cost is more than admission can ever grant: raise its burst or its limits")
	want(t, "queue", fmt.Sprint(b.queued()), "[k1 k2]")
}

func TestStoppedReplayGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 1200)...)
	ctx, cancel := context.WithCancel(b.ctx)
	c := b.bulkRun(deadletter.Filter{})
	c.Progress = func(deadletter.BulkResult) { cancel() }
	done, err := c.Replay(ctx, b.books, b.rules())
	if !errors.Is(err, context.Canceled) || done != (deadletter.BulkResult{Taken: 500}) {
		t.Errorf("done %+v, error %v; want one chunk of 500", done, err)
	}
	done, err = b.bulkRun(deadletter.Filter{}).Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done after that", done, deadletter.BulkResult{Taken: 700})
	queue := b.queued()
	want(t, "queued", len(queue), 1200)
	for i, id := range queue {
		want(t, "place", id, fmt.Sprintf("j%d", i+1))
	}
}

// A job that is replayed and fails again is parked behind the mark. Otherwise a replay could run for ever.
func TestReplayLeavesWhatIsParkedLaterAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 700)...)
	first := true
	c := b.bulkRun(deadletter.Filter{})
	c.Progress = func(deadletter.BulkResult) {
		if first {
			first = false
			b.call("j1", job.Rejected, refused("no")) // a clock that stands still is no excuse
		}
	}
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 700})
	want(t, "parked", ids(b.list(deadletter.Filter{})), "j1 ")
}

func TestTwoReplaysAtOnceTakeEachJobOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 1000)...)
	var both sync.WaitGroup
	var done [2]deadletter.BulkResult
	var errs [2]error
	for i := range done {
		both.Go(func() { done[i], errs[i] = b.bulkRun(deadletter.Filter{}).Replay(b.ctx, b.books, b.rules()) })
	}
	both.Wait()
	b.must(errors.Join(errs[:]...))
	want(t, "taken by both", done[0].Taken+done[1].Taken, 1000)
	seen := map[string]bool{}
	for _, id := range b.queued() {
		if seen[id] {
			t.Errorf("%s is in the queue twice", id)
		}
		seen[id] = true
	}
	want(t, "queued", len(seen), 1000)
}

func TestResolveNotDoneGoesInWithTheNextKey(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a"}, job.UnknownOutcome, timedOut())
	b.park(job.Job{ID: "b"}, job.Refused, refused("no"))
	b.now.Add((48 * time.Hour).Microseconds())
	done, err := b.bulkRun(deadletter.Filter{}).NotDone(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 1, HeldBack: 1})
	r := b.record("a")
	want(t, "state", r.State, job.Queued)
	want(t, "key", job.IdempotencyKey("a", r.KeyGeneration), "a~2")
	want(t, "may have charged", r.Unsure, false)
	want(t, "still parked", ids(b.list(deadletter.Filter{})), "b ")
}

// interrupting is an admitter that is interrupted by the signal.
type interrupting struct {
	job.Readmitter
	signal func()
}

func (i interrupting) Readmit(ctx context.Context, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
	i.signal()
	return i.Readmitter.Readmit(ctx, jobs)
}

func TestInterruptedReplayKnowsWhatBecameOfItsLastChunk(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 600)...)
	ctx, cancel := context.WithCancel(b.ctx)
	done, err := b.bulkRun(deadletter.Filter{}).Replay(ctx, interrupting{b.books, cancel}, b.rules())
	if !errors.Is(err, context.Canceled) || done != (deadletter.BulkResult{Taken: 500}) || len(b.queued()) != 500 {
		t.Errorf("done %+v, error %v, queued %d", done, err, len(b.queued()))
	}
}

type brokenAdmitter struct{ job.Readmitter }

func (brokenAdmitter) Readmit(context.Context, []job.Return) ([]job.Admittance, time.Duration, error) {
	return nil, 0, errors.New("no answer")
}

func TestReplaySaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.reject(numbered(1, 3)...)
	done, err := b.bulkRun(deadletter.Filter{}).Replay(b.ctx, brokenAdmitter{}, b.rules())
	if err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("error %v", err)
	}
	want(t, "done", done, deadletter.BulkResult{Unsure: 3})
}

func TestMarkIsBehindTheLastParkedJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	mark, err := b.store.Mark(b.ctx)
	b.must(err)
	want(t, "mark of nothing", mark.UnixMicro(), 1)
	b.reject(numbered(1, 40)...) // in one microsecond
	mark, err = b.store.Mark(b.ctx)
	b.must(err)
	want(t, "before the mark", len(b.list(deadletter.Filter{Until: mark})), 40)
	b.reject(numbered(41, 42)...)
	want(t, "before the same mark", len(b.list(deadletter.Filter{Until: mark})), 40)
}
