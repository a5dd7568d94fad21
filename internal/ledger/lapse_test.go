package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// crowd accepts jobs, of which those that are named expire in a second, and lets two seconds pass.
func (b *bench) crowd(n int, expires func(i int) bool) {
	jobs := numbered(1, n)
	for i := range jobs {
		if expires(i + 1) {
			jobs[i].Expires = time.UnixMicro(b.now + 1e6)
		}
	}
	b.accept("park", jobs...)
	b.now += 2e6
}

// lapse does what a dispatcher does when a job is found expired.
func (b *bench) lapse() (ids []string) {
	b.t.Helper()
	for {
		some, err := b.books.Lapse(b.ctx, "j1")
		b.must(err)
		if len(some.Expired) == 0 {
			return ids
		}
		ids = append(ids, some.Expired...)
	}
}

// Expired jobs leave the queue from its head on, in order, and so do stale tasks. The others keep their order.
func TestExpiredJobsLeaveTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t, 5000, nil)
	const n = 190
	b.crowd(n, func(i int) bool { return i%3 == 0 || i > 60 && i < 120 })
	b.must(b.c.HSet(b.ctx, b.keys.Job("j1"), record.Short("state"), "done").Err())
	var out, stay []string
	for i := 1; i <= n; i++ {
		switch id := fmt.Sprintf("j%d", i); {
		case i%3 == 0 || i > 60 && i < 120:
			out = append(out, id)
		case i > 1:
			stay = append(stay, job.TaskID(id, 1))
		}
	}
	slices.Reverse(stay) // the head is last
	want(t, "parked", fmt.Sprint(b.lapse()), fmt.Sprint(out))
	want(t, "queue", fmt.Sprint(b.waiting()), fmt.Sprint(stay))
	want(t, "reason", b.record("j3").Reason, job.Expired)
	want(t, "error", b.record("j3").Error, job.ExpiredUnsent)
	want(t, "task", b.c.Exists(b.ctx, b.keys.Task("j3~1")).Val(), 0)
	want(t, "parked again", len(b.lapse()), 0)
}

// A step without an expired job ends it: those behind are found when their turn is near.
func TestNobodyLooksForExpiredJobsFarBehind(t *testing.T) {
	t.Parallel()
	b := setup(t, 5000, nil)
	b.crowd(1200, func(i int) bool { return i > 600 })
	want(t, "parked", len(b.lapse()), 0)
	want(t, "queue", len(b.waiting()), 1200)
}

// Jobs of which it is not certain that they were not charged stay for the attempt's own script.
func TestExpiredJobsInDoubtStay(t *testing.T) {
	t.Parallel()
	age := &ledger.Age{Version: "7"}
	for what, change := range map[string]func(b *bench){
		"may have been charged":     func(b *bench) { b.c.HSet(b.ctx, b.keys.Job("j1"), record.Short("may_have_charged"), "1") },
		"an earlier call succeeded": func(b *bench) { b.c.HSet(b.ctx, b.keys.Job("j1"), record.Short("late_success"), "1000") },
		"a restore was confirmed":   func(b *bench) { age.Marks = fmt.Sprintf("%d-%d", b.now-minute, b.now) },
		"the data was restored":     func(b *bench) { b.c.HSet(b.ctx, b.keys.Alive(), "v", "8") },
		"it is renamed":             func(b *bench) { b.c.HSet(b.ctx, b.keys.Alive(), "moving", "rename a b") },
		"it is in flight":           func(b *bench) { b.c.HSet(b.ctx, b.keys.Job("j1"), record.Short("state"), "in_flight") },
	} {
		age.Marks = ""
		b := watched(t, age, nil)
		b.crowd(1, func(int) bool { return true })
		change(b)
		want(t, what, len(b.lapse()), 0)
		want(t, what+": tasks", len(b.waiting()), 1)
	}
}

// What an attempt leaves in the record goes, as when the job is pulled, and an attempt that met an outage is given back.
func TestAnExpiredJobThatWasCalledIsParkedAsWhenPulled(t *testing.T) {
	t.Parallel()
	var records []string
	for _, sweep := range []bool{true, false} {
		b := setup(t, 10, nil)
		b.crowd(1, func(int) bool { return true })
		b.now -= 2e6
		id, g := b.pull()
		a, _ := b.open(id, g, "w")
		b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 503, Verdict: job.VerdictRetry, Failed: time.UnixMicro(b.now)}, 0))
		b.c.HSet(b.ctx, b.keys.Hold(), "outages", fmt.Sprintf("%d:%d ", b.now-1, b.now+1))
		b.now += 2e6
		if sweep {
			want(t, "parked", len(b.lapse()), 1)
		} else {
			id, g = b.pull()
			a, o := b.open(id, g, "w")
			want(t, "opening", o, job.OpenExpired)
			store := deadletter.New(b.c, b.name)
			store.NowMicros = b.cfg.NowMicros
			b.must(store.Park(b.ctx, a, job.Ending{Error: job.ExpiredUnsent}, job.Expired))
		}
		want(t, "attempts spent", b.record(id).Spent, 0)
		records = append(records, fmt.Sprint(b.c.HGetAll(b.ctx, b.keys.Job(id)).Val()))
	}
	want(t, "record", records[0], records[1])
}

// A damaged record among expired jobs keeps none of them in the queue, and the books of the others are written.
func TestADamagedRecordKeepsNoExpiredJobInTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t, 5000, nil)
	b.crowd(20, func(int) bool { return true })
	b.must(b.c.Del(b.ctx, b.keys.Job("j10")).Err())
	b.must(b.c.Set(b.ctx, b.keys.Job("j10"), "damaged", 0).Err())
	want(t, "parked", len(b.lapse()), 19)
	want(t, "queue", fmt.Sprint(b.waiting()), fmt.Sprint([]string{job.TaskID("j10", 1)}))
	bytes, err := b.c.HGet(b.ctx, b.keys.Counters(), "b:parked:expired").Int()
	b.must(err)
	want(t, "bytes parked", bytes > 0 && bytes%19 == 0, true)
}

// Jobs of before a confirmed restore that no key covers leave the queue as when they are pulled: their records are the same. Those with a living key stay, to be called with it.
func TestJobsOfBeforeARestoreLeaveTheQueueAsWhenPulled(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*ledger.Config)
		stays   bool
		setBack bool // Redis's clock, by half an hour, an hour before
	}{
		"no keys":                                {func(c *ledger.Config) { c.Keys = false }, false, false},
		"the key is over":                        {func(c *ledger.Config) { c.KeyLifetime = time.Second }, false, false},
		"look-ups":                               {func(c *ledger.Config) { c.Keys, c.Asks = false, job.Asks{Unknown: time.Second} }, false, false},
		"the key lives":                          {func(c *ledger.Config) { c.KeyLifetime = time.Hour }, true, false},
		"it is over, and the clock was set back": {func(c *ledger.Config) { c.KeyLifetime = time.Hour }, false, true},
		"a key covers no second":                 {func(c *ledger.Config) { c.KeyLifetime = 0 }, false, false},
	} {
		var records []string
		for _, sweep := range []bool{true, false} {
			age := &ledger.Age{Version: "7"}
			b := watched(t, age, tc.change)
			b.accept("park", numbered(1, 1)...)
			b.now += 2e6
			age.Marks = fmt.Sprintf("%d-%d", b.now-minute, b.now)
			b.now += 2e6
			if tc.setBack {
				b.setBack(30 * minute)
				b.now += 60 * minute
			}
			did, err := ledger.Lapsed{}, error(nil)
			if sweep {
				did, err = b.books.Lapse(b.ctx, "j1")
				b.must(err)
			} else if id, g := b.pull(); !tc.stays {
				a, o := b.open(id, g, "w")
				want(t, name+": opening", o, job.OpenUnknown)
				store := deadletter.New(b.c, b.name)
				store.NowMicros, store.Asks = b.cfg.NowMicros, b.cfg.Asks
				b.must(store.Park(b.ctx, a, job.Ending{Error: job.Uncovered, Unsure: true}, job.UnknownOutcome))
			}
			if tc.stays {
				want(t, name+": taken out", len(did.Unsure), 0)
				continue
			}
			if sweep {
				want(t, name+": taken out", fmt.Sprint(did.Unsure, did.Asked), fmt.Sprint([]string{"j1"}, b.cfg.Asks.Unknown > 0))
				want(t, name+": tasks", len(b.waiting()), 0)
			}
			records = append(records, fmt.Sprint(b.c.HGetAll(b.ctx, b.keys.Job("j1")).Val()))
		}
		if !tc.stays {
			want(t, name+": record", records[0], records[1])
		}
	}
}
