package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/testkit"
)

// file is n jobs of one moment, in another order than that of their names.
func file(name string, n int, at time.Time) (jobs []job.Job) {
	for i := range n {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("%s-%d", name, i*617%n), At: at, Payload: []byte("{}")})
	}
	return jobs
}

func idsOf(jobs []job.Job) (ids []string) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// Two files, each with its own moment, come in at once and in many chunks, and workers pull while the mover is still moving. Each file is called in
// its order, the one that was due first goes first, and both before what waits already.
func TestAFileOfOneMomentIsCalledInItsOrder(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, on := range map[string]func(*bench){"a server": func(*bench) {}, "the Redis inside": (*bench).inside} {
		for _, n := range []int{5, 90, 1000} {
			t.Run(fmt.Sprintf("%s, %d jobs", name, n), func(t *testing.T) {
				t.Parallel()
				b := setup(t, 5000, nil)
				on(b)
				moment := time.UnixMicro(b.now + 3e6)
				one, other := file("one", n, moment), file("other", n, moment.Add(-time.Second))
				for from := 0; from < n; from += 150 {
					b.accept("park", one[from:min(from+150, n)]...)
					b.accept("park", other[from:min(from+150, n)]...)
				}
				for from := 1; from <= 2500; from += 250 {
					b.accept("park", numbered(from, from+249)...)
				}
				var calledOne, calledOther, between []string
				pull := func(most int) {
					for range min(most, len(b.waiting())) {
						switch id, _ := b.pull(); id[:2] {
						case "on":
							calledOne = append(calledOne, id)
						case "ot":
							calledOther = append(calledOther, id)
						default:
							if b.now > moment.UnixMicro()+1e6 && len(calledOne) < n {
								between = append(between, id)
							}
						}
					}
				}
				for step := range 200 {
					if b.now += 10_000; step < 100 { // the movers are not asked at every moment
						b.now += 40_000
					}
					_, _, err := b.books.MoveDue(b.ctx)
					b.must(err)
					pull(step * 7 % 60)
				}
				pull(5000)
				if !slices.Equal(calledOne, idsOf(one)) || !slices.Equal(calledOther, idsOf(other)) {
					t.Errorf("called are %.300v and %.300v", calledOne, calledOther)
				}
				if len(between) > 0 {
					t.Errorf("%d others were called first, %.100v", len(between), between)
				}
				if left := b.c.Exists(b.ctx, b.keys.Moments()).Val(); left != 0 {
					t.Error("the places of the moments are left")
				}
			})
		}
	}
}

func field(at time.Time) string { return strconv.FormatInt(at.UnixMicro(), 10) }

func (b *bench) moments() map[string]string { return b.c.HGetAll(b.ctx, b.keys.Moments()).Val() }

// readmit readmits parked jobs, which then wait for their moment.
func (b *bench) readmit(ids ...string) {
	b.t.Helper()
	answers, _, err := b.books.Readmit(b.ctx, b.back(ids...))
	b.must(err)
	for i, id := range ids {
		want(b.t, id+" taken in again", answers[i], job.Enqueued)
		want(b.t, "state of "+id, b.record(id).State, job.Scheduled)
	}
}

// A job that is removed before its moment leaves nothing behind, in whichever way it is removed.
func TestPlacesOfAMomentGoWithItsLastJob(t *testing.T) {
	t.Parallel()
	const n = 3
	for name, way := range map[string]func(b *bench, ids []string){
		"parked by hand": func(b *bench, ids []string) { b.took(b.books.Withdraw(b.ctx, b.back(ids...), "x")) },
		"discarded": func(b *bench, ids []string) {
			b.took(b.books.WithdrawForGood(b.ctx, b.back(ids...), ledger.Discarding{Why: "x"}))
		},
		"cancelled": func(b *bench, _ []string) { b.must(b.books.CancelBatch(b.ctx, "f", "me", "x", 0, noted)) },
		"paused":    func(b *bench, _ []string) { b.must(b.books.PauseBatch(b.ctx, "f", "me", "x", noted)) },
		"paused, resumed and cancelled": func(b *bench, ids []string) {
			b.must(b.books.PauseBatch(b.ctx, "f", "me", "x", noted))
			b.must(b.books.ResumeBatch(b.ctx, "f", noted))
			b.readmit(ids...)
			b.must(b.books.CancelBatch(b.ctx, "f", "me", "x", 0, noted))
		},
		"beside another moment, whose place is between its own": func(b *bench, ids []string) {
			at := b.record(ids[0]).Job.At.Add(time.Microsecond)
			b.accept("park", file("h", 1, at)...)
			b.took(b.books.Withdraw(b.ctx, b.back(ids...), "x"))
			want(b.t, "moments while another job waits between them", len(b.moments()), 2)
			b.took(b.books.Withdraw(b.ctx, b.back("h-0"), "x"))
		},
		"one by one": func(b *bench, ids []string) {
			for _, id := range ids {
				b.took(b.books.Withdraw(b.ctx, b.back(id), "x"))
			}
		},
		"taken in again, and parked again": func(b *bench, ids []string) {
			b.took(b.books.Withdraw(b.ctx, b.back(ids[0]), "x"))
			b.readmit(ids[0])
			b.took(b.books.Withdraw(b.ctx, b.back(ids...), "x"))
		},
		"called before the clock stepped back, and done late": func(b *bench, ids []string) {
			began := b.now
			b.now += 61e6
			_, _, err := b.books.MoveDue(b.ctx)
			b.must(err)
			for range ids {
				id, g := b.pull()
				a, _ := b.open(id, g, "stalls")
				b.now += 60e6
				_, err = b.books.Sweep(b.ctx)
				b.must(err)
				b.now = began
				b.readmit(id)
				b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
				b.now += 61e6
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 50, func(c *ledger.Config) { c.Keys = false })
			at := time.UnixMicro(b.now + 60e6)
			jobs := file("f", n, at)
			for i := range jobs {
				jobs[i].Batch = "f"
			}
			b.accept("park", jobs...)
			later := at.Add(24 * time.Hour)
			b.accept("park", file("g", 1, later)...)
			way(b, idsOf(jobs))
			for _, id := range idsOf(jobs) {
				want(t, "state of "+id+" is scheduled", b.record(id).State == job.Scheduled, false)
			}
			if left := b.moments(); !maps.Equal(left, map[string]string{field(later): "1"}) {
				t.Errorf("moments that are left: %v, want %s alone", left, field(later))
			}
		})
	}
}

// The place of a job that leaves its moment early is not given to another: a job that comes later is called later.
func TestAPlaceThatWasLeftIsNotGivenAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 50, nil)
	jobs := file("f", 5, time.UnixMicro(b.now+60e6))
	b.accept("park", jobs[:3]...)
	b.took(b.books.Withdraw(b.ctx, b.back(jobs[0].ID, jobs[1].ID), "x"))
	b.accept("park", jobs[3:]...)
	b.now += 61e6
	_, _, err := b.books.MoveDue(b.ctx)
	b.must(err)
	var called []string
	for range 3 {
		id, _ := b.pull()
		called = append(called, id)
	}
	if !slices.Equal(called, idsOf(jobs[2:])) {
		t.Errorf("called are %v, want %v", called, idsOf(jobs[2:]))
	}
	want(t, "moments that are left", b.c.Exists(b.ctx, b.keys.Moments()).Val(), 0)
}

// A time to live bounds what a damaged record leaves of its moment.
func TestPlacesOfAMomentEndSomeTimeAfterIt(t *testing.T) {
	t.Parallel()
	b := setup(t, 50, nil)
	moment := time.UnixMicro(b.now + 3600e6)
	b.accept("park", file("f", 3, moment)...)
	b.accept("park", file("g", 3, moment.Add(-time.Minute))...)
	if ttl := b.c.PTTL(b.ctx, b.keys.Moments()).Val(); ttl <= time.Hour-time.Minute || ttl > 3*time.Hour {
		t.Errorf("the places stay for %v", ttl)
	}
}

// A user without rights to the key of moments can't schedule jobs. Nothing of the chunk is written then: a script that fails in the middle leaves jobs without tasks, which are not in the books
// of their batch.
func TestAUserWithoutRightsToMomentsAcceptsNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	b := setup(t, 100, nil)
	b.on(s.Client())
	user := []any{"ACL", "SETUSER", "app", "on", ">p", "~asynq:*", "~spillway:{" + b.name + "}:[^m]*", "~spillway:{" + b.name + "}:money", "&*", "+@all"}
	if err := b.c.Do(t.Context(), user...).Err(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "app", Password: "p"})
	t.Cleanup(func() { _ = c.Close() })
	jobs := numbered(1, 3)
	jobs[1].At = time.UnixMicro(b.now + 3e6)
	for i := range jobs {
		jobs[i].Batch = "b"
	}
	offer := func() error {
		_, _, err := testkit.Accept(t.Context(), ledger.New(c, b.cfg), job.Ticket{Sequence: "l", Number: 1}, []job.Newcomer{{Job: jobs[0], Digest: "d"}, {Job: jobs[1], Digest: "d"}, {Job: jobs[2], Digest: "d"}}, "park")
		return err
	}
	if err := offer(); err == nil {
		t.Error("jobs were scheduled without the right to")
	}
	if keys := b.c.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("left of a chunk that was refused: %v", keys)
	}
	jobs[1].At = time.Time{}
	if err := offer(); err != nil {
		t.Errorf("jobs of no time: %v", err)
	}
}
