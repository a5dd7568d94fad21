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

func TestFilters(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a", Batch: "b1"}, job.Refused, refused("HTTP 402: no"))
	b.reject(job.Job{ID: "b"})
	b.park(job.Job{ID: "c"}, job.UnknownOutcome, timedOut())
	b.reject(job.Job{ID: "d", Batch: "b1"})
	b.park(job.Job{ID: "e"}, job.Refused, refused("HTTP 404"))
	at := func(id string) time.Time { return b.record(id).ParkedAt }
	for _, c := range []struct {
		name   string
		filter deadletter.Filter
		want   string
	}{
		{"none, merged by time", deadletter.Filter{}, "a b c d e "},
		{"one reason", deadletter.Filter{Reasons: []job.Reason{job.Refused}}, "a e "},
		{"two reasons, one twice", deadletter.Filter{Reasons: []job.Reason{job.Rejected, job.Refused, job.Rejected}}, "a b d e "},
		{"batch", deadletter.Filter{Batch: "b1"}, "a d "},
		{"since is included", deadletter.Filter{Since: at("c")}, "c d e "},
		{"until is not", deadletter.Filter{Until: at("c")}, "a b "},
		{"since and until", deadletter.Filter{Since: at("b"), Until: at("e")}, "b c d "},
		{"ids, once each, by time", deadletter.Filter{IDs: []string{"e", "a", "e", "unknown"}}, "a e "},
		{"ids and reason", deadletter.Filter{IDs: []string{"e", "b"}, Reasons: []job.Reason{job.Rejected}}, "b "},
		{"ids and until", deadletter.Filter{IDs: []string{"e", "b"}, Until: at("c")}, "b "},
		{"match", deadletter.Filter{Match: regexp.MustCompile(`HTTP 4\d\d: `)}, "a "},
		{"limit", deadletter.Filter{Limit: 2}, "a b "},
		{"limit counts what is meant", deadletter.Filter{Limit: 2, Batch: "b1"}, "a d "},
		{"nothing", deadletter.Filter{Batch: "b2"}, ""},
	} {
		want(t, c.name, ids(b.list(c.filter)), c.want)
	}
}

func TestNamedJobsComeInTheOrderOfParking(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.reject(job.Job{ID: "z"}, job.Job{ID: "y"})
	b.reject(job.Job{ID: "x"})
	want(t, "listed", ids(b.list(deadletter.Filter{IDs: []string{"x", "y", "z"}})), "z y x ")
}

func TestPayloadsAreReadUnlessLeftOut(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.reject(numbered(1, 150)...)
	for _, r := range b.list(deadletter.Filter{}) {
		want(t, "payload of "+r.Job.ID, string(r.Job.Payload), `{"n":1}`)
	}
	for _, r := range b.list(deadletter.Filter{NoPayload: true}) {
		want(t, "payload of "+r.Job.ID, string(r.Job.Payload), "")
	}
}

// asynq's own archive would have dropped all but the newest 10,000.
func TestTwelveThousandParkedAreAllStillThere(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	const n = 12_000
	for from := 1; from <= n; from += 500 {
		b.reject(numbered(from, from+499)...)
	}
	b.now.Add((200 * 24 * time.Hour).Microseconds())
	next := 1
	for r, err := range b.store.List(b.ctx, deadletter.Filter{NoPayload: true}) {
		b.must(err)
		if r.Job.ID != fmt.Sprintf("j%d", next) {
			t.Fatalf("job %d is %s", next, r.Job.ID)
		}
		next++
	}
	want(t, "listed", next-1, n)
}

// Jobs are replayed, discarded and parked during a listing up to a mark. Those that stay are listed once each, in order.
func TestReadingIsStableWhileJobsComeAndGo(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 1700)...)
	mark, err := b.store.Mark(b.ctx)
	b.must(err)
	var seen []string
	for r, err := range b.store.List(b.ctx, deadletter.Filter{Until: mark}) {
		b.must(err)
		seen = append(seen, r.Job.ID)
		switch len(seen) {
		case 1:
			b.discard("j1", "j400", "j600")
			b.replay("j900") // not read yet, and parked again behind the mark, for the same reason and for another one
			b.call("j900", job.Rejected, refused("no"))
			b.replay("j901")
			b.call("j901", job.Exhausted, refused("no"))
		case 800:
			b.replay("j5") // read before
			b.call("j5", job.Rejected, refused("no"))
			b.reject(numbered(1701, 1702)...)
		}
	}
	var expect []string
	for i := 1; i <= 1700; i++ {
		if i != 400 && i != 600 && i != 900 && i != 901 {
			expect = append(expect, fmt.Sprintf("j%d", i))
		}
	}
	if !slices.Equal(seen, expect) {
		t.Errorf("%d jobs were read, want %d", len(seen), len(expect))
	}
	want(t, "parked since", ids(b.list(deadletter.Filter{Since: mark})), "j900 j901 j5 j1701 j1702 ")
}

// meddle does something before the next pipeline of commands: between the reading of a set and that of its records.
type meddle struct {
	redis.Hook
	left atomic.Bool
	do   func()
}

func (m *meddle) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (m *meddle) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (m *meddle) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if m.left.CompareAndSwap(true, false) {
			m.do()
		}
		return next(ctx, cmds)
	}
}

func TestJobParkedAnewWhileItIsReadDoesNotComeAtItsOldPlace(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.reject(numbered(1, 3)...)
	m := &meddle{do: func() {
		b.replay("j1")
		b.call("j1", job.Rejected, refused("no"))
	}}
	m.left.Store(true)
	b.c.AddHook(m)
	want(t, "listed", ids(b.list(deadletter.Filter{})), "j2 j3 ")
	want(t, "listed anew", ids(b.list(deadletter.Filter{})), "j2 j3 j1 ")
}

func (b *bench) discard(ids ...string) {
	b.t.Helper()
	c := deadletter.BulkRun{Store: b.store, Clock: b, Filter: deadletter.Filter{IDs: ids}}
	done, err := c.Discard(b.ctx, b.rules(), time.Hour)
	b.must(err)
	want(b.t, "discarded", done.Taken, len(ids))
}

func (b *bench) replay(ids ...string) {
	b.t.Helper()
	c := deadletter.BulkRun{Store: b.store, Clock: b, Filter: deadletter.Filter{IDs: ids}}
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(b.t, "replayed", done.Taken, len(ids))
}
