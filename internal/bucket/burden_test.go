package bucket

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

func TestAProcessThatIsTooSlowTakesFewerSlots(t *testing.T) {
	t.Parallel()
	const most = 250_000
	b, open := NewBurden(nil), make(chan struct{})
	enter := func(want int64) int64 {
		t.Helper()
		n, err := b.enter(t.Context(), open, want)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := enter(500); n != burdenFirst {
		t.Fatalf("%d slots of 500 at first, want %d", n, burdenFirst)
	}
	_, next := b.some(500)
	b.ready(most/burdenLate, most) // in time
	if <-next.come; next.gets != 1 || b.bound != burdenFirst+1 {
		t.Fatalf("%d slots more, the bound is %v", next.gets, b.bound)
	}
	b.bound, b.hand, b.asked = 500, 500, 0
	if _, is := b.Overloaded(time.Now()); is {
		t.Error("it is overloaded, and nothing was late")
	}
	judge := func(late, lost int) float64 { // of burdenJobs jobs
		for i := range burdenJobs {
			switch {
			case i < lost:
				b.ready(most, most)
			case i < lost+late:
				b.ready(most/2, most)
			default:
				b.ready(0, most)
			}
		}
		return b.bound
	}
	if bound := judge(1, 0); bound != 500 {
		t.Errorf("the bound is %v after one late job of %d, want 500 as before", bound, burdenJobs)
	}
	b.seen.since = time.Time{}
	if bound := judge(2, 0); bound != 400 {
		t.Errorf("the bound is %v where one job of eight is late, want a fifth less than 500", bound)
	}
	b.seen.since = time.Now().Add(time.Hour) // however slow this machine is, the bound was judged a moment ago
	if bound := judge(0, 16); bound != 400 {
		t.Errorf("the bound is %v: it fell twice at once", bound)
	}
	if b.seen = (tally{}); judge(0, 2) != 200 {
		t.Errorf("the bound is %v where one slot of eight has passed, want half of 400", b.bound)
	}
	b.bound = 250
	if b.seen = (tally{}); judge(0, 1) != 200 {
		t.Errorf("the bound is %v where a slot of %d has passed, want a fifth less than 250", b.bound, burdenJobs)
	}
	b.hand, b.asked = 500, 0
	got := make(chan int64, 2)
	for i := range 2 {
		go func() { n, _ := b.enter(context.Background(), open, 1); got <- n }()
		testkit.Eventually(t, time.Second, "one more caller to wait", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.waiting) == i+1 })
	}
	if _, is := b.Overloaded(time.Now()); !is {
		t.Error("a caller waits, and it is not overloaded")
	}
	for range 50 {
		b.ready(0, most)
	}
	if b.bound <= 200 || b.bound > 202 {
		t.Errorf("the bound is %v, want a little more than 200", b.bound)
	}
	b.add(-299)
	if len(got) != 0 {
		t.Error("a caller went in without room")
	}
	b.add(-200)
	if n := <-got + <-got; n != 2 {
		t.Errorf("%d slots for the two that waited", n)
	}
	b.leave(2)
	if b.asked != 0 || b.hand != 1 {
		t.Errorf("%d asked for, %d in hand", b.asked, b.hand)
	}
}

// Slots in hand are never counted out if their gateway asks for no more. They don't make other callers wait for ever.
func TestNobodyWaitsForEverForAPlaceInTheHand(t *testing.T) {
	t.Parallel()
	b := NewBurden(nil)
	b.bound, b.hand, b.wait = burdenLeast, burdenLeast, time.Millisecond
	for i := range int64(3) {
		if n, err := b.enter(t.Context(), nil, 5); n != 1 || err != nil {
			t.Fatalf("%d slots, %v", n, err)
		}
		if b.asked != i+1 || len(b.waiting) != 0 {
			t.Fatalf("%d asked for, %d wait", b.asked, len(b.waiting))
		}
	}
}

// While turns come, however slowly to each of thousands of callers, no caller passes the bound because it waited long.
func TestNobodyPassesTheBoundWhileTurnsCome(t *testing.T) {
	t.Parallel()
	b := NewBurden(nil)
	b.bound, b.hand, b.wait = burdenLeast, burdenLeast, 20*time.Millisecond
	b.moved = time.Now().Add(time.Hour) // turns come all the time
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if n, err := b.enter(ctx, nil, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d slots, %v: it has passed the bound", n, err)
	}
	b.moved = time.Time{}
	b.bound = burdenLeast + 1
	if n, _ := b.some(1); n != 1 || b.moved.IsZero() {
		t.Error("a turn that came at once is none")
	}
	_, mine := b.some(1)
	b.moved = time.Time{}
	if b.add(-1); mine.gets != 1 || b.moved.IsZero() {
		t.Error("a turn that was waited for is none")
	}
}

// If Redis is far away, its answers alone make every job late. Fewer slots would not help. But if jobs are later than that, the machine is busy, too.
func TestAFarRedisIsNoBurden(t *testing.T) {
	t.Parallel()
	const most = 250_000
	b := NewBurden(nil)
	b.distance.add(40_000, time.Now())
	b.some(burdenFirst)
	b.some(1)
	for range 10 {
		b.ready(4*40_000, most)
	}
	if b.bound <= burdenFirst {
		t.Errorf("the bound is %v, at first it was %d", b.bound, burdenFirst)
	}
	b.seen = tally{}
	for range burdenJobs {
		b.ready(most, most)
	}
	if b.bound >= burdenFirst {
		t.Errorf("the bound is %v after slots that passed by more than the way", b.bound)
	}
}

// Callers that wait get slots in order, and a later caller does not pass them.
func TestSlotsAreForThoseThatWaitLongest(t *testing.T) {
	t.Parallel()
	b := NewBurden(nil)
	b.bound, b.hand = burdenLeast, burdenLeast
	var waiting []*turn
	for range 3 {
		_, mine := b.some(8)
		waiting = append(waiting, mine)
	}
	b.add(-1)
	if n, later := b.some(1); n != 0 || waiting[0].gets != 1 || waiting[1].gets != 0 {
		t.Errorf("%d slots for one that came later, %d and %d for the first two", n, waiting[0].gets, waiting[1].gets)
	} else if b.give(later); len(b.waiting) != 2 {
		t.Errorf("%d wait", len(b.waiting))
	}
	b.add(-6) // six for two: each gets three
	if waiting[1].gets != 3 || waiting[2].gets != 3 || b.asked != 7 {
		t.Errorf("%d and %d of six slots, %d asked for", waiting[1].gets, waiting[2].gets, b.asked)
	}
	if b.give(waiting[2]); b.asked != 4 {
		t.Errorf("%d asked for after one has gone whose turn had come", b.asked)
	}
}

// A pacer that closes leaves no slots of its own in the hand of its process.
func TestWhatAClosedPacerHadIsInHandNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p, b := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}}), NewBurden(nil)
	p.Share(b)
	w.expect(w.reserve(p, wish{want: 4, cost: 1}), stateOK, 4)
	if b.hand != 4 {
		t.Fatalf("%d in hand, want 4", b.hand)
	}
	if p.Close(t.Context()); b.hand != 0 {
		t.Errorf("%d in hand of a pacer that has closed", b.hand)
	}
}

// A caller that gives up while it waits leaves its turn to the next.
func TestATurnIsNotLost(t *testing.T) {
	t.Parallel()
	b, closed := NewBurden(nil), make(chan struct{})
	b.bound, b.hand = 1, 1
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.enter(gone, nil, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(closed)
	if _, err := b.enter(t.Context(), closed, 1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	_, first := b.some(1)
	_, second := b.some(1)
	b.add(-1)
	<-first.come
	b.give(first) // its turn had come
	select {
	case <-second.come:
	default:
		t.Error("the turn of the caller that gave up did not pass to the next")
	}
}

// If only one slot at a time is within the horizon, Redis is asked once for each, and not a second time to hear that the next one is too far off. The test runs in virtual
// time: a busy machine would ask late, and the gaps would be longer.
func TestASlowGatewayIsAskedOnceForEachSlot(t *testing.T) {
	t.Parallel()
	testkit.Redis(t)
	synctest.Test(t, func(t *testing.T) {
		c, gateway := testkit.Client(t), testkit.Gateway(t)
		p := newTestPacer(t, c, PacerConfig{Gateway: gateway, Limits: []job.Limit{{N: 5, Window: time.Second}}, NowMicros: func() int64 { return time.Now().UnixMicro() }})
		pending := redisdb.NewKeys(gateway).Pending()
		for range 20 {
			c.RPush(t.Context(), pending, "x~1")
		}
		slot, err := p.Next(t.Context()) // a new life begins with some questions
		if err != nil {
			t.Fatal(err)
		}
		before := p.asks.Load()
		for range 4 {
			next, err := p.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if gap := next.At - slot.At; gap < 180_000 || gap > 260_000 {
				t.Errorf("the next slot is %d µs later, want 180 to 260 ms", gap)
			}
			slot = next
		}
		if asks := p.asks.Load() - before; asks > 5 {
			t.Errorf("asked %d times for 4 slots", asks)
		}
		p.Empty(t.Context(), slot)
		next, err := p.Next(t.Context())
		if err != nil || next.At > slot.At+50_000 {
			t.Errorf("after a slot that was given back, the next is %d µs later (%v), want the same slot or one close to it", next.At-slot.At, err)
		}
	})
}

// A process that works with older limits than others gets no slot. It asks again as soon as it has the new limits.
func TestNewLimitsAreUsedAtOnce(t *testing.T) {
	t.Parallel()
	testkit.Redis(t)
	synctest.Test(t, func(t *testing.T) {
		c, gateway := testkit.Client(t), testkit.Gateway(t)
		cfg := PacerConfig{Gateway: gateway, Limits: []job.Limit{{N: 100, Window: time.Second}}, NowMicros: func() int64 { return time.Now().UnixMicro() }}
		behind := newTestPacer(t, c, cfg)
		cfg.Version = 2
		first := newTestPacer(t, c, cfg)
		for range 20 {
			c.RPush(t.Context(), redisdb.NewKeys(gateway).Pending(), "x~1")
		}
		if _, err := first.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() { _, err := behind.Next(t.Context()); got <- err }()
		<-time.After(2*heldPoll + heldPoll/10) // in virtual time: it has asked twice, and waits
		if behind.asks.Load() < 2 || len(got) > 0 {
			t.Fatalf("it asked %d times, and has %d slots", behind.asks.Load(), len(got))
		}
		begun := time.Now()
		if err := behind.Change(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil || time.Since(begun) > heldPoll/4 {
			t.Errorf("the first slot under the new limits after %v: %v", time.Since(begun), err)
		}
	})
}

// A process that is too slow does not report calls that were earlier than they are counted: none of its calls waits for their permits, and the report would delay others.
func TestAProcessThatIsTooSlowTellsOfNoEarlierCalls(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	p := latePacer(t, PacerConfig{Limits: []job.Limit{{N: 1000, Window: time.Second}}}, nil, nil)
	b := NewBurden(nil)
	p.Share(b)
	trips := testkit.Trips(p.client)
	early := func() int64 {
		trips.Store(0)
		p.tellEarlier(lateCall{plan: p.plan.Load(), slot: job.Slot{At: 1, Cost: 1}, edge: 50_000, count: 1, since: p.clock.Now()})
		p.work.Wait()
		return trips.Load()
	}
	b.cut, b.held = time.Now(), time.Now()
	if n := early(); n != 0 {
		t.Errorf("a process that is too slow told Redis of an early call, in %d round trips", n)
	}
	b.held = time.Now().Add(-2 * burdenRecent)
	if n := early(); n == 0 {
		t.Error("a process that is quick enough did not tell Redis of an early call")
	}
}
