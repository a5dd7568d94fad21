package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

const minute = int64(60_000_000)

// watched are books whose data has this version and a sign of life of the bench's first moment.
func watched(t *testing.T, age *ledger.Age, change func(*ledger.Config)) *bench {
	t.Helper()
	b := setup(t, 100, func(c *ledger.Config) {
		c.Age = func() ledger.Age { return *age }
		if change != nil {
			change(c)
		}
	})
	b.must(b.c.HSet(b.ctx, b.keys.Alive(), "v", "7", "at", b.now, "line", "a").Err())
	return b
}

// Data that is not what the process has seen opens no attempt, and nothing is written, whatever the process has not heard of yet.
func TestNothingIsOpenedInDataThatIsNotWhatWasSeen(t *testing.T) {
	t.Parallel()
	age := &ledger.Age{Version: "7"}
	b := watched(t, age, nil)
	age.Least = b.now
	b.accept("park", job.Job{ID: "j", Cost: 3})
	id, g := b.pull()
	before := b.c.HGetAll(b.ctx, b.keys.Job(id)).Val()
	for what, change := range map[string]func(){
		"older than seen":    func() { b.c.HSet(b.ctx, b.keys.Alive(), "at", b.now-1) },
		"changed since seen": func() { b.c.HSet(b.ctx, b.keys.Alive(), "v", "8") },
		"gone":               func() { b.c.Del(b.ctx, b.keys.Alive()) },
	} {
		change()
		_, o := b.open(id, g, "w")
		want(t, what, o, job.OpenHeld)
		want(t, what+": the record", fmt.Sprint(b.c.HGetAll(b.ctx, b.keys.Job(id)).Val()), fmt.Sprint(before))
		want(t, what+": its cost", b.c.HGet(b.ctx, b.keys.Costs(), job.TaskID(id, g)).Val(), "3")
		b.c.HSet(b.ctx, b.keys.Alive(), "v", "7", "at", b.now)
	}
	_, o := b.open(id, g, "w")
	want(t, "as it was seen", o, job.OpenGo)
}

// After a confirmed restore, a job of that time may have been called since the snapshot. Only a living key makes another call safe.
func TestAfterARestoreOnlyALivingKeyGoesOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		keys     bool
		accepted int64 // minutes before the confirmation
		from     int64 // how old the snapshot is, in minutes; the last one counts
		expires  time.Duration
		want     job.Opening
	}{
		{"living key", true, 90, 60, 0, job.OpenGo},
		{"accepted when it was restored already", true, 10, 60, 0, job.OpenGo},
		{"key forgotten since", true, 9000, 25 * 60, 0, job.OpenUnknown},
		{"no key", false, 90, 60, 0, job.OpenUnknown},
		{"no key, accepted when it was restored already", false, 10, 60, 0, job.OpenUnknown},
		{"no key, accepted after the confirmation", false, -1, 60, 0, job.OpenGo},
		{"expired: it may have been called in time", true, 90, 60, time.Minute, job.OpenUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			age := &ledger.Age{Version: "7"}
			b := watched(t, age, func(c *ledger.Config) { c.Keys = tc.keys })
			now := b.now
			b.now = now - tc.accepted*minute
			j := job.Job{ID: "j"}
			if tc.expires > 0 {
				j.Expires = time.UnixMicro(b.now).Add(tc.expires)
			}
			b.accept("park", j)
			age.Marks = fmt.Sprintf("1-2 %d-%d", now-tc.from*minute, now)
			b.now = now + minute
			id, g := b.pull()
			a, o := b.open(id, g, "w")
			want(t, "opening", o, tc.want)
			r := b.record("j")
			if tc.accepted < 0 {
				want(t, "may have charged", r.Unsure, false)
				want(t, "sent before", a.KeySent, false)
				return
			}
			want(t, "may have charged", r.Unsure, true)
			want(t, "age of the key", a.KeyAge, time.Duration(tc.from+1)*time.Minute)
			want(t, "first call", r.FirstCall.UnixMicro(), now-tc.from*minute)
		})
	}
}

// A key that is known to be older than the snapshot stays so.
func TestARestoreMakesNoKeyYounger(t *testing.T) {
	t.Parallel()
	age := &ledger.Age{Version: "7"}
	b := watched(t, age, nil)
	b.accept("park", job.Job{ID: "j"})
	id, g := b.pull()
	a, _ := b.open(id, g, "w1")
	b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, Unsure: true}, 0))
	first := b.now
	b.now += 23 * 60 * minute
	age.Marks = fmt.Sprintf("%d-%d", b.now-minute, b.now)
	b.finish(id, g)
	id, g = b.pull()
	a, o := b.open(id, g, "w2")
	want(t, "opening", o, job.OpenGo)
	want(t, "age of the key", a.KeyAge, 23*time.Hour)
	want(t, "first call", b.record("j").FirstCall.UnixMicro(), first)
}

// A job that a person has looked up is no longer in doubt. A restore that is confirmed later puts it in doubt again.
func TestAPersonsWordEndsTheDoubtAboutAJob(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]job.Return{
		"not done":            {Reason: job.UnknownOutcome, Key: job.NextKey},
		"its key was expired": {Reason: job.UnknownOutcome, Key: job.ForgetKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			age := &ledger.Age{Version: "7"}
			b := watched(t, age, func(c *ledger.Config) { c.Keys = false })
			b.accept("park", job.Job{ID: "j"})
			age.Marks = fmt.Sprintf("%d-%d", b.now-minute, b.now+minute)
			b.now += 2 * minute
			want(t, "restored", b.openParked("j"), job.OpenUnknown)
			back.ID, back.Generation = "j", b.record("j").Generation
			if answers, _, err := b.books.Readmit(b.ctx, []job.Return{back}); err != nil || answers[0] != job.Enqueued {
				t.Fatalf("readmitted: %v, %v", answers, err)
			}
			b.now += minute
			id, g := b.pull()
			a, o := b.open(id, g, "w")
			want(t, "settled", o, job.OpenGo)
			b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
			b.finish(id, g)
			age.Marks += fmt.Sprintf(" %d-%d", b.now, b.now+minute)
			want(t, "restored again", b.openParked("j"), job.OpenUnknown)
		})
	}
}

// A replay after a definite no gets the next key. That key may have been used after the snapshot, too.
func TestAReplayOfARefusedJobIsInDoubtAfterARestore(t *testing.T) {
	t.Parallel()
	age := &ledger.Age{Version: "7"}
	b := watched(t, age, nil)
	b.accept("park", job.Job{ID: "j"})
	age.Marks = fmt.Sprintf("%d-%d", b.now-minute, b.now)
	b.must(b.c.HSet(b.ctx, b.keys.Job("j"), "s", "parked", "r", "refused").Err())
	b.must(b.c.Del(b.ctx, b.keys.Pending()).Err())
	b.now += minute
	if answers, _, err := b.books.Readmit(b.ctx, []job.Return{{ID: "j", Generation: 1, Reason: job.Refused, Key: job.NextKey}}); err != nil || answers[0] != job.Enqueued {
		t.Fatalf("readmitted: %v, %v", answers, err)
	}
	id, g := b.pull()
	a, o := b.open(id, g, "w")
	want(t, "opening", o, job.OpenGo)
	want(t, "key", a.Key(), "j~2")
	want(t, "the key counts as sent", a.KeySent, true)
}

// A key that came with another payload after the snapshot does not protect from a call that was made with the payload before.
func TestAReplacedPayloadsKeyProtectsFromNothingAfterARestore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edited int64 // minutes after the snapshot
		want   job.Opening
	}{
		"replaced since":                  {1, job.OpenUnknown},
		"replaced before the snapshot":    {-1, job.OpenGo},
		"replaced when it was taken back": {0, job.OpenUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			age := &ledger.Age{Version: "7"}
			b := watched(t, age, nil)
			b.accept("park", job.Job{ID: "j"})
			age.Marks = fmt.Sprintf("%d-%d", b.now+5*minute, b.now+9*minute)
			b.must(b.c.HSet(b.ctx, b.keys.Job("j"), "k", "2", "ed", b.now+(5+tc.edited)*minute).Err())
			b.now += 10 * minute
			id, g := b.pull()
			_, o := b.open(id, g, "w")
			want(t, "opening", o, tc.want)
		})
	}
}

// openParked opens the job's attempt and parks it as the worker would.
func (b *bench) openParked(id string) job.Opening {
	b.t.Helper()
	_, g := b.pull()
	_, o := b.open(id, g, "w")
	b.must(b.c.HSet(b.ctx, b.keys.Job(id), "s", "parked", "r", string(job.UnknownOutcome)).Err())
	b.finish(id, g)
	return o
}

// The pulse gives a sign of life to data that is what was seen, at most once a second.
func TestThePulseGivesASignOfLife(t *testing.T) {
	t.Parallel()
	age := &ledger.Age{Version: "7"}
	b := watched(t, age, nil)
	at := func() int64 {
		n, err := b.c.HGet(b.ctx, b.keys.Alive(), "at").Int64()
		b.must(err)
		return n
	}
	first := b.now
	for _, tc := range []struct {
		name          string
		version       string
		least, passed int64
		said, written int64
	}{
		{"nobody watches", "", 0, 5_000_000, 0, first},
		{"changed since", "6", 0, 5_000_000, -1, first},
		{"older than seen", "7", first + 1, 5_000_000, -1, first},
		{"less than a second ago", "7", first, 999_999, first, first},
		{"a second ago", "7", first, 1_000_000, first + 1_000_000, first + 1_000_000},
		{"again at once", "7", first, 1_000_001, first + 1_000_000, first + 1_000_000},
		{"after a silence", "7", first, 11_000_001, -1, first + 1_000_000},
		{"the clock was set back", "7", first, -minute, first + 1_000_000, first + 1_000_000},
	} {
		b.now = first + tc.passed
		*age = ledger.Age{Version: tc.version, Least: tc.least}
		pulses, err := ledger.Pulses(b.ctx, b.c, []*ledger.Books{b.books}, ledger.Slow{})
		b.must(err)
		want(t, tc.name, pulses[0].Alive, tc.said)
		want(t, tc.name+": written", at(), tc.written)
	}
}
