package ledger_test

import (
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// The end of an attempt takes its task out of asynq's hands in the same step, and counts it as asynq does.
func TestTheEndOfAnAttemptEndsItsTask(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*bench, job.Attempt) error{
		"done": func(b *bench, a job.Attempt) error {
			return b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200})
		},
		"back": func(b *bench, a job.Attempt) error { return b.books.Back(b.ctx, a, job.Ending{}, 0) },
		"back-off": func(b *bench, a job.Attempt) error {
			return b.books.Back(b.ctx, a, job.Ending{Spent: true}, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var heard []string
			b := setup(t, 10, func(c *ledger.Config) { c.TaskEnded = func(id string) { heard = append(heard, id) } })
			b.accept("park", numbered(1, 2)...)
			id, generation := b.pull()
			b.pull()
			a, _ := b.open(id, generation, "me")
			keys := b.keys.TaskEnd("", time.Now()).Keys
			b.must(end(b, a))
			if now := b.keys.TaskEnd("", time.Now()).Keys; b.c.Exists(b.ctx, now[3]).Val() > 0 {
				keys = now // midnight has passed meanwhile
			}
			want(t, "tasks active", b.c.LLen(b.ctx, b.keys.Active()).Val(), 1) // the other job's
			want(t, "leases", b.c.ZCard(b.ctx, b.keys.Lease()).Val(), 1)
			want(t, "the task", b.c.Exists(b.ctx, b.keys.Task(job.TaskID(id, generation))).Val(), 0)
			want(t, "processed today", b.c.Get(b.ctx, keys[3]).Val(), "1")
			want(t, "processed", b.c.Get(b.ctx, keys[4]).Val(), "1")
			if left := b.c.TTL(b.ctx, keys[3]).Val(); left < 89*24*time.Hour {
				t.Errorf("the day's count goes after %v", left)
			}
			if !slices.Equal(heard, []string{job.TaskID(id, generation)}) {
				t.Errorf("heard of %v", heard)
			}
		})
	}
}

// If the answer to a success is lost, it is recorded again. asynq need not look for the task, and it counts once.
func TestASuccessThatIsWrittenDownTwiceEndsItsTask(t *testing.T) {
	t.Parallel()
	heard := 0
	b := setup(t, 10, func(c *ledger.Config) { c.TaskEnded = func(string) { heard++ } })
	b.accept("park", numbered(1, 1)...)
	id, generation := b.pull()
	a, _ := b.open(id, generation, "me")
	for n := range 2 {
		b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200}))
		want(t, "ends heard of", heard, n+1)
		want(t, "processed", b.c.Get(b.ctx, b.keys.TaskEnd("", time.Now()).Keys[4]).Val(), "1")
	}
	want(t, "tasks active", b.c.LLen(b.ctx, b.keys.Active()).Val(), 0)
}

// An end that comes after the job was given to another worker leaves that worker's task alone.
func TestAnEndThatComesTooLateLeavesTheTaskAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, func(c *ledger.Config) {
		c.TaskEnded = func(id string) { t.Errorf("heard of the end of %s", id) }
	})
	b.accept("park", numbered(1, 1)...)
	id, generation := b.pull()
	stalled, _ := b.open(id, generation, "stalled")
	b.now += (41 * time.Second).Microseconds()
	_, opening := b.open(id, generation, "second")
	want(t, "opening", opening, job.OpenGo)
	b.must(b.books.Done(b.ctx, stalled, job.Ending{Called: true, Status: 200}))
	b.must(b.books.Back(b.ctx, stalled, job.Ending{}, 0))
	want(t, "tasks active", b.c.LLen(b.ctx, b.keys.Active()).Val(), 1)
	want(t, "the task", b.c.Exists(b.ctx, b.keys.Task(job.TaskID(id, generation))).Val(), 1)
}
