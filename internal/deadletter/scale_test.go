package deadletter_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/testkit"
)

// mixed parks jobs of several reasons and batches, and moves some of them on.
func mixed(t *testing.T) *bench {
	b := setup(t, 1_000_000)
	batches := []string{"", "b1", "b2", "odd } name"}
	for i := range 24 {
		reason := []job.Reason{job.Refused, job.UnknownOutcome, job.Exhausted}[i%3]
		e := refused("HTTP 402")
		if reason == job.UnknownOutcome {
			e = timedOut()
		}
		b.park(job.Job{ID: fmt.Sprintf("p%d", i), Batch: batches[i%4], Payload: []byte("{}")}, reason, e)
	}
	for i := range 20 {
		b.now.Add(1000)
		b.reject(job.Job{ID: fmt.Sprintf("r%d", i), Batch: batches[i%4]})
	}
	all := b.list(deadletter.Filter{})
	b.now.Add(1_000_000)
	var in []job.Return
	for _, r := range all[:12] {
		in = append(in, job.Return{ID: r.Job.ID, Generation: r.Generation, Reason: r.Reason, Key: job.KeepKey})
	}
	_, _, err := b.books.Readmit(b.ctx, in[:8])
	b.must(err)
	for _, r := range all[:4] { // and come back, for another reason
		b.call(r.Job.ID, job.Refused, refused("HTTP 402: again"))
	}
	_, err = b.store.Discard(b.ctx, in[8:10], time.Hour)
	b.must(err)
	for _, r := range all {
		if r.Reason == job.UnknownOutcome {
			_, err = b.store.Resolve(b.ctx, []job.Return{{ID: r.Job.ID, Generation: r.Generation, Reason: r.Reason}}, time.Hour, "")
			b.must(err)
			break
		}
	}
	return b
}

// A batch's index has exactly the jobs of the reason's set that are of the batch, with the same scores, whatever moved.
func TestABatchsIndexIsItsPartOfTheReasonsSet(t *testing.T) {
	t.Parallel()
	b := mixed(t)
	for _, reason := range job.Reasons() {
		parts := map[string][]string{}
		for _, z := range b.c.ZRangeWithScores(b.ctx, b.keys.Parked(string(reason)), 0, -1).Val() {
			id := z.Member.(string)
			batch := b.record(id).Job.Batch
			parts[batch] = append(parts[batch], fmt.Sprintf("%s %.0f", id, z.Score))
		}
		for _, batch := range []string{"b1", "b2", "odd } name"} {
			var got []string
			for _, z := range b.c.ZRangeWithScores(b.ctx, b.keys.ParkedBatch(string(reason), batch), 0, -1).Val() {
				got = append(got, fmt.Sprintf("%s %.0f", z.Member, z.Score))
			}
			if !slices.Equal(got, parts[batch]) {
				t.Errorf("%s of batch %q: the index has %v, the set %v", reason, batch, got, parts[batch])
			}
		}
	}
}

func TestCountsAreWhatAListingShows(t *testing.T) {
	t.Parallel()
	b := mixed(t)
	all := b.list(deadletter.Filter{})
	middle := all[len(all)/2].ParkedAt
	for _, f := range []deadletter.Filter{{}, {Batch: "b1"}, {Batch: "none"}, {Reasons: []job.Reason{job.Refused, job.Rejected}},
		{Since: middle}, {Until: middle}, {Batch: "b2", Since: middle, Reasons: []job.Reason{job.Refused}}} {
		got, err := b.store.Count(b.ctx, f)
		b.must(err)
		expect := map[job.Reason]deadletter.Heap{}
		for _, r := range all {
			if (f.Batch != "" && r.Job.Batch != f.Batch) || (len(f.Reasons) > 0 && !slices.Contains(f.Reasons, r.Reason)) ||
				(!f.Since.IsZero() && r.ParkedAt.Before(f.Since)) || (!f.Until.IsZero() && !r.ParkedAt.Before(f.Until)) {
				continue
			}
			h := expect[r.Reason]
			if h.Jobs++; h.Jobs == 1 {
				h.Oldest = r.ParkedAt
			}
			expect[r.Reason] = h
		}
		want(t, fmt.Sprintf("counts of %+v", f), fmt.Sprint(got), fmt.Sprint(expect))
		want(t, fmt.Sprintf("listed of %+v", f), len(b.list(f)), int(got[job.Refused].Jobs+got[job.Rejected].Jobs+got[job.UnknownOutcome].Jobs+got[job.Exhausted].Jobs))
	}
}

// Between two pages, jobs leave, others are parked, and one leaves and returns. Those that stayed are listed once each, in order.
func TestPagesAreStableWhileJobsComeAndGo(t *testing.T) {
	t.Parallel()
	b := setup(t, 1_000_000)
	b.reject(numbered(1, 30)...)
	f := deadletter.Filter{Limit: 7}
	seen, gone := "", map[string]bool{}
	for turn := range 20 {
		found := b.list(f)
		for _, r := range found {
			seen += r.Job.ID + " "
		}
		if len(found) < f.Limit {
			break
		}
		last := found[len(found)-1]
		f.After = deadletter.Cursor(last)
		for _, r := range []job.Record{found[0], last} { // the cursor's own job leaves too
			_, err := b.store.Discard(b.ctx, []job.Return{{ID: r.Job.ID, Generation: r.Generation, Reason: r.Reason}}, time.Hour)
			b.must(err)
			gone[r.Job.ID] = true
		}
		b.now.Add(1_000_000)
		if turn == 0 {
			b.reject(numbered(31, 33)...)
		}
	}
	want(t, "seen over all pages", seen, ids(recordsOf(numbered(1, 33))))
	if len(gone) < 8 {
		t.Errorf("only %d jobs left meanwhile: the test shows nothing", len(gone))
	}
}

func recordsOf(jobs []job.Job) (all []job.Record) {
	for _, j := range jobs {
		all = append(all, job.Record{Job: j})
	}
	return all
}

// There are more jobs than one look at errors reads, and few match, also the first and the last of a look.
func TestASearchThroughErrorsFindsEachMatchOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1_000_000)
	searches(b)
}

// A cluster, or a user without the permission, has no command that reads one field of many records.
func TestASearchThroughErrorsGoesWithoutSort(t *testing.T) {
	t.Parallel()
	b := setup(t, 1_000_000)
	c := testkit.Server(t, "--rename-command", "SORT_RO", "").Client()
	if err := c.Do(t.Context(), "SORT_RO", "x").Err(); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Fatalf("this server answers %v to SORT_RO: the test shows nothing", err)
	}
	b.on(c)
	searches(b)
}

func searches(b *bench) {
	t := b.t
	t.Helper()
	b.park(job.Job{ID: "first", Payload: []byte("{}")}, job.Refused, refused("HTTP 402: stolen"))
	for from := 1; from <= 2400; from += 200 {
		b.reject(numbered(from, from+199)...)
	}
	b.refuseAll()
	for i, id := range []string{"j999", "j1999", "j2000", "j2400"} {
		b.must(b.c.HSet(b.ctx, b.keys.Job(id), "e", fmt.Sprintf("HTTP 402: stolen %d", i)).Err())
	}
	looked := 0
	f := deadletter.Filter{Match: regexp.MustCompile("stolen"), Looked: func(n int) { looked += n }}
	want(t, "found", ids(b.list(f)), "first j999 j1999 j2000 j2400 ")
	want(t, "looked at", looked, 2401)
	f.Limit, f.After, f.Looked = 2, deadletter.Cursor(b.record("j999")), nil
	want(t, "found behind j999", ids(b.list(f)), "j1999 j2000 ")
	f = deadletter.Filter{Match: regexp.MustCompile("nothing like it")}
	want(t, "found of none", ids(b.list(f)), "")
}

// refuseAll makes all that is parked as rejected parked as refused, in its order.
func (b *bench) refuseAll() {
	b.t.Helper()
	rejected, refused := b.keys.Parked(string(job.Rejected)), b.keys.Parked(string(job.Refused))
	_, err := b.c.Pipelined(b.ctx, func(p redis.Pipeliner) error {
		for _, id := range b.c.ZRange(b.ctx, rejected, 0, -1).Val() {
			p.HSet(b.ctx, b.keys.Job(id), "r", string(job.Refused))
		}
		p.ZUnionStore(b.ctx, refused, &redis.ZStore{Keys: []string{rejected, refused}})
		p.Del(b.ctx, rejected)
		return nil
	})
	b.must(err)
}

// Jobs are parked as rejected in three ways. Where none of their errors matches, none of the jobs is looked at.
func TestASearchPassesByWhatIsRejected(t *testing.T) {
	t.Parallel()
	b := setup(t, 1_000_000)
	b.accept(b.books, job.Job{ID: "under-way", Batch: "b1"}, job.Job{ID: "waiting", Batch: "b1"})
	a := b.open("under-way")
	none := func(ledger.Shelved) error { return nil }
	b.must(b.books.PauseBatch(b.ctx, "b1", "kim", "wrong file", none))
	b.must(b.books.ResumeBatch(b.ctx, "b1", none))
	b.must(b.store.Park(b.ctx, a, job.Ending{Verdict: job.VerdictRetry, Error: "its batch is paused: wrong file"}, job.Paused))
	b.reject(job.Job{ID: "no-room"})
	all := b.list(deadletter.Filter{Reasons: []job.Reason{job.Rejected}})
	want(t, "rejected", ids(all), "waiting under-way no-room ")
	for _, r := range all {
		if !slices.Contains(job.Rejected.Errors(), r.Error) {
			t.Errorf("%s has the error %q, which a search does not know of", r.Job.ID, r.Error)
		}
	}
	looked := 0
	f := deadletter.Filter{Match: regexp.MustCompile("paused$"), Looked: func(n int) { looked += n }}
	want(t, "paused", ids(b.list(f)), "waiting under-way ")
	want(t, "looked at", looked, 3)
	looked, f.Match = 0, regexp.MustCompile("stolen")
	want(t, "stolen", ids(b.list(f)), "")
	want(t, "looked at for nothing", looked, 0)
}
