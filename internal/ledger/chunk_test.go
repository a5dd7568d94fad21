package ledger_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/testkit"
)

// all returns everything that Redis has of the bench's gateway, except receipts, without the gateway's name.
func (b *bench) all() map[string]any {
	b.t.Helper()
	found := map[string]any{}
	for _, key := range b.c.Keys(b.ctx, "*{"+b.name+"}*").Val() {
		var what any
		switch kind := b.c.Type(b.ctx, key).Val(); kind {
		case "hash":
			h := b.c.HGetAll(b.ctx, key).Val()
			h["msg"] = strings.ReplaceAll(h["msg"], b.name, "")
			delete(h, "acted") // when a person's act began, on Redis's own clock
			what = h
		case "list":
			what = b.c.LRange(b.ctx, key, 0, -1).Val()
		case "zset":
			what = b.c.ZRangeWithScores(b.ctx, key, 0, -1).Val()
		default:
			what = kind
		}
		if !strings.Contains(key, ":receipt:") {
			found[strings.ReplaceAll(key, b.name, "")] = what
		}
	}
	return found
}

// manySizes are jobs with payloads on both sides of each border between two ways of storing them, and with all kinds of money.
func manySizes(batch string) []job.Job {
	var jobs []job.Job
	for _, size := range []int{2, 63, 64, 65, 128, 129, 200, 511, 512, 513, 5000, 70_000} {
		text := append([]byte(`{`), bytes.Repeat([]byte(" "), size-2)...)
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("s%d", size), Batch: batch, Payload: append(text, '}')})
	}
	for i, p := range slices.Concat(payloads, payloads) {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("m%d", i), Batch: batch, Payload: p})
	}
	return jobs
}

// onAlgorithm is a bench with one of admission's algorithms, which has room for 500. Its name is as long as those of others of the same number,
// because a task's message contains it.
func onAlgorithm(t *testing.T, algorithm, name string, money func([]byte) string) *bench {
	b := setup(t, 1000, func(cfg *ledger.Config) {
		alg, err := bucket.NewAlgorithm(algorithm, []job.Limit{{N: 500, Window: time.Second}, {N: 9000, Window: time.Minute}}, 500, 10)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Gateway = name
		cfg.Bucket, cfg.Money, cfg.Encode = alg, money, queue.NewEncoder(cfg.Gateway).Encode
	})
	b.name = b.cfg.Gateway
	b.keys = keysOf(b.name)
	return b
}

// Jobs that come in one chunk, whether they go in or are parked, leave exactly the same fields as jobs that come one by one.
func TestAChunkLeavesWhatItsJobsLeaveOneByOne(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	meets := []struct {
		name   string
		before func(*bench, string)
		want   []job.Admittance // all that it may be answered
	}{
		{"room", func(*bench, string) {}, []job.Admittance{job.Enqueued}},
		{"no room", func(b *bench, _ string) { b.cfg.InOrder = false; b.on(b.c); b.fill(0) }, []job.Admittance{job.ParkedNow}},
		{"room for some", func(b *bench, _ string) { b.cfg.InOrder = false; b.on(b.c); b.fill(5) }, []job.Admittance{job.Enqueued, job.ParkedNow}},
		{"others that wait", func(b *bench, _ string) { b.fill(0); b.now += 10_000_000 }, []job.Admittance{job.ParkedNow}},
		{"a pause", (*bench).pauses, []job.Admittance{job.ParkedNow}},
		{"all that may be parked", func(b *bench, _ string) { b.cfg.InOrder, b.cfg.Parked.Jobs = false, 10; b.on(b.c); b.fill(0) }, []job.Admittance{job.ParkedNow, job.Full}},
		{"no more that may be parked", func(b *bench, batch string) { b.pauses(batch); b.cfg.Parked.Jobs = 1; b.on(b.c) }, []job.Admittance{job.Full}},
	}
	for a, name := range job.Algorithms() {
		for n, c := range []struct {
			batch string
			money func([]byte) string
		}{{"november", eurosOrMore}, {"november", nil}, {"", eurosOrMore}, {"", nil}} {
			if testkit.Often(0, 1) == 0 && n != a%4 { // the everyday run has one of them for each algorithm
				continue
			}
			for m, meets := range meets {
				if strings.Contains("a pause, no more that may be parked", meets.name) && c.batch == "" {
					continue
				}
				on := func(suffix string) *bench {
					b := onAlgorithm(t, name, fmt.Sprintf("chunk%d%d%d%s", a, n, m, suffix), c.money)
					meets.before(b, c.batch)
					return b
				}
				together, each := on("a"), on("b")
				jobs := append(manySizes(c.batch), job.Job{ID: "dear", Batch: c.batch, Cost: 2})
				got := together.accept("park", jobs...)
				var want []job.Admittance
				for _, j := range jobs {
					want = append(want, each.accept("park", j)...)
				}
				if answers := slices.Compact(slices.Clone(want)); !slices.Equal(got, want) || !slices.Equal(answers, meets.want) {
					t.Fatalf("%s, %s: answers %v, want %v", name, meets.name, got, want)
				}
				alike(t, fmt.Sprintf("%s, %s, batch %q", name, meets.name, c.batch), together, each)
			}
		}
	}
}

// fill uses up admission's room except for some jobs, and parks one if that is none.
func (b *bench) fill(left int) {
	b.t.Helper()
	some := numbered(1, 500-left)
	if left == 0 {
		some = numbered(1, 501)
	}
	answers := b.accept("park", some...)
	want(b.t, "the last is parked", answers[len(answers)-1] == job.ParkedNow, left == 0)
}

func (b *bench) pauses(batch string) {
	b.t.Helper()
	b.accept("park", job.Job{ID: "first", Batch: batch})
	b.must(b.books.PauseBatch(b.ctx, batch, "me", "bank closed", noted))
}

// alike compares everything that two benches have.
func alike(t *testing.T, what string, got, want *bench) {
	t.Helper()
	a, b := got.all(), want.all()
	for key := range b {
		if !reflect.DeepEqual(a[key], b[key]) {
			t.Errorf("%s: %s is\n%v, want\n%v", what, key, a[key], b[key])
		}
	}
	if len(a) != len(b) {
		t.Errorf("%s: %d keys, want %d", what, len(a), len(b))
	}
}

// Each job of a chunk has its own answer.
func TestEachJobOfAChunkIsLookedAt(t *testing.T) {
	t.Parallel()
	b := setup(t, 100, nil)
	one := func(id, payload string) job.Job { return job.Job{ID: id, Payload: []byte(payload)} }
	got := b.accept("park", one("a", `{}`), one("b", `{}`), one("a", `{}`), one("b", `{"n":2}`))
	if want := []job.Admittance{job.Enqueued, job.Enqueued, job.Duplicate, job.Conflict}; !slices.Equal(got, want) {
		t.Errorf("ids that come twice in a chunk: %v, want %v", got, want)
	}
	got = b.accept("park", one("c", `{}`), one("b", `{}`), one("d", `{}`))
	if want := []job.Admittance{job.Enqueued, job.Duplicate, job.Enqueued}; !slices.Equal(got, want) {
		t.Errorf("one that is known: %v, want %v", got, want)
	}
	if got, want := b.c.LRange(b.ctx, b.keys.Pending(), 0, -1).Val(), []string{"d~1", "c~1", "b~1", "a~1"}; !slices.Equal(got, want) {
		t.Errorf("the queue is %v, want %v", got, want)
	}
	b.clean("after both")
	b.fill(0)
	got = b.accept("park", one("i", `{}`), one("b", `{"n":2}`), one("i", `{}`), one("a", `{}`), one("k", `{}`))
	if want := []job.Admittance{job.ParkedNow, job.Conflict, job.Duplicate, job.Duplicate, job.ParkedNow}; !slices.Equal(got, want) {
		t.Errorf("some that are known where there is no room: %v, want %v", got, want)
	}
	if got := b.parkedAs(job.Rejected); !slices.Equal(got[len(got)-2:], []string{"i", "k"}) {
		t.Errorf("parked last are %v", got)
	}
	b.clean("parked")
	for _, mode := range []string{"wait", "fail"} {
		if got := b.accept(mode, one("g", `{}`), one("h", `{}`)); !slices.Equal(got, []job.Admittance{job.Full, job.Full}) {
			t.Errorf("no room for all, to %s: %v", mode, got)
		}
	}
	ticket, paid := job.Ticket{Sequence: "x", Number: 1}, []job.Newcomer{{Job: one("e", `{}`), Digest: "e"}, {Job: one("f", `{}`), Digest: "f", Money: "1 EUR"}}
	if _, _, err := testkit.Accept(b.ctx, b.books, ticket, paid, "park"); err != nil || b.c.HExists(b.ctx, b.keys.Job("e"), "m").Val() {
		t.Errorf("money of another job: %v, %v", b.c.HGetAll(b.ctx, b.keys.Job("e")).Val(), err)
	}
}
