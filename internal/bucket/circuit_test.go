package bucket

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

func usual() job.Circuit {
	return job.Circuit{Failures: 5, Ratio: 50, Calls: 20, Window: 10 * time.Second, Max: 5 * time.Second}
}

// failing is a gateway whose calls fail, in virtual time.
type failing struct {
	*world
	ctx     context.Context
	p       *Pacer
	circuit job.Circuit
}

func failures(t *testing.T) *failing {
	w, ctx := scenario(t)
	return &failing{world: w, ctx: ctx, p: w.pacer(hundred()), circuit: usual()}
}

func (f *failing) says(p *Pacer, what job.Failure) job.Fallout {
	f.t.Helper()
	if what.Why == "" {
		what.Why = "HTTP 503"
	}
	out, err := p.Failed(f.ctx, f.circuit, what)
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

// fails makes one written call of a job fail that took 20 ms.
func (f *failing) fails(id string) job.Fallout {
	f.t.Helper()
	return f.says(f.p, job.Failure{Job: id, Written: true, Took: 20 * time.Millisecond})
}

// row makes calls of n different jobs fail, 10 ms apart, and returns what the last one came to.
func (f *failing) row(n int) (last job.Fallout) {
	f.t.Helper()
	for range n {
		f.pass(10 * time.Millisecond)
		last = f.fails(fmt.Sprint("job", f.now))
	}
	return last
}

// answers ends a call with an answer that is no failure, as the scripts of the books record it.
func (f *failing) answers() { f.client.HDel(f.ctx, f.keys.Hold(), "run", "unrun", "runjob", "runat") }

// ends counts n calls whose end is recorded now.
func (f *failing) ends(n int64) {
	f.client.HIncrBy(f.ctx, f.keys.Rate(), fmt.Sprint(f.now/5_000_000), n)
}

func (f *failing) look() Standing {
	f.t.Helper()
	s, err := f.p.Look(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *failing) closed(out job.Fallout) {
	f.t.Helper()
	if out.Opened || !out.Outage.IsZero() || f.look().Circuit {
		f.t.Fatalf("the circuit opened: %+v, %+v", out, f.look())
	}
}

// probe takes the slot of the one call that goes first.
func (f *failing) probe() job.Slot {
	f.t.Helper()
	g := f.reserve(f.p, wish{want: 16, cost: 1})
	f.expect(g, stateOK, 1)
	return g.slots[0]
}

func TestFiveFailuresInARowOpenTheCircuit(t *testing.T) {
	f := failures(t)
	other := f.pacer(hundred())
	f.p.keep(f.reserve(f.p, wish{want: 4, cost: 1}).slots)
	first := f.now + 10_000 - 2_000_000
	f.closed(f.row(4))
	f.pass(10 * time.Millisecond)
	out := f.says(other, job.Failure{Job: "last", Written: true, Why: "HTTP 503"}) // another process sees the fifth
	if !out.Opened || out.Outage.UnixMicro() != first || out.Held != time.Second || out.At.UnixMicro() != f.now {
		t.Errorf("the fifth failure came to %+v, want an outage since shortly before the first", out)
	}
	if s := f.look(); !s.Circuit || s.HeldUntil.UnixMicro() != f.now+1_000_000 || s.Reason != "circuit open: HTTP 503 from 5 calls in a row" {
		t.Errorf("look says %+v", s)
	}
	f.expect(f.reserve(f.p, wish{want: 4, cost: 1}), stateHeld, 0)
	if s, ok := f.p.head(); ok {
		t.Errorf("slot %v outlived the opening", s)
	}
	for _, what := range []job.Failure{{Job: "under way", Written: true}, {Job: "unwritten"}, {Job: "last", Written: true}} {
		if late := f.says(f.p, what); late.Opened || !late.Outage.Equal(out.Outage) {
			t.Errorf("%s came to %+v, want the same outage", what.Job, late)
		}
	}
	if s := f.look(); s.HeldUntil.UnixMicro() != f.now+1_000_000 {
		t.Errorf("calls that were under way made the hold longer: %+v", s)
	}
	if n, m := other.meters.opened.Value(), f.p.meters.opened.Value(); n != 1 || m != 0 {
		t.Errorf("opened %v times by the one that opened it, %v by the other", n, m)
	}
}

// A hold may end before the slots that were reserved ahead. Those slots must not be used: one call goes first.
func TestSlotsReservedAheadDoNotOutliveTheOpening(t *testing.T) {
	f := failures(t)
	f.circuit.Max = 20 * time.Millisecond
	other := f.pacer(hundred())
	f.p.keep(f.reserve(f.p, wish{want: 6, cost: 1}).slots)
	other.keep(f.reserve(other, wish{want: 6, cost: 1}).slots)
	for i := range 5 {
		f.fails(fmt.Sprint("job", i))
	}
	if s, ok := f.p.head(); ok {
		t.Errorf("slot %v with the one that opened it", s)
	}
	f.expect(f.reserve(other, wish{want: 4, cost: 1}), stateHeld, 0)
	if s, ok := other.head(); ok {
		t.Errorf("slot %v with another", s)
	}
}

func TestAnAnswerEndsTheRow(t *testing.T) {
	f := failures(t)
	for range 5 {
		f.closed(f.row(4))
		f.answers()
	}
	f.row(4)
	if out := f.row(1); !out.Opened || out.At.Sub(out.Outage) != 2*time.Second+40*time.Millisecond {
		t.Errorf("%+v: the outage begins with the row, not before the answer", out)
	}
}

// One job that the gateway can't digest must not stop it.
func TestOneJobDoesNotOpenTheCircuit(t *testing.T) {
	f := failures(t)
	for range 50 {
		f.pass(time.Second)
		f.closed(f.fails("poisoned"))
	}
	f.pass(20 * time.Second)
	f.closed(f.row(3)) // it stands for one in the row
	if out := f.row(1); !out.Opened {
		t.Errorf("%+v: five different jobs", out)
	}
}

// A job that failed in two outages, while other jobs succeeded after each, says nothing more about the gateway.
func TestJobsThatAlwaysFailCountNoMore(t *testing.T) {
	testkit.OneGoroutine(t)
	f := failures(t)
	for i := range 200 {
		f.pass(10 * time.Millisecond)
		if out := f.bad(i); !out.Own {
			t.Fatalf("%+v: it is the job's own trouble", out)
		}
		f.closed(f.bad(i))
	}
	f.closed(f.row(19))
	if out := f.row(1); !out.Opened {
		t.Errorf("%+v: twenty others", out)
	}
}

// bad makes a call fail of a job that failed in two outages before.
func (f *failing) bad(i int) job.Fallout {
	f.t.Helper()
	return f.says(f.p, job.Failure{Job: fmt.Sprint("bad", i), Written: true, Took: 20 * time.Millisecond, Outages: 2})
}

// A job can't be the cause of a refused connection.
func TestCallsThatWereNotWrittenAlwaysCount(t *testing.T) {
	f := failures(t)
	what := job.Failure{Job: "the only one", Outages: 9, Why: "connecting to x failed: connection refused"}
	for range 4 {
		f.closed(f.says(f.p, what))
	}
	if out := f.says(f.p, what); !out.Opened {
		t.Errorf("%+v", out)
	}
	if why := f.look().Reason; why != "circuit open: connecting to x failed: connection refused, 5 calls in a row" {
		t.Errorf("reason %q", why)
	}
}

func TestTheShareOfFailuresOpensTheCircuit(t *testing.T) {
	f := failures(t)
	one := func() job.Fallout { // every second call fails
		f.pass(500 * time.Millisecond)
		f.answers()
		f.ends(1)
		out := f.fails(fmt.Sprint("job", f.now))
		f.ends(1)
		return out
	}
	for range 9 {
		f.closed(one())
	}
	out := one()
	if !out.Opened || !strings.Contains(f.look().Reason, "circuit open: HTTP 503 from 10 of 20 calls") {
		t.Fatalf("%+v, %+v", out, f.look())
	}
	if out.Outage.UnixMicro() > epoch+500_000 {
		t.Errorf("the outage begins %v before its opening, want the window's first failure in it", out.At.Sub(out.Outage))
	}
}

func TestASmallerShareOpensNothing(t *testing.T) {
	f := failures(t)
	for range 60 {
		f.pass(250 * time.Millisecond)
		f.answers()
		f.ends(2)
		f.closed(f.fails(fmt.Sprint("job", f.now)))
		f.ends(1)
	}
}

// If every fifth call fails, five failures in a row are chance: at 100/s they come every half minute. Nine in a row come every six hours. A gateway about which
// little is known counts as down after five.
func TestARowIsLongerWhereAShareOfTheCallsFails(t *testing.T) {
	for _, c := range []struct {
		calls int64 // that end well, after each of which…
		rows  int   // …a failure follows, so often
		opens int   // failures in a row that open the circuit after these
	}{{4, 3, 5}, {4, 8, 9}, {19, 8, 5}, {3, 8, 10}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			f := failures(t)
			for range c.rows {
				f.pass(250 * time.Millisecond)
				f.closed(f.fails(fmt.Sprint("job", f.now)))
				f.answers()
				f.ends(1 + c.calls)
			}
			for n := 1; n < c.opens; n++ {
				f.closed(f.row(1))
				f.ends(1)
			}
			if out := f.row(1); !out.Opened {
				t.Errorf("%d failures in a row did not open the circuit: %+v", c.opens, out)
			}
		})
	}
}

// Failures before the window are forgotten.
func TestOldFailuresDoNotCountInTheShare(t *testing.T) {
	f := failures(t)
	f.circuit.Failures = 1000
	f.closed(f.row(15))
	f.pass(15 * time.Second)
	f.ends(20)
	f.closed(f.row(1))
}

func TestTheCallSentAheadDecides(t *testing.T) {
	f := failures(t)
	began, left := f.row(5).Outage, time.Second
	for i, next := range []time.Duration{2, 4, 5, 5, 5} { // seconds from the slot of one to that of the next
		f.pass(left - time.Microsecond)
		f.expect(f.reserve(f.p, wish{want: 4, cost: 1}), stateHeld, 0)
		f.pass(time.Microsecond)
		s := f.probe()
		f.expect(f.reserve(f.p, wish{want: 4, cost: 1}), "probing", 0)
		if old := f.says(f.p, job.Failure{Job: "old", Slot: s.At - 5_000_000, Written: true}); old.Held != 0 {
			t.Errorf("a call from before holds again: %+v", old)
		}
		f.pass(1500 * time.Millisecond) // it hung
		out := f.says(f.p, job.Failure{Job: fmt.Sprint("probe", i), Slot: s.At, Written: true})
		left = next*time.Second - 1500*time.Millisecond
		if out.Held != left || out.Opened || !out.Outage.Equal(began) {
			t.Fatalf("after hold %d: %+v, want to be held again for %s", i, out, left)
		}
		f.expect(f.reserve(f.p, wish{want: 4, cost: 1}), stateHeld, 0)
	}
	if why := f.look().Reason; why != "circuit open: HTTP 503 from the call sent ahead, too" {
		t.Errorf("reason %q", why)
	}
	if n := f.p.meters.opened.Value(); n != 1 {
		t.Errorf("opened %v times: one that stays open is not opened again", n)
	}
}

// If the call sent ahead hung for longer than the hold would last, the next one goes at once.
func TestACallSentAheadThatHungKeepsNobodyWaiting(t *testing.T) {
	f := failures(t)
	f.row(5)
	f.pass(time.Second)
	s := f.probe()
	f.pass(3 * time.Second)
	if out := f.says(f.p, job.Failure{Job: "hung", Slot: s.At, Written: true, Took: 3 * time.Second}); out.Held != 0 || out.Outage.IsZero() {
		t.Errorf("%+v", out)
	}
	f.probe()
	f.expect(f.reserve(f.p, wish{want: 4, cost: 1}), "probing", 0)
}

func TestASuccessClosesTheCircuit(t *testing.T) {
	f := failures(t)
	f.row(5)
	f.pass(time.Second)
	s := f.probe()
	if f.p.Succeeded(f.ctx, job.Slot{At: s.At - 2_000_000}, false) || !f.look().Circuit {
		t.Fatal("a success from before the outage closed it")
	}
	f.pass(20 * time.Millisecond)
	if !f.p.Succeeded(f.ctx, s, false) || f.look() != (Standing{}) {
		t.Fatalf("not closed: %+v", f.look())
	}
	if f.p.Succeeded(f.ctx, s, false) {
		t.Error("closed twice")
	}
	f.expect(f.reserve(f.p, wish{want: 8, cost: 1}), stateOK, 8)

	// A call that was under way while it was open belongs to the outage, whenever it fails; one that began later doesn't.
	f.pass(10 * time.Second)
	if out := f.says(f.p, job.Failure{Job: "hung", Written: true, Took: 11 * time.Second}); out.Outage.IsZero() || out.Opened {
		t.Errorf("a call from the outage: %+v", out)
	}
	f.closed(f.fails("later"))
	f.closed(f.row(3))
	if out := f.row(1); !out.Opened {
		t.Errorf("%+v: the call from the outage is not one of the five", out)
	}
}

// However long the last outage was, the circuit first opens for the shortest time: the next trouble may be no outage.
func TestEachOpeningBeginsWithTheShortestBackOff(t *testing.T) {
	f := failures(t)
	for range 4 {
		out := f.row(5)
		if !out.Opened || out.Held != time.Second {
			t.Fatalf("%+v, want to be held for 1 s", out)
		}
		f.pass(out.Held)
		for _, want := range []time.Duration{2, 4} {
			if out = f.says(f.p, job.Failure{Job: fmt.Sprint("ahead", f.now), Slot: f.probe().At, Written: true}); out.Held != want*time.Second {
				t.Fatalf("%+v, want to be held for %d s", out, want)
			}
			f.pass(out.Held)
		}
		f.p.Succeeded(f.ctx, f.probe(), false)
		f.pass(time.Second)
	}
}

// The growing back-off of holds goes up to 60 s. The circuit has a back-off of its own.
func TestHoldsAndTheCircuitKeepOutOfEachOthersWay(t *testing.T) {
	f := failures(t)
	var probe job.Slot
	for _, want := range []time.Duration{1, 2, 4} { // the growing back-off has grown, a minute ago
		if _, err := hold(f.ctx, f.p, 0, probe); err != nil {
			t.Fatal(err)
		}
		f.pass(want * time.Second)
		probe = f.probe()
	}
	f.p.Succeeded(f.ctx, job.Slot{At: f.now}, false)
	f.pass(time.Minute)
	f.row(5)
	f.pass(time.Second)
	f.p.Succeeded(f.ctx, f.probe(), false)
	until, err := hold(f.ctx, f.p, 0, probe)
	if err != nil || until.UnixMicro() != f.now+1_000_000 {
		t.Errorf("the first hold without a hint, right after an outage: %v, %v, want 1 s", until, err)
	}
	f.pass(time.Second)
	f.p.Succeeded(f.ctx, f.probe(), false)
	f.pass(time.Minute)

	until, err = hold(f.ctx, f.p, 40*time.Second, job.Slot{})
	if err != nil {
		t.Fatal(err)
	}
	if out := f.row(5); out.Opened || out.Outage.IsZero() {
		t.Errorf("calls that failed while the gateway was held: %+v", out)
	}
	if s := f.look(); !s.HeldUntil.Equal(until) || s.Reason != "HTTP 429" {
		t.Errorf("a longer hold was changed: %+v", s)
	}
	f.pass(40 * time.Second)
	out := f.says(f.p, job.Failure{Job: "ahead", Slot: f.probe().At, Written: true})
	if out.Outage.IsZero() || out.Held != time.Second {
		t.Errorf("the call sent ahead failed: %+v, want the same outage and another hold", out)
	}
}

func TestACircuitThatIsOffNeverOpens(t *testing.T) {
	f := failures(t)
	f.circuit = job.Circuit{}
	if out := f.row(100); out != (job.Fallout{}) || f.look() != (Standing{}) || f.client.Exists(f.ctx, f.keys.Hold()).Val() != 0 {
		t.Errorf("%+v, %+v", out, f.look())
	}
}

// The metric follows what other processes open and close.
func TestTheCircuitsInstrumentFollowsTheOthers(t *testing.T) {
	f := failures(t)
	other := f.pacer(hundred())
	shows := func(want float64) {
		t.Helper()
		if err := other.Watch(f.ctx); err != nil {
			t.Fatal(err)
		}
		if got := testutil.ToFloat64(other.meters.circuit.shown); got != want {
			t.Errorf("the circuit shows as %v, want %v", got, want)
		}
	}
	shows(0)
	f.row(5)
	f.expect(f.reserve(other, wish{want: 4, cost: 1}), stateHeld, 0)
	shows(1)
	f.pass(time.Second)
	f.p.Succeeded(f.ctx, f.probe(), false)
	shows(0)
	if got := testutil.ToFloat64(f.p.meters.circuit.shown); got != 0 {
		t.Errorf("with the one that closed it: %v", got)
	}
}

// A circuit that opens again and again remembers its last outages.
func TestOutagesAreKept(t *testing.T) {
	f := failures(t)
	var last job.Fallout
	for range 20 {
		last = f.row(5)
		f.pass(5 * time.Second)
		f.p.Succeeded(f.ctx, f.probe(), false)
		f.pass(time.Second)
	}
	kept := strings.Fields(f.client.HGet(f.ctx, f.keys.Hold(), "outages").Val())
	if len(kept) != 16 || !strings.HasPrefix(kept[15], fmt.Sprintf("%d:", last.Outage.UnixMicro())) || strings.HasSuffix(kept[15], ":") {
		t.Errorf("outages %v", kept)
	}
}

func TestTheCircuitRunsEmbedded(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	w := newWorld(t, client, 3)
	f := &failing{world: w, ctx: t.Context(), p: w.pacer(hundred()), circuit: usual()}
	f.closed(f.row(4))
	opened := f.row(1)
	f.pass(time.Second)
	if out := f.fails("late"); !opened.Opened || !out.Outage.Equal(opened.Outage) {
		t.Errorf("%+v, then %+v", opened, out)
	}
	if !f.p.Succeeded(f.ctx, f.probe(), false) || f.look() != (Standing{}) {
		t.Errorf("not closed: %+v", f.look())
	}
}

func TestFailuresThatRedisCannotCountAreErrors(t *testing.T) {
	f := failures(t)
	down := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = down.Close() })
	p := newTestPacer(t, down, PacerConfig{Gateway: "g", Limits: hundred().Limits})
	if _, err := p.Failed(f.ctx, f.circuit, job.Failure{}); err == nil {
		t.Error("no error")
	}
}
