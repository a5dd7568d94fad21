package deadletter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/record"
)

func (b *bench) replace(j job.Job, digest string) deadletter.Replaced {
	b.t.Helper()
	all, err := b.store.Replace(b.ctx, b.rules(), []job.Job{j}, []string{digest})
	b.must(err)
	return all[0]
}

func TestAReplacedJobGoesInWithItsNewPayloadAndTheNextKey(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a", Payload: []byte(`{"n":1}`), Batch: "b1"}, job.Refused, refused("HTTP 402"))
	edited := job.Job{ID: "a", Payload: []byte(`{"n":2}`)}
	got := b.replace(edited, "other")
	if got.Err != nil || got.Same || got.Return.Key != job.KeepKey {
		t.Fatalf("%+v", got)
	}
	r := b.record("a")
	want(t, "state", r.State, job.Parked)
	want(t, "payload", string(r.Job.Payload), `{"n":2}`)
	want(t, "key", job.IdempotencyKey("a", r.KeyGeneration), "a~2")
	want(t, "the new key was never sent", r.FirstCall.IsZero(), true)
	again := b.replace(edited, "other") // killed before it was taken in: it goes on
	if again.Err != nil || again.Same {
		t.Errorf("once more: %+v", again)
	}
	want(t, "key after the second time", b.record("a").KeyGeneration, 2)
	done, err := b.bulkRun(deadletter.Filter{}).Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 1})
	want(t, "key in the queue", b.record("a").KeyGeneration, 2)
	if got := b.replace(edited, "other"); !got.Same {
		t.Errorf("when it is queued: %+v", got)
	}
	b.call("a", job.Refused, refused("HTTP 402"))
	want(t, "offered with the payload it has", b.replace(edited, "other").Same, true)
	_, err = b.bulkRun(deadletter.Filter{}).Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "key after another no", b.record("a").KeyGeneration, 3)
	want(t, "the new payload is the one that is known", b.accept(b.books, job.Job{ID: "a"})[0], job.Conflict)
}

func TestWhatMayNotBeReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	b.park(job.Job{ID: "unknown", Payload: []byte(`{"n":1}`)}, job.UnknownOutcome, timedOut())
	unsure := timedOut()
	b.park(job.Job{ID: "unsure", Payload: []byte(`{"n":1}`)}, job.Exhausted, unsure)
	b.must(b.store.ParkUnreadable(b.ctx, "foreign", []byte("hello"), "foreign"))
	b.park(job.Job{ID: "late", Payload: []byte(`{"n":1}`), Expires: b.Now().Add(time.Second)}, job.Refused, refused("no"))
	b.park(job.Job{ID: "plain", Payload: []byte(`{"n":1}`), Batch: "b1"}, job.Refused, refused("no"))
	b.accept(b.books, job.Job{ID: "queued", Payload: []byte(`{"n":1}`)})
	b.now.Add(time.Minute.Microseconds())
	for _, c := range []struct {
		job  job.Job
		says string
	}{
		{job.Job{ID: "nobody"}, "no such job is known"},
		{job.Job{ID: "unknown"}, "an earlier call may have charged"},
		{job.Job{ID: "unsure"}, "an earlier call may have charged"},
		{job.Job{ID: "foreign"}, "it was never a job"},
		{job.Job{ID: "late"}, "its time to expire has passed"},
		{job.Job{ID: "queued"}, "it is queued: only a parked job"},
		{job.Job{ID: "plain", Cost: 5}, "changes the payload alone"},
		{job.Job{ID: "plain", Batch: "b2"}, "changes the payload alone"},
		{job.Job{ID: "plain", At: b.Now()}, "changes the payload alone"},
		{job.Job{ID: "plain", Expires: b.Now()}, "changes the payload alone"},
	} {
		c.job.Payload = []byte(`{"n":2}`)
		got := b.replace(c.job, "other")
		if got.Err == nil || !strings.Contains(got.Err.Error(), c.says) {
			t.Errorf("%s: %+v, want %q", c.job.ID, got, c.says)
		}
		if c.job.ID != "nobody" && strings.Contains(string(b.record(c.job.ID).Job.Payload), "2") {
			t.Errorf("%s was replaced", c.job.ID)
		}
	}
	want(t, "the payload it has", b.replace(job.Job{ID: "plain", Cost: 1, Batch: "b1"}, "d").Same, true)
}

// A key that is another job's id is skipped. Two lines for one job are one replacement.
func TestAReplacementTakesNoOtherJobsKey(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	b.accept(b.books, job.Job{ID: "a~2"})
	b.c.Del(b.ctx, b.keys.Pending())
	b.park(job.Job{ID: "a", Payload: []byte(`{"n":1}`)}, job.Refused, refused("no"))
	two := []job.Job{{ID: "a", Payload: []byte(`{"n":2}`)}, {ID: "a", Payload: []byte(`{"n":3}`)}}
	got, err := b.store.Replace(b.ctx, b.rules(), two, []string{"d2", "d3"})
	b.must(err)
	if got[0].Err != nil || got[1].Err == nil {
		t.Errorf("%+v", got)
	}
	want(t, "payload", string(b.record("a").Job.Payload), `{"n":2}`)
	want(t, "key", b.record("a").KeyGeneration, 3)
}

func TestAReplacementChangesTheMoneyThatIsParked(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a", Payload: []byte(`{"n":1}`), Batch: "b1"}, job.Refused, refused("HTTP 402"))
	rules := b.rules()
	rules.Money = func(payload []byte) string { return job.MoneyField(payload, "amount", "currency") }
	place := record.Place{State: job.Parked, Reason: job.Refused}
	for payload, expect := range map[string]string{`{"amount":5,"currency":"EUR"}`: "5", `{"amount":7000000000,"currency":"EUR"}`: "7000000000"} {
		all, err := b.store.Replace(b.ctx, rules, []job.Job{{ID: "a", Payload: []byte(payload)}}, []string{payload})
		b.must(err)
		b.must(all[0].Err)
		batch, _, err := b.books.Batch(b.ctx, "b1")
		b.must(err)
		parked, err := b.books.ParkedMoney(b.ctx)
		b.must(err)
		want(t, "the batch's money", batch.Places[place].Amount["EUR"].String(), expect)
		want(t, "the gateway's", parked[job.Refused].Amount["EUR"].String(), expect)
	}
}

// Large payloads are stored in pieces. No piece of the old payload may remain.
func TestAReplacedPayloadIsTheNewOneWhateverTheSizes(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	for i, sizes := range [][2]int{{500, 100}, {100, 500}, {500, 20}, {20, 500}, {300, 2000}, {2000, 300}} {
		id := "a" + string(rune('0'+i))
		text := func(n int) []byte { return []byte(`{"n":"` + strings.Repeat("x", n-8) + `"}`) }
		b.park(job.Job{ID: id, Payload: text(sizes[0])}, job.Refused, refused("HTTP 402"))
		if got := b.replace(job.Job{ID: id, Payload: text(sizes[1])}, "other"+id); got.Err != nil {
			t.Fatalf("%v: %v", sizes, got.Err)
		}
		want(t, "payload", string(b.record(id).Job.Payload), string(text(sizes[1])))
		for r, err := range b.store.List(b.ctx, deadletter.Filter{IDs: []string{id}}) {
			b.must(err)
			want(t, "listed payload", string(r.Job.Payload), string(text(sizes[1])))
		}
	}
}

// A payload without an amount that replaces one with an amount would remove money from the books. It is refused unless explicitly allowed.
func TestAReplacementDoesNotLoseAnAmount(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	rules := b.rules()
	rules.Money = func(payload []byte) string { return job.MoneyField(payload, "amount", "currency") }
	b.park(job.Job{ID: "a", Payload: []byte(`{"n":1}`)}, job.Refused, refused("HTTP 402"))
	replace := func(payload string) deadletter.Replaced {
		t.Helper()
		look, err := b.store.LookReplace(b.ctx, rules, []job.Job{{ID: "a", Payload: []byte(payload)}}, []string{payload})
		b.must(err)
		did, err := b.store.Replace(b.ctx, rules, []job.Job{{ID: "a", Payload: []byte(payload)}}, []string{payload})
		b.must(err)
		if look[0] != did[0] {
			t.Errorf("the look says %+v, and it did %+v", look[0], did[0])
		}
		return did[0]
	}
	const some, none = `{"amount":5,"currency":"EUR"}`, `{"amount":null}`
	got := replace(some)
	want(t, "before", got.Before, deadletter.Version{Digest: "d"})
	want(t, "after", got.After, deadletter.Version{Digest: some, Money: "5 EUR"})
	if got := replace(none); got.Err == nil || !strings.Contains(got.Err.Error(), "say --without-amount") {
		t.Errorf("%+v", got)
	}
	want(t, "payload", string(b.record("a").Job.Payload), some)
	rules.LoseAmounts = true
	got = replace(none)
	want(t, "before", got.Before, deadletter.Version{Digest: some, Money: "5 EUR"})
	want(t, "after", got.After, deadletter.Version{Digest: none, Money: "-"})
	want(t, "payload", string(b.record("a").Job.Payload), none)
}

// turned marks a job as possibly charged, between the look at it and the script.
type turned struct {
	redis.UniversalClient
	turn func()
}

func (c turned) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	c.turn()
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// A replacement uses a new key, so a job that may have been charged must not be replaced, even if that became known just now.
func TestTheScriptItselfReplacesNothingInDoubt(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a", Payload: []byte(`{"n":1}`)}, job.Refused, refused("HTTP 402"))
	store := deadletter.New(turned{b.c, func() { b.c.HSet(b.ctx, b.keys.Job("a"), "am", "1") }}, b.name)
	got, err := store.Replace(b.ctx, b.rules(), []job.Job{{ID: "a", Payload: []byte(`{"n":2}`)}}, []string{"other"})
	b.must(err)
	if r := b.record("a"); got[0].Err == nil || string(r.Job.Payload) != `{"n":1}` || !r.Unsure || r.KeyGeneration != 1 {
		t.Errorf("%+v, and the job is %+v", got[0], r)
	}
}
