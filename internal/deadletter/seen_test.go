package deadletter_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// reads counts the records that are read.
type reads struct {
	redis.Hook
	n atomic.Int64
}

func (r *reads) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (r *reads) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (r *reads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, c := range cmds {
			if c.Name() == "hmget" {
				r.n.Add(1)
			}
		}
		return next(ctx, cmds)
	}
}

// seen reads the jobs that a filter means, the way a preview does.
func (b *bench) seen(f deadletter.Filter) *deadletter.Seen {
	s := deadletter.NewSeen(b)
	for _, r := range b.list(f) {
		change, why := b.rules().Key(r)
		s.Add(r, change, why)
	}
	return s
}

func bare() deadletter.Filter { return deadletter.Filter{NoPayload: true, ForBulkRun: true} }

func TestWhatWasSeenIsNotReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.park(job.Job{ID: "a"}, job.Refused, refused("HTTP 402"))
	b.reject(numbered(1, 450)...)
	b.must(b.store.ParkUnreadable(b.ctx, "z", []byte("hello"), "foreign"))
	c, read := b.bulkRun(bare()), &reads{}
	c.Seen = b.seen(c.Filter)
	b.c.AddHook(read)
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 451, HeldBack: 1})
	want(t, "records read", read.n.Load(), 0)
	want(t, "key of the refused one", b.record("a").KeyGeneration, 2)
	b.inOrder("a", 450)
}

// inOrder wants first, j1, j2 … jn in the queue.
func (b *bench) inOrder(first string, n int) {
	b.t.Helper()
	expect := []string{first}
	for _, j := range numbered(1, n) {
		expect = append(expect, j.ID)
	}
	if got := b.queued(); !slices.Equal(got, expect) {
		b.t.Errorf("the queue has %d jobs, or another order: %v …", len(got), got[:min(len(got), 10)])
	}
}

// A paced replay takes longer than seen records are remembered. It reads the rest again, and each job is replayed once, in order.
func TestWhatWasSeenLongAgoIsReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.park(job.Job{ID: "a"}, job.Refused, refused("HTTP 402"))
	b.reject(numbered(1, 950)...)
	c, read := b.bulkRun(bare()), &reads{}
	c.Seen = b.seen(c.Filter)
	c.Watch = at(20) // 10 jobs a second
	b.c.AddHook(read)
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 951})
	if n := read.n.Load(); n == 0 || n > 451 {
		t.Errorf("%d records were read, want those of the second offer", n)
	}
	b.inOrder("a", 950)
}

func TestJobsThatMovedOnSinceTheyWereSeenAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 5)...)
	c := b.bulkRun(bare())
	c.Seen = b.seen(c.Filter)
	var err error
	c.Filter.Until, err = b.store.Mark(b.ctx) // what is parked from now on nobody has asked about
	b.must(err)
	b.discard("j2")
	b.replay("j3")
	b.call("j3", job.Refused, refused("HTTP 402"))
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 3, Gone: 2})
	want(t, "queue", fmt.Sprint(b.queued()), "[j1 j4 j5]")
	want(t, "parked", ids(b.list(deadletter.Filter{})), "j3 ")
	want(t, "discarded", b.record("j2").State, job.Discarded)
}

// Payloads are not remembered: from the first job with one, records are read again, up to the limit.
func TestAJobSeenWithItsPayloadIsReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 6)...)
	c, read := b.bulkRun(deadletter.Filter{Limit: 5}), &reads{}
	c.Seen = deadletter.NewSeen(b)
	for i, r := range b.list(c.Filter) {
		if i != 2 {
			r.Job.Payload = nil
		}
		c.Seen.Add(r, job.KeepKey, "")
	}
	var taken []string
	c.Taken = func(r job.Record) { taken = append(taken, r.Job.ID+string(r.Job.Payload)) }
	b.c.AddHook(read)
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 5})
	want(t, "taken", fmt.Sprint(taken), `[j1 j2 j3{"n":1} j4{"n":1} j5{"n":1}]`)
}

func TestAPayloadGivenSinceTheJobWasSeenKeepsItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a", Payload: []byte(`{"n":1}`)}, job.Refused, refused("HTTP 402"))
	c := b.bulkRun(bare())
	c.Seen = b.seen(c.Filter)
	b.must(b.replace(job.Job{ID: "a", Payload: []byte(`{"n":2}`)}, "other").Err)
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 1})
	want(t, "key, which came with the payload", job.IdempotencyKey("a", b.record("a").KeyGeneration), "a~2")
	b.call("a", job.Refused, refused("HTTP 402"))
	_, err = b.bulkRun(bare()).Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "key after another no", b.record("a").KeyGeneration, 3)
}

// A bulk run that reads only some fields decides, counts money and paces as if it read all.
func TestFewFieldsDecideAsAllDo(t *testing.T) {
	t.Parallel()
	b := mixed(t)
	past, soon := b.now.Load()-int64(25*time.Hour/time.Microsecond), b.now.Load()+60_000_000
	marks := [][]any{{"f", past}, {"f", past, "am", "1"}, {"am", "1"}, {"x", past}, {"x", soon}, {"ed", soon}, {"m", "5 EUR"}, {"c", 7}, {"y", 3},
		{"am", "1", "h", "1 1 402 refused\n"}, {"am", "1", "h", "1 1 500 retry\n"}, {"f", b.now.Load(), "am", "1"}}
	all := b.list(deadletter.Filter{NoPayload: true})
	for i, r := range all {
		for _, m := range [][]any{marks[i%len(marks)], marks[(i/len(marks)+i)%len(marks)]} {
			b.must(b.c.HSet(b.ctx, b.keys.Job(r.Job.ID), m...).Err())
		}
	}
	all = b.list(deadletter.Filter{NoPayload: true})
	few := b.list(bare())
	want(t, "jobs", ids(few), ids(all))
	for _, f := range []deadletter.Filter{{Batch: "b1"}, {Match: regexp.MustCompile("402: again")}} {
		some := f
		some.NoPayload, some.ForBulkRun = true, true
		want(t, "some of the jobs", ids(b.list(some)), ids(b.list(f)))
	}
	outcomes := map[string]bool{}
	for i, r := range all {
		for _, rules := range []deadletter.Rules{b.rules(), {Keys: true, KeyLifetime: time.Hour, ExpiredKeys: true, Now: b.Now()}, {Now: b.Now()}} {
			outcomes[decision(rules, r)] = true
			want(t, r.Job.ID+", "+string(r.Reason), decision(rules, few[i]), decision(rules, r))
		}
	}
	if len(outcomes) < 12 {
		t.Errorf("only %d different decisions: the test shows little", len(outcomes))
	}
}

func decision(rules deadletter.Rules, r job.Record) string {
	key, why := rules.Key(r)
	notDone, late := rules.NotDone(r)
	return fmt.Sprint(key, why, notDone, late, r.State, r.Generation, r.Reason == job.Refused, r.Money, r.Job.Cost, r.Replays)
}
