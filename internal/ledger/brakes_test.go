package ledger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// braked is a bench whose gateway has brakes, as a file has them.
func braked(t *testing.T, limit string, single string) *bench {
	return setup(t, 100, func(c *ledger.Config) {
		c.Money, c.Brake = moneyOf, easyBrake
		l, rule := job.ReadMoneyLimit(limit)
		m, other := job.ReadMoney(single)
		if rule+other != "" {
			t.Fatal(rule, other)
		}
		c.Brakes = job.Brakes{Limits: []job.MoneyLimit{l}, Single: []job.Money{m}, RefuseUnknown: true}
	})
}

func paying(id, amount, currency string) job.Job {
	return job.Job{ID: id, Batch: "nov", Payload: []byte(`{"amount":` + amount + `,"currency":"` + currency + `"}`)}
}

// If there is no room for a job's money, the job goes back without spending an attempt. The gateway waits and says why, and so does the next job. Then calls go on.
func TestABrakeHoldsTheGateway(t *testing.T) {
	t.Parallel()
	b := braked(t, "EUR 10/1m", "EUR 8")
	b.accept("park", paying("first", "700", "EUR"), paying("large", "700", "EUR"), paying("small", "100", "EUR"))
	id, g := b.pull()
	first, o := b.open(id, g, "p.1")
	want(t, "opening of the first", o, job.OpenGo)
	for range 2 { // small is in hand already, and has room, but waits behind the large one
		id, g = b.pull()
		a, o := b.open(id, g, "p.2")
		want(t, "opening of "+id, o, job.OpenBraked)
		b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
		want(t, "attempts of "+id, b.record(id).Spent, 0)
		want(t, "state of "+id, b.record(id).State, job.Queued)
	}
	s, err := b.books.Brakes(b.ctx)
	b.must(err)
	want(t, "called", s.Windows[0].Called, 700)
	want(t, "why", s.Why, "the brake EUR 10/1m")
	b.must(b.books.Done(b.ctx, first, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	b.now = s.WaitsUntil.UnixMicro()
	id, g = b.pull()
	_, o = b.open(id, g, "p.3")
	want(t, "opening when there is room", o, job.OpenGo)
	if s, err = b.books.Brakes(b.ctx); err != nil || !s.Waits.IsZero() {
		t.Errorf("with room the gateway waits since %v, %v", s.Waits, err)
	}
}

// A job that a brake forbids is parked and not called. It does not hold the others, and does not count as refused by the gateway.
func TestABrakeParksWhatItForbids(t *testing.T) {
	t.Parallel()
	b := braked(t, "EUR 10/1m", "EUR 8")
	for id, j := range map[string]struct{ amount, currency, why string }{
		"single":   {"801", "EUR", "above the brake single EUR 8"},
		"whole":    {"1001", "EUR", "above the brake single EUR 8"},
		"currency": {"1", "USD", "its currency USD has no brake"},
		"none":     {`"?"`, "EUR", "nobody knows its money"},
	} {
		b.accept("park", paying(id, j.amount, j.currency))
		_, g := b.pull()
		a, o := b.open(id, g, "p.1")
		want(t, "opening of "+id, o, job.OpenOver)
		if !strings.Contains(a.LastError, j.why) {
			t.Errorf("%s: %q, want %q", id, a.LastError, j.why)
		}
		b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Refused))
		want(t, "reason of "+id, b.record(id).Reason, job.Refused)
	}
	if v, _, err := b.books.Batch(b.ctx, "nov"); err != nil || v.Braked {
		t.Errorf("a batch of which nothing was called stopped itself: %v, %v", v.Why, err)
	}
	b.accept("park", paying("good", "800", "EUR"))
	id, g := b.pull()
	_, o := b.open(id, g, "p.2")
	want(t, "opening of a good one", o, job.OpenGo)
}

// A person lifts the limits for a time. What is called meanwhile counts.
func TestBrakesAreLiftedForATime(t *testing.T) {
	t.Parallel()
	b := braked(t, "EUR 10/1h", "EUR 8")
	for _, id := range []string{"a", "b", "c"} {
		b.accept("park", paying(id, "800", "EUR"))
	}
	openNext := func() job.Opening {
		id, g := b.pull()
		a, o := b.open(id, g, "p."+id)
		if o != job.OpenGo {
			b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
		}
		return o
	}
	want(t, "the first", openNext(), job.OpenGo)
	want(t, "without room", openNext(), job.OpenBraked)
	b.must(b.books.LiftBrakes(b.ctx, ledger.Lift{For: time.Minute, Who: "me", Why: "month's end"}))
	want(t, "lifted", openNext(), job.OpenGo)
	s, err := b.books.Brakes(b.ctx)
	b.must(err)
	want(t, "called", s.Windows[0].Called, 1600)
	want(t, "lifted by", s.LiftedBy+": "+s.LiftedWhy, "me: month's end")
	b.now += time.Minute.Microseconds()
	want(t, "in force again", openNext(), job.OpenBraked)
}

// limits gives the gateway's file limits of EUR 10 in these windows.
func (b *bench) limits(windows ...time.Duration) {
	b.cfg.Brakes.Limits = nil
	for _, w := range windows {
		b.cfg.Brakes.Limits = append(b.cfg.Brakes.Limits, job.MoneyLimit{Most: money(1000, "EUR"), Window: w})
	}
	b.on(b.c)
}

// pay makes a job of EUR be called.
func (b *bench) pay(id, amount string) {
	b.t.Helper()
	b.accept("park", paying(id, amount, "EUR"))
	_, g := b.pull()
	a, o := b.open(id, g, "p.1")
	want(b.t, "opening of "+id, o, job.OpenGo)
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
}

// However many windows files have had, what is counted in a long one stays known for 31 days after the last file with it. Short ones go after a day.
func TestWindowsOfManyFilesAreCounted(t *testing.T) {
	t.Parallel()
	b := braked(t, "EUR 10/1m", "EUR 8")
	const long = 20 * 24 * time.Hour
	b.limits(long)
	b.pay("first", "400")
	for i := range 20 {
		b.now += 3 * time.Hour.Microseconds()
		b.limits(time.Duration(20+i)*time.Second, time.Duration(200+i)*time.Second)
		b.pay(fmt.Sprint("other-", i), "1")
	}
	b.limits(long)
	s, err := b.books.Brakes(b.ctx)
	b.must(err)
	want(t, "called in the long window", s.Windows[0].Called, 420)
	b.now += 25 * time.Hour.Microseconds()
	b.limits(time.Minute)
	b.pay("late", "1")
	left := map[string]bool{}
	for field := range b.c.HGetAll(b.ctx, b.keys.Brakes()).Val() {
		if f := strings.Split(field, ":"); f[0] == "b" || f[0] == "s" || f[0] == "h" {
			left[f[2]] = true
		}
	}
	for _, w := range []time.Duration{long, time.Minute, 24 * time.Hour} {
		if name := fmt.Sprint(w.Microseconds()); !left[name] {
			t.Errorf("%v is not counted", w)
		} else {
			delete(left, name)
		}
	}
	want(t, "windows that are counted still", len(left), 0)
}

// An older version has counted an attempt with the lengths of windows in µs. It is given back if the call was certainly not made.
func TestWhatAnOlderVersionCountedIsGivenBack(t *testing.T) {
	t.Parallel()
	b := braked(t, "EUR 10/1m", "EUR 8")
	b.accept("park", paying("first", "700", "EUR"))
	id, g := b.pull()
	a, o := b.open(id, g, "p.1")
	want(t, "opening", o, job.OpenGo)
	field := record.Short("counted")
	now := b.c.HGet(b.ctx, b.keys.Job(id), field).Val()
	older := strings.Replace(now, " 86400 60 ", " 86400000000 60000000 ", 1)
	if older == now {
		t.Fatalf("counted is %q", now)
	}
	b.c.HSet(b.ctx, b.keys.Job(id), field, older)
	b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
	for field, value := range b.c.HGetAll(b.ctx, b.keys.Brakes()).Val() {
		if strings.HasPrefix(field, "b:") || strings.HasPrefix(field, "s:") && value != "0" {
			t.Errorf("%s is %s", field, value)
		}
	}
}

// A call that is in flight when Redis loses it may go out as late as planned. It counts until a window after that, if everything was lost, and if the process that made it tells.
func TestLostCallsCountUntilTheyCanHaveGoneOut(t *testing.T) {
	t.Parallel()
	const lead = 40 * time.Second // of bench.open
	for name, lose := range map[string]func(b *bench, before string){
		"all is lost": func(b *bench, _ string) {
			b.c.Del(b.ctx, b.keys.Brakes())
			b.c.HSet(b.ctx, b.keys.Alive(), "emptied", b.now)
		},
		"the latest writes are lost": func(b *bench, before string) {
			b.must(b.c.RestoreReplace(b.ctx, b.keys.Brakes(), 0, before).Err())
			b.c.HSet(b.ctx, b.keys.Hold(), "lost", b.now)
			b.must(b.books.TellCounted(b.ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := braked(t, "EUR 10/1m", "EUR 8")
			b.pay("small", "100")
			before := b.c.Dump(b.ctx, b.keys.Brakes()).Val()
			b.accept("park", paying("under way", "700", "EUR"), paying("next", "700", "EUR"))
			id, g := b.pull()
			_, o := b.open(id, g, "p.2")
			want(t, "opening", o, job.OpenGo)
			lose(b, before)
			tries := 0
			next := func() job.Opening {
				tries++
				id, g := b.pull()
				a, o := b.open(id, g, fmt.Sprint("p.", 10+tries))
				if o != job.OpenGo {
					b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
				}
				return o
			}
			b.now += 1e6
			want(t, "opening soon after", next(), job.OpenBraked)
			b.now += (time.Minute + lead - 5*time.Second).Microseconds()
			want(t, "opening while the lost call may be in the window", next(), job.OpenBraked)
			b.now += (10 * time.Second).Microseconds()
			want(t, "opening after that", next(), job.OpenGo)
		})
	}
}

// If something else writes to a window, that stops neither Redis nor the gateway for longer than the window.
func TestRubbishInAWindowGoesWithIt(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string][]any{
		"a sum without parts":           {"s:EUR:60000000", 1e6},
		"parts since the world's begin": {"h:EUR:60000000", "1 1700000000000000", "s:EUR:60000000", 1e6},
		"no numbers":                    {"h:EUR:60000000", "x", "s:EUR:60000000", "y"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := braked(t, "EUR 10/1m", "EUR 8")
			b.pay("first", "100")
			b.now += 1e6
			b.c.HSet(b.ctx, b.keys.Brakes(), spoil...)
			b.accept("park", paying("next", "100", "EUR"))
			id, g := b.pull()
			if a, o := b.open(id, g, "p.2"); o != job.OpenGo {
				b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
				b.now += (2 * time.Minute).Microseconds()
				id, g = b.pull()
				_, o = b.open(id, g, "p.3")
				want(t, "opening when the window is over", o, job.OpenGo)
			}
		})
	}
}
