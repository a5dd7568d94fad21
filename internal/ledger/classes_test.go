package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// classed is a bench whose gateway has the classes urgent, which passes, normal, the usual one, and batch.
func classed(t *testing.T, burst, most int64) *bench {
	t.Helper()
	return setup(t, burst, func(c *ledger.Config) {
		k := keysOf(c.Gateway)
		c.First = []string{k.First("urgent"), k.Due(), k.First("normal"), k.Pending(), k.First("batch")}
		c.Passing, c.MostPassing = []string{"urgent"}, most
	})
}

// of returns n jobs of a class.
func of(class, prefix string, n int) (jobs []job.Job) {
	for i := range n {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("%s%d", prefix, i), Priority: class})
	}
	return jobs
}

// line is the tasks of a class that were never called, the next one first.
func (b *bench) line(class string) []string {
	tasks := b.c.LRange(b.ctx, b.keys.First(class), 0, -1).Val()
	slices.Reverse(tasks)
	return tasks
}

// take pulls the next task of a class.
func (b *bench) take(class string) (string, int64) {
	b.t.Helper()
	task, err := b.c.RPopLPush(b.ctx, b.keys.First(class), b.keys.Active()).Result()
	b.must(err)
	b.c.HSet(b.ctx, b.keys.Task(task), "state", "active")
	b.c.ZAdd(b.ctx, b.keys.Lease(), redis.Z{Score: float64(b.now/1e6 + 30), Member: task})
	id, generation, _ := job.ParseTaskID(task)
	return id, generation
}

// Jobs of a class wait in its line, and are included wherever the queue is counted.
func TestJobsOfAClassHaveALineOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := classed(t, 100, 10)
	got := b.accept("park", slices.Concat(of("", "n", 2), of("urgent", "u", 2), of("batch", "b", 3), of("batch", "n", 1))...)
	if w := append(slices.Repeat([]job.Admittance{job.Enqueued}, 7), job.Duplicate); !slices.Equal(got, w) {
		t.Fatalf("got %v, want %v", got, w)
	}
	want(t, "urgent ones", fmt.Sprint(b.line("urgent")), "[u0~1 u1~1]")
	want(t, "batch ones", fmt.Sprint(b.line("batch")), "[b0~1 b1~1 b2~1]")
	want(t, "usual ones", b.c.LLen(b.ctx, b.keys.Pending()).Val(), 2)
	want(t, "class of u0", b.record("u0").Job.Priority, "urgent")
	want(t, "class of n0", b.record("n0").Job.Priority, "")
	s, err := b.books.Look(b.ctx)
	b.must(err)
	want(t, "queued", s.Queued, 7)
	want(t, "missing", s.Missing(), 0)
	want(t, "pending in the pulse", b.pulse().Pending, 7)
	for id, ahead := range map[string]int64{"u1": 1, "n1": 3, "b0": 4, "b2": 6} {
		a, ok, err := b.books.Ahead(b.ctx, b.record(id))
		if err != nil || !ok || a.Jobs != ahead {
			t.Errorf("ahead of %s: %+v, %v, %v; want %d", id, a, ok, err, ahead)
		}
	}
}

// Jobs of a class that passes go in even if others have no room, or wait behind parked ones, until a number of them waits. Then they wait behind their own.
func TestAHighClassPassesAdmission(t *testing.T) {
	t.Parallel()
	b := classed(t, 1, 3)
	const in, aside = job.Enqueued, job.ParkedNow
	for _, step := range []struct {
		jobs []job.Job
		want []job.Admittance
	}{
		{of("batch", "b", 2), []job.Admittance{in, aside}},
		{of("", "n", 1), []job.Admittance{aside}},
		{of("urgent", "u", 2), []job.Admittance{in, in}},
		{of("urgent", "v", 3), []job.Admittance{in, aside, aside}},
	} {
		if got := b.accept("park", step.jobs...); !slices.Equal(got, step.want) {
			t.Errorf("%v: got %v, want %v", step.jobs, got, step.want)
		}
	}
	b.take("urgent")
	if got := b.accept("fail", of("urgent", "w", 1)...); !slices.Equal(got, []job.Admittance{job.Full}) {
		t.Errorf("after one was pulled, before its own that are parked: %v", got)
	}
	turns, err := b.books.NextRejected(b.ctx, 10)
	b.must(err)
	answers, _, err := b.books.Readmit(b.ctx, returnsOf(turns.Jobs))
	b.must(err)
	want(t, "taken in again", fmt.Sprint(answers), "[enqueued full full full]")
	want(t, "urgent ones", fmt.Sprint(b.line("urgent")), "[u1~1 v0~1 v1~2]")
	b.take("urgent")
	turns, err = b.books.NextRejected(b.ctx, 1)
	b.must(err)
	_, _, err = b.books.Readmit(b.ctx, returnsOf(turns.Jobs))
	b.must(err)
	b.take("urgent")
	if got := b.accept("fail", of("urgent", "x", 2)...); !slices.Equal(got, []job.Admittance{in, job.Full}) {
		t.Errorf("once none of its own is parked: %v", got)
	}
}

// A job that comes back without a call goes to the head of its class's line, wherever it comes from. One that was called goes to the retries.
func TestAJobComesBackToItsClass(t *testing.T) {
	t.Parallel()
	b := classed(t, 100, 10)
	b.accept("park", of("batch", "b", 3)...)
	id, generation := b.take("batch")
	a, what := b.open(id, generation, "w")
	want(t, "opening", what, job.OpenGo)
	b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
	want(t, "given back", fmt.Sprint(b.line("batch")), "[b0~2 b1~1 b2~1]")

	id, generation = b.take("batch") // its worker dies before it opens the attempt
	want(t, "pulled", job.TaskID(id, generation), "b0~2")
	b.live(time.Minute, nil)
	want(t, "swept", fmt.Sprint(b.line("batch")), "[b0~3 b1~1 b2~1]")

	id, generation = b.take("batch")
	a, _ = b.open(id, generation, "w")
	b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Verdict: job.VerdictHold, At: time.Now(), Status: 429}, 0))
	want(t, "called", fmt.Sprint(b.line("batch")), "[b1~1 b2~1]")
	want(t, "retries", fmt.Sprint(b.c.LRange(b.ctx, b.keys.Retries(), 0, -1).Val()), "[b0~4]")
}

// A scheduled job waits in its class's line when its moment has come, and so does one that was parked.
func TestScheduledAndParkedJobsKeepTheirClass(t *testing.T) {
	t.Parallel()
	b := classed(t, 6, 1)
	at := time.UnixMicro(b.now).Add(time.Minute)
	b.accept("park", job.Job{ID: "s", Priority: "batch", At: at}, job.Job{ID: "t", At: at})
	b.accept("park", of("batch", "b", 3)...)
	b.now += (2 * time.Minute).Microseconds()
	_, _, err := b.books.MoveDue(b.ctx)
	b.must(err)
	want(t, "batch ones", fmt.Sprint(b.line("batch")), "[b0~1 b1~1 s~2]")
	want(t, "due", fmt.Sprint(b.c.LRange(b.ctx, b.keys.Due(), 0, -1).Val()), "[t~2]")
	jobs, err := b.rejected(10)
	b.must(err)
	answers, _, err := b.books.Readmit(b.ctx, jobs)
	b.must(err)
	want(t, "readmitted", fmt.Sprint(answers), "[enqueued]")
	want(t, "batch ones", fmt.Sprint(b.line("batch")), "[b0~1 b1~1 s~2 b2~2]")
}

// Jobs of a class that the gateway no longer has go behind the usual ones, in their order, and those of others stay.
func TestJobsOfAClassThatIsGoneGoBehindTheOthers(t *testing.T) {
	t.Parallel()
	b := classed(t, 2000, 2000)
	b.accept("park", slices.Concat(of("urgent", "u", 2), of("batch", "b", 700), of("", "n", 1))...)
	b.cfg.First = []string{b.keys.First("urgent"), b.keys.Due(), b.keys.First("normal"), b.keys.Pending()}
	b.books = ledger.New(b.c, b.cfg)
	s, err := b.books.Sort(b.ctx)
	moved := s.Unclassed
	b.must(err)
	want(t, "moved", moved, 700)
	want(t, "urgent ones", len(b.line("urgent")), 2)
	pending := b.c.LRange(b.ctx, b.keys.Pending(), 0, -1).Val()
	slices.Reverse(pending)
	want(t, "pending", fmt.Sprintf("%d %v %s", len(pending), pending[:3], pending[700]), "701 [n0~1 b0~1 b1~1] b699~1")
	if s, err = b.books.Sort(b.ctx); s.Unclassed != 0 || err != nil {
		t.Errorf("again: %d, %v", moved, err)
	}
	want(t, "classes left", fmt.Sprint(b.c.HKeys(b.ctx, b.keys.Classes()).Val()), "[urgent]")
}

// The tasks of a cancelled batch are removed from the lines of classes, too.
func TestACancelledBatchLeavesNoPaperInAClass(t *testing.T) {
	t.Parallel()
	b := classed(t, 100, 10)
	jobs := of("batch", "b", 3)
	for i := range jobs[:2] {
		jobs[i].Batch = "x"
	}
	b.accept("park", jobs...)
	b.must(b.books.CancelBatch(b.ctx, "x", "me", "a test", time.Second, func(ledger.Shelved) error { return nil }))
	want(t, "batch ones", fmt.Sprint(b.line("batch")), "[b2~1]")
}

// A job whose worker died after it had opened the attempt only to park the job also goes back to its class's line.
func TestAnUncalledJobOfADeadWorkerComesBackToItsClass(t *testing.T) {
	t.Parallel()
	b := classed(t, 100, 10)
	b.accept("park", job.Job{ID: "b", Priority: "batch", Expires: time.UnixMicro(b.now).Add(time.Minute)})
	id, generation := b.take("batch")
	b.now += (2 * time.Minute).Microseconds()
	_, what := b.open(id, generation, "w")
	want(t, "opening", what, job.OpenExpired)
	b.live(2*time.Minute, nil)
	want(t, "batch ones", fmt.Sprint(b.line("batch")), "[b~2]")
}
