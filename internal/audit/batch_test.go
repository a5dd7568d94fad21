package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/audit"
	"spillway/internal/job"
	"spillway/internal/record"
)

// finished makes the next job of the queue done.
func (b *bench) finished() {
	b.t.Helper()
	id, generation := b.pull()
	a, opening := b.open(id, generation, "o")
	if opening != job.OpenGo {
		b.t.Fatal(opening)
	}
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	b.finish(id, generation)
}

func (b *bench) check(repair bool) audit.Report {
	b.t.Helper()
	a, err := b.g.Audit(b.ctx, audit.Params{Most: 10, Patience: -1, Repair: repair})
	b.must(err)
	return a
}

func TestAnAuditFindsAndRepairsTheBooksOfBatches(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(b *bench, books string){
		"gone":           func(b *bench, books string) { b.c.Del(b.ctx, books) },
		"counted higher": func(b *bench, books string) { b.c.HIncrBy(b.ctx, books, "n:queued", 7) },
		"moved": func(b *bench, books string) {
			b.c.HIncrBy(b.ctx, books, "n:queued", -1)
			b.c.HIncrBy(b.ctx, books, "n:retrying", 1)
		},
		"money":          func(b *bench, books string) { b.c.HIncrBy(b.ctx, books, "m:parked:rejected:EUR", 1) },
		"another place":  func(b *bench, books string) { b.c.HIncrBy(b.ctx, books, "u:parked:refused", 1) },
		"done too often": func(b *bench, books string) { b.c.HIncrBy(b.ctx, books, "n:done", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 3).withMoney()
			b.accept("park", member("a", "x"), member("b", "x"), member("c", "x"), member("d", "x"))
			b.finished()
			b.clean("before")
			before, _, err := b.books.Batch(b.ctx, "x")
			b.must(err)
			spoil(b, b.keys.Batch("x"))
			a := b.check(false)
			if a.Faults.Total != 1 || a.Faults.List[0].What != audit.BatchBooks || !strings.HasPrefix(a.Faults.List[0].Describe(), `batch "x": `) || a.Faults.List[0].Hint() == "" {
				t.Errorf("the audit finds %+v", a.Faults)
			}
			if a := b.check(true); a.Faults.Total != 0 {
				t.Errorf("to be repaired: %+v", a.Faults)
			}
			b.clean("after the repair")
			if after, _, err := b.books.Batch(b.ctx, "x"); err != nil || text(after.Places) != text(before.Places) {
				t.Errorf("the books were %s, and are %s, %v", text(before.Places), text(after.Places), err)
			}
			for range 2 {
				b.finished()
			}
			if live := b.c.HGet(b.ctx, b.keys.Batch("x"), "live").Val(); live != "1" {
				t.Errorf("%s jobs live, not 1", live)
			}
		})
	}
}

// What names a batch is answered only from the sets of its parked jobs. A job that is missing in its set would be left out of a replay.
func TestAnAuditFindsAndRepairsTheListsOfABatchsParkedJobs(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(b *bench, set string){
		"a job is missing": func(b *bench, set string) { b.c.ZRem(b.ctx, set, "c") },
		"all are missing":  func(b *bench, set string) { b.c.Del(b.ctx, set) },
		"one too many":     func(b *bench, set string) { b.c.ZAdd(b.ctx, set, redis.Z{Score: 1, Member: "nobody"}) },
		"one that waits":   func(b *bench, set string) { b.c.ZAdd(b.ctx, set, redis.Z{Score: 1, Member: "a"}) },
		"for another reason": func(b *bench, set string) {
			b.c.Rename(b.ctx, set, b.keys.ParkedBatch("refused", "x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 2)
			b.accept("park", member("a", "x"), member("b", "x"), member("c", "x"), member("d", "x"), member("e", "y"))
			set := b.keys.ParkedBatch("rejected", "x")
			before := b.c.ZRangeWithScores(b.ctx, set, 0, -1).Val()
			if len(before) != 2 {
				t.Fatalf("parked: %v", before)
			}
			spoil(b, set)
			a := b.check(false)
			if a.Faults.Total != 1 || a.Faults.List[0].What != audit.BatchBooks || !strings.Contains(a.Faults.List[0].Describe(), "listed as parked for rejected, and its books have 2") {
				t.Errorf("the audit finds %+v", a.Faults)
			}
			if a := b.check(true); a.Faults.Total != 0 {
				t.Errorf("to be repaired: %+v", a.Faults)
			}
			b.clean("after the repair")
			if after := b.c.ZRangeWithScores(b.ctx, set, 0, -1).Val(); !slices.Equal(after, before) {
				t.Errorf("the list was %v, and is %v", before, after)
			}
		})
	}
}

// Records expire after the dedupe window, and an id may be accepted again. The books then know more than the records, and that is no fault.
func TestAnAuditKnowsThatRecordsGo(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	b.accept("park", member("a", "x"), member("b", "x"), member("c", "x"))
	b.finished()
	b.finished()
	b.c.Del(b.ctx, b.keys.Job("a"))
	b.clean("a record has gone")
	b.accept("park", member("a", "x"))
	b.clean("its id began another life")
	b.c.HIncrBy(b.ctx, b.keys.Batch("x"), "n:queued", -1)
	b.check(true)
	b.clean("repaired")
	if x, _, err := b.books.Batch(b.ctx, "x"); err != nil || fmt.Sprint(x.Places[record.Place{State: job.Done}].Jobs, x.Places[record.Place{State: job.Queued}].Jobs) != "2 2" {
		t.Errorf("the books have %s, %v", text(x.Places), err)
	}
	b.c.Del(b.ctx, b.keys.Batch("x"), b.keys.BatchIDs("x"))
	b.check(false)
	if n := b.c.ZCard(b.ctx, b.keys.Batches()).Val(); n != 0 {
		t.Error("a batch that is over is still listed")
	}
}
