package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/testkit"
)

// One script takes a chunk in: jobs of two batches and of none, parked for two reasons, with small, large and unreadable amounts, each
// several times. The sums that it moves together are those of the records, job by job.
func TestAChunkThatIsTakenInMovesAllOfItsMoney(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, func(c *ledger.Config) { c.Money = eurosOrMore })
	var ids []string
	for i := range 6 * len(payloads) {
		id := fmt.Sprintf("j%d", i)
		ids = append(ids, id)
		b.accept("park", job.Job{ID: id, Cost: 2, Batch: []string{"", "a:b", "c"}[i/len(payloads)%3], Payload: payloads[i%len(payloads)]})
	}
	b.must(b.books.CancelBatch(b.ctx, "c", "me", "mistake", 0, noted))
	b.clean("parked")
	b.cfg.Bucket = tokens{bucket.TokenBucket{Limits: []job.Limit{{N: 100, Window: time.Second}}, Burst: 1_000_000}}
	b.on(b.c)
	for _, chunk := range [][]string{ids[:30], ids[30:]} {
		answers, _, err := b.books.Readmit(b.ctx, b.back(chunk...))
		b.must(err)
		for i, a := range answers {
			want(t, "answer for "+chunk[i], a, job.Enqueued)
		}
		b.clean("taken in")
	}
	left, err := b.books.ParkedMoney(b.ctx)
	b.must(err)
	want(t, "money still parked", text(left), "[]")
}

// onTwin is a bench with a name of its own, as long as its twin's, because a task's message contains it.
func onTwin(t *testing.T, name string) *bench {
	t.Helper()
	b := setup(t, 100, func(c *ledger.Config) {
		c.Gateway, c.Money, c.Encode = name, eurosOrMore, queue.NewEncoder(name).Encode
	})
	b.name = name
	b.keys = keysOf(name)
	b.on(b.c)
	return b
}

func (b *bench) burst(n int64) {
	b.cfg.Bucket = tokens{bucket.TokenBucket{Limits: []job.Limit{{N: 100, Window: time.Second}}, Burst: n}}
	b.on(b.c)
}

// odd are ids that could be mistaken for a name, a pattern, a text or another job's key.
var odd = []string{"a~2", "~~", "a~1~1", "7", "%d%s", `"\`, "{x}", "'", "spillway:job", "a:b", "kept~2", strings.Repeat("x", 122), strings.Repeat("}", 125),
	strings.Repeat("z", 199) + "1"}

// parksOfAllKinds parks jobs for every reason, some with a record that says more than most, and returns how each is to go in again.
func (b *bench) parksOfAllKinds() (jobs []job.Return) {
	b.t.Helper()
	store := deadletter.New(b.c, b.name)
	store.NowMicros = func() int64 { return b.now }
	for i, reason := range []job.Reason{job.Refused, job.Exhausted, job.UnknownOutcome, job.Expired, job.Refused, job.Refused, job.UnknownOutcome, job.Exhausted} {
		b.accept("park", job.Job{ID: fmt.Sprintf("called%d", i), Batch: []string{"", "a:b", "bad"}[i%3], Cost: int64(i % 3), Payload: payloads[i%len(payloads)]})
		id, generation := b.pull()
		a, _ := b.open(id, generation, "w")
		e := job.Ending{Called: i%4 != 3, Spent: true, Status: 402 + i, Verdict: job.VerdictRetry, Error: "no", Unsure: i%2 == 0, At: time.UnixMicro(b.now)}
		b.must(store.Park(b.ctx, a, e, reason))
		b.finish(id, generation)
		b.now += 1000
	}
	b.c.HSet(b.ctx, b.keys.Job("called4"), "ed", b.now, "k", 2) // another payload since, with the next key
	b.c.HSet(b.ctx, b.keys.Job("called7"), "ya", 2, "fl", "5 ", "fo", 1, "fq", 5, "y", 3)
	b.burst(1)
	b.accept("park", job.Job{ID: "dear", Cost: 2}, job.Job{ID: "later", Batch: "a:b", At: time.UnixMicro(b.now).Add(time.Hour)})
	b.accept("park", manySizes("c")...)
	for _, id := range odd {
		b.accept("park", job.Job{ID: id, Batch: "bad", Payload: payloads[1]})
	}
	b.must(b.books.CancelBatch(b.ctx, "bad", "me", "mistake", 0, noted))
	b.clean("parked")
	keys := []job.KeyChange{job.KeepKey, job.NextKey, job.ForgetKey}
	for r, err := range store.List(b.ctx, deadletter.Filter{}) {
		b.must(err)
		jobs = append(jobs, job.Return{ID: r.Job.ID, Generation: r.Generation, Reason: r.Reason, Key: keys[len(jobs)%3]})
		if r.Job.ID == "called4" || r.Job.ID == "called2" { // of unknown outcome: a person has found that it wasn't charged
			jobs[len(jobs)-1].Key = job.NextKey
		}
	}
	discarded := jobs[len(jobs)-1:]
	_, err := store.Discard(b.ctx, discarded, time.Hour)
	b.must(err)
	jobs = append(jobs, job.Return{ID: "called0", Generation: 9, Reason: job.Refused, Key: job.KeepKey}, // of another life
		job.Return{ID: "called1", Generation: 1, Reason: job.Expired, Key: job.KeepKey}, job.Return{ID: "ghost", Generation: 1, Reason: job.Rejected}, jobs[0])
	b.c.ZAdd(b.ctx, b.keys.Parked("expired"), redis.Z{Score: 1, Member: "called1"})
	b.c.ZAdd(b.ctx, b.keys.Parked("rejected"), redis.Z{Score: 1, Member: "ghost"})
	b.burst(1_000_000)
	return jobs
}

// A chunk of all kinds of job leaves exactly the same fields as the same jobs one by one, and no record keeps what is past.
func TestAChunkThatGoesInAgainLeavesWhatItsJobsWouldLeave(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for n, act := range []func() string{nil, func() string { return "7" }, deadletter.ByItself} {
		at := func(suffix string) (*bench, *ledger.Books, []job.Return) {
			b := onTwin(t, fmt.Sprintf("kinds%d%s", n, suffix))
			jobs := b.parksOfAllKinds()
			return b, b.books.For(act), jobs
		}
		together, books, jobs := at("a")
		got, _, err := books.Readmit(together.ctx, jobs)
		together.must(err)
		alone, books, jobs := at("b")
		for i, r := range jobs {
			answers, _, err := books.Readmit(alone.ctx, []job.Return{r})
			alone.must(err)
			expect := job.Enqueued
			if i >= len(jobs)-5 {
				expect = job.Gone
			}
			want(t, "answer for "+r.ID+" alone", answers[0], expect)
			want(t, "answer for "+r.ID, got[i], expect)
		}
		alike(t, fmt.Sprintf("act %d", n), together, alone)
		together.clean("taken in")
		for _, r := range jobs[:len(jobs)-5] {
			h := together.c.HGetAll(together.ctx, together.keys.Job(r.ID)).Val()
			for _, past := range []string{"r", "e", "pa", "n", "st", "fl", "fo", "fq"} {
				if h[past] != "" {
					t.Errorf("%s still has %s: %v", r.ID, past, h)
				}
			}
			task := job.TaskID(r.ID, r.Generation+1)
			if r.ID == "later" {
				want(t, "state of later", h["s"], "scheduled")
				continue
			}
			msg, err := together.cfg.Encode(task)
			together.must(err)
			want(t, "message of "+task, together.c.HGet(together.ctx, together.keys.Task(task), "msg").Val(), string(msg))
		}
		field := func(id, name string) string { return together.c.HGet(together.ctx, together.keys.Job(id), name).Val() }
		want(t, "key of one given another payload since", field("called4", "k"), "2")
		want(t, "generation of one whose time is to come", field("later", "g"), "1")
		want(t, "one of a cancelled batch, taken out by a person", field("a~2", "rc"), map[bool]string{true: "", false: "1"}[n == 2])
		for _, r := range jobs[:len(jobs)-5] {
			settled := r.Key == job.ForgetKey || r.Key == job.NextKey && r.Reason == job.UnknownOutcome
			want(t, r.ID+" is settled", field(r.ID, "kn") != "", settled)
		}
		var order, replays []string // those that were called before have a line of their own
		for _, r := range jobs[:len(jobs)-5] {
			switch {
			case r.ID == "later":
			case field(r.ID, "h") != "":
				replays = append(replays, r.ID)
			default:
				order = append(order, r.ID)
			}
		}
		order = append(order, replays...)
		if len(replays) == 0 {
			t.Error("no job was called before")
		}
		if got := together.pending(); !slices.Equal(got, order) {
			t.Errorf("in the queue are %v, want %v", got, order)
		}
	}
}

// Fields that only few parked jobs have are seen, and fields that only a parked job may have are removed when it leaves.
func TestWhatFewParkedJobsHaveIsSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value any
		key   job.KeyChange
		left  string // in the record, afterwards
	}{
		"c": {3, job.KeepKey, "3"}, "at": {int64(1_900_000_000_000_000), job.KeepKey, "1900000000000000"}, "y": {4, job.KeepKey, "5"}, "ya": {2, job.KeepKey, ""},
		"k": {4, job.NextKey, "5"}, "f": {5, job.ForgetKey, ""}, "am": {1, job.NextKey, ""}, "n": {2, job.KeepKey, ""}, "st": {402, job.KeepKey, ""},
		"ca": {2, job.KeepKey, "2"}, "lq": {1, job.KeepKey, ""}, "la": {5, job.KeepKey, ""}, "rt": {"r", job.KeepKey, "r"}, "x": {int64(1_900_000_000_000_000), job.KeepKey, "1900000000000000"},
		"fl": {"5 ", job.KeepKey, ""}, "fo": {1, job.KeepKey, ""}, "fq": {5, job.KeepKey, ""}, "h": {"1 2 402 refused\n", job.KeepKey, "1 2 402 refused\n"},
	} {
		b := setup(t, 1, func(c *ledger.Config) { c.Money = eurosOrMore })
		var ids []string
		b.accept("park", job.Job{ID: "first"})
		for _, batch := range []string{"", "p"} {
			for i, p := range slices.Concat(payloads[:2], [][]byte{[]byte(`{"note":"` + strings.Repeat("x", 200) + `"}`)}) {
				id := fmt.Sprintf("j%s%d", batch, i)
				ids = append(ids, id)
				b.accept("park", job.Job{ID: id, Batch: batch, Payload: p})
				b.c.HSet(b.ctx, b.keys.Job(id), name, c.value)
			}
		}
		jobs := b.back(ids...)
		for i := range jobs {
			jobs[i].Key = c.key
		}
		b.burst(1000)
		_, _, err := b.books.Readmit(b.ctx, jobs)
		b.must(err)
		for _, id := range ids {
			want(t, name+" of "+id, b.c.HGet(b.ctx, b.keys.Job(id), name).Val(), c.left)
			want(t, "state of "+id, b.record(id).State, map[bool]job.State{true: job.Scheduled, false: job.Queued}[name == "at"])
			if cost := b.c.HGet(b.ctx, b.keys.Costs(), id+"~2").Val(); name == "c" && cost != "3" {
				t.Errorf("the queue knows %q as the cost of %s", cost, id)
			}
		}
	}
}

// Most jobs are parked with nothing but what all jobs have. They go in by a shorter way, which leaves the rest of their records alone.
func TestAPlainJobKeepsWhatItHad(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, func(c *ledger.Config) { c.Money = eurosOrMore })
	b.accept("park", job.Job{ID: "first"})
	var ids []string
	var before []map[string]string
	for i, size := range []int{0, 1, 50, 64, 65, 128, 129, 300, 512, 513, 5000} {
		for _, batch := range []string{"", "p"} {
			id := fmt.Sprintf("j%d%s", i, batch)
			payload := []byte(`{}`)
			if size > 0 {
				payload = []byte(`{"amount":` + strings.Repeat("1", size%9+1) + `,"note":"` + strings.Repeat("x", size) + `"}`)
			}
			b.accept("park", job.Job{ID: id, Batch: batch, Payload: payload})
			ids, before = append(ids, id), append(before, b.c.HGetAll(b.ctx, b.keys.Job(id)).Val())
		}
	}
	b.clean("parked")
	b.burst(1000)
	answers, _, err := b.books.Readmit(b.ctx, b.back(ids...))
	b.must(err)
	for i, id := range ids {
		want(t, "answer for "+id, answers[i], job.Enqueued)
		expect := before[i]
		expect["s"], expect["g"], expect["y"] = "queued", "2", "1"
		delete(expect, "r")
		delete(expect, "e")
		delete(expect, "pa")
		want(t, "record of "+id, fmt.Sprint(b.c.HGetAll(b.ctx, b.keys.Job(id)).Val()), fmt.Sprint(expect))
	}
	if got := b.pending(); !slices.Equal(got[1:], ids) {
		t.Errorf("in the queue are %v, want %v", got, ids)
	}
	b.clean("taken in")
}

// A gateway that had flows has parts of parked jobs for them, until they are sorted anew. What goes in leaves these too.
func TestAPlainJobLeavesThePartOfItsFlow(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, func(c *ledger.Config) {
		c.First = []string{keysOf(c.Gateway).First("urgent"), keysOf(c.Gateway).Pending()}
	})
	b.accept("park", job.Job{ID: "first"}, job.Job{ID: "a"}, job.Job{ID: "b", Batch: "p"})
	b.accept("park", job.Job{ID: "c"})
	want(t, "jobs in the part of their flow", b.c.HGet(b.ctx, b.keys.Counters(), "flowed").Val(), "3")
	b.cfg.First = nil
	b.burst(1000)
	want(t, "there are flows", b.books.HasFlows(), false)
	answers, _, err := b.books.Readmit(b.ctx, b.back("a", "b"))
	b.must(err)
	want(t, "answers", fmt.Sprint(answers), fmt.Sprint([]job.Admittance{job.Enqueued, job.Enqueued}))
	want(t, "left in the part", fmt.Sprint(b.c.ZRange(b.ctx, b.keys.Parked("rejected")+":f:::", 0, -1).Val()), "[c]")
	want(t, "left in all parts", b.c.HGet(b.ctx, b.keys.Counters(), "flowed").Val(), "1")
}
