package bucket

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// A call does not go out late if a window does not have its permit: that window would count it too early.
func TestALateCallWaitsForEachWindowToCountIt(t *testing.T) {
	t.Parallel()
	limits := []job.Limit{{N: 100, Window: time.Second}, {N: 1000, Window: 10 * time.Second}, {N: 1_000_000, Window: time.Hour}}
	for without := range len(limits) + 1 { // 0: each window has it
		t.Run(fmt.Sprint("window ", without, " has no permit"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.Client(t), 7)
			p := w.pacer(PacerConfig{Limits: limits})
			s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
			late := p.Due(s).Add(20 * time.Millisecond)
			if without > 0 && w.client.Del(t.Context(), w.keys.PaceWindow(without)).Val() != 1 {
				t.Fatal("the window is empty")
			}
			w.now = late.UnixMicro()
			if got, want := p.TooLate(s, late), without > 0; got != want {
				t.Errorf("too late is %v, want %v", got, want)
			}
		})
	}
}

// Until a late call is written, Redis counts it at the last moment at which it can be written, and then at the moment at which it was.
func TestALateCallIsCountedAtTheMomentOfItsWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}, {N: 100_000, Window: time.Hour}}})
	p.done = true // what runs in the background runs at once
	s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
	inParts := fmt.Sprint(p.pairs(t, 2))
	counted := func(when string, at int64) {
		t.Helper()
		if got, want := fmt.Sprint(p.pairs(t, 1)), fmt.Sprintf("[%d 1]", at); got != want {
			t.Errorf("%s Redis counts %s, want %s", when, got, want)
		}
		if got := fmt.Sprint(p.pairs(t, 2)); got != inParts {
			t.Errorf("%s the window in parts, which allows for lateness, has %s, want %s", when, got, inParts)
		}
	}
	counted("when it is reserved", s.At)
	w.now = s.At + 30_000
	if p.TooLate(s, w.Now()) {
		t.Fatal("it is too late")
	}
	counted("before it is written", s.At+p.plan.Load().tooLate-p.plan.Load().epsilon)
	p.Written(s, w.Now())
	counted("when it is written", p.bounds.notAfter(p.local(w.Now()))-p.plan.Load().epsilon)
	if len(p.late.edges) != 0 {
		t.Errorf("%d slots are remembered", len(p.late.edges))
	}
}

// After the lists were rebuilt, a pair can belong to another call. So no call moves to an earlier moment.
func TestNoCallIsCountedEarlierInOtherBooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	p.done = true // what runs in the background runs at once
	p.late.lateness = readiness{mean: 60_000}
	s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
	w.client.HSet(t.Context(), w.keys.Pace(), "o", fmt.Sprintf("%d %d", s.StateID, s.StateID+1))
	w.now = s.At
	p.Written(s, w.Now())
	if got, want := fmt.Sprint(p.pairs(t, 1)), fmt.Sprintf("[%d 1]", s.At+60_000); got != want {
		t.Errorf("Redis counts %s, want %s", got, want)
	}
}

// If calls are usually late, a call counts later than its slot from the beginning. If they are late now and then, it does not.
func TestAnAllowanceIsForUsualLatenessAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	for _, c := range []struct {
		usual readiness
		want  int64
	}{
		{readiness{mean: 1000, deviation: 500}, 0},
		{readiness{mean: 4000, deviation: 1000}, 8000},
		{readiness{mean: 200_000, deviation: 60000}, p.plan.Load().tooLate}, // no call is written later
	} {
		usual, want := c.usual, c.want
		p.late.lateness = usual
		s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
		pairs := p.pairs(t, 1)
		if got := p.late.edge(s) - s.At; got != want || pairs[len(pairs)-1] != fmt.Sprintf("%d 1", s.At+want) {
			t.Errorf("late by %v: %d us are allowed, want %d; Redis has %v for %d", usual, got, want, pairs, s.At)
		}
	}
}

// Of the calls of one reservation, the latest decides what the next ones are allowed: if it were the last ones, those would be announced one moment and not
// the next.
func TestAnAllowanceIsForTheLatestCallOfAReservation(t *testing.T) {
	t.Parallel()
	pl, err := newPlan(PacerConfig{Gateway: "g", Limits: []job.Limit{{N: 1000, Window: time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	l := newLateCalls()
	calls := func(late ...int64) (allowed int64) {
		for range 30 {
			for _, us := range late {
				for range 64 {
					l.learn(us, pl.tooLate)
				}
			}
			allowed = l.allowance(pl)
		}
		return allowed
	}
	if got := calls(20_000, 0); got < 19_000 || got > 25_000 {
		t.Errorf("half of the calls are 20 ms late, and the last are in time: %d us are allowed", got)
	}
	if again := l.allowance(pl); again < 19_000 {
		t.Errorf("%d us are allowed when there was no call since", again)
	}
	if got := calls(0); got != 0 {
		t.Errorf("calls are in time again: %d us are allowed", got)
	}
}

// If Redis does not find a late call, the calls that were announced with it still go out. A call that asks twice is announced once.
func TestACallThatIsNotFoundKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	slots := w.reserve(p, wish{want: 3, cost: 1, lead: 20_000}).slots
	w.now = slots[2].At + 30_000
	if err := p.Release(t.Context(), slots[1]); err != nil {
		t.Fatal(err)
	}
	joined := make(chan struct{})
	p.late.sending = joined // until all have joined
	answers := make(chan [2]int64, 4)
	for _, s := range append(slots, slots[0]) {
		go func() {
			if p.TooLate(s, w.Now()) {
				answers <- [2]int64{s.Number, 1}
				return
			}
			answers <- [2]int64{s.Number, 0}
		}()
	}
	testkit.Eventually(t, 5*time.Second, "all to have joined", func() bool {
		p.late.mu.Lock()
		defer p.late.mu.Unlock()
		return p.late.next != nil && len(p.late.next.slots) == 3
	})
	close(joined)
	for range 4 {
		if a := <-answers; (a[1] == 1) != (a[0] == slots[1].Number) {
			t.Errorf("slot %d of %d, %d and %d: too late is %d", a[0], slots[0].Number, slots[1].Number, slots[2].Number, a[1])
		}
	}
}

// patience is a clock on which a wait ends when a test says so.
type patience struct {
	*world
	over chan time.Time
}

func (p patience) After(time.Duration) <-chan time.Time { return p.over }

// An announcement that Redis does not answer holds up the calls that are announced with it, and no others.
func TestAnAnnouncementThatStallsHoldsUpNoOtherCall(t *testing.T) {
	t.Parallel()
	c := testkit.Client(t).(*redis.Client)
	w := newWorld(t, c, 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	waits := patience{w, make(chan time.Time)}
	p.clock = waits
	slots := w.reserve(p, wish{want: 3, cost: 1, lead: 20_000}).slots
	w.now = slots[2].At + 30_000
	stalled, goOn, asked := make(chan struct{}), make(chan struct{}), atomic.Int64{}
	c.AddHook(testkit.Hook{Alone: func(_ redis.Cmder, send func() error) error {
		if asked.Add(1) == 1 {
			close(stalled)
			<-goOn
		}
		return send()
	}})
	first := make(chan bool, 1)
	go func() { first <- p.TooLate(slots[0], w.Now()) }()
	select {
	case <-stalled:
	case <-time.After(5 * time.Second):
		t.Fatal("the first call is not announced")
	}
	others := make(chan bool, 2)
	for _, s := range slots[1:] {
		go func() { others <- p.TooLate(s, w.Now()) }()
	}
	testkit.Eventually(t, 5*time.Second, "the others to have joined", func() bool {
		p.late.mu.Lock()
		defer p.late.mu.Unlock()
		return p.late.next != nil && len(p.late.next.slots) == 2
	})
	close(waits.over)
	for range 2 {
		select {
		case late := <-others:
			if late {
				t.Error("a call is too late, though Redis has heard of it")
			}
		case <-time.After(5 * time.Second):
			t.Error("a call waits for the announcement that stalls")
		}
	}
	close(goOn)
	if <-first {
		t.Error("the call of the announcement that stalled is too late, though Redis has heard of it")
	}
}

// However many calls of a fast limit count after a slot, the slot is inserted in order, is found again, and the list has all calls.
func TestAQuickLimitsListIsKeptInOrder(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	const n = 6000
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 50_000, Window: 5 * time.Second}}, Burst: 10_000})
	p.late.lateness = readiness{mean: 1e6}
	slots := 0
	for slots < n {
		slots += len(w.reserve(p, wish{want: 64, cost: 1}).slots)
	}
	p.late.lateness = readiness{}
	s := w.reserve(p, wish{want: 1, cost: 1}).slots[0]
	pairs := p.pairs(t, 1)
	if taken := w.client.HGet(t.Context(), w.keys.Pace(), "n1").Val(); len(pairs) != slots+1 || taken != fmt.Sprint(slots+1) || pairs[0] != fmt.Sprintf("%d 1", s.At) {
		t.Fatalf("%d pairs for %d slots, %s are taken; the first is %s, want %d", len(pairs), slots+1, taken, pairs[0], s.At)
	}
	w.now = s.At + 30_000
	if p.TooLate(s, w.Now()) {
		t.Error("a late call is not found")
	}
	if err := p.Release(t.Context(), s); err != nil || len(p.pairs(t, 1)) != slots {
		t.Errorf("%d pairs are left of %d, %v", len(p.pairs(t, 1)), slots, err)
	}
}

// A call that counts late does not delay one that counts earlier: the lists are in order, whatever each process allows for, and expire no sooner.
func TestListsAreInOrderWhateverIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	var slots []job.Slot
	for _, allowed := range []float64{200_000, 0, 90_000, 90_000, 30_000, 0} {
		p.late.lateness = readiness{mean: allowed}
		slots = append(slots, w.reserve(p, wish{want: 2, cost: 1}).slots...)
	}
	pairs := p.pairs(t, 1) // in order
	if len(slots) != 11 || len(pairs) != len(slots) {
		t.Fatalf("%d slots, and %v", len(slots), pairs)
	}
	for _, s := range slots {
		if !slices.Contains(pairs, fmt.Sprintf("%d 1", p.late.edge(s))) {
			t.Errorf("the slot %d, counted at %d, is not in %v", s.At, p.late.edge(s), pairs)
		}
	}
	if ttl := w.client.PTTL(t.Context(), w.keys.PaceWindow(1)).Val(); ttl < time.Hour {
		t.Errorf("the list stays for %v", ttl)
	}
}

// A call that is given back because it is too late also teaches how late calls are. Otherwise, far from Redis, where all calls are too late at first, no call would ever be made.
func TestACallThatIsTooLateTeachesWhatToAllow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	there, tries := p.client, 0
	for late := true; late && tries < 20; tries++ {
		s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
		w.now = s.At + 160_000
		p.client = noRetry{way{there, func() bool { return false }}}
		late = p.TooLate(s, w.Now())
		p.client = there
	}
	if tries == 1 || tries == 20 {
		t.Errorf("a call that is 160 ms late, and of which Redis can't be told, is made at the try %d of 20", tries)
	}
}

// Lateness that a window allowed for without a report still counts after the limits change: a call in parts may have been written up to 250 ms after its edge.
func TestACallsLatenessCountsUnderOtherLimits(t *testing.T) {
	for name, c := range map[string]struct {
		from job.Limit
		to   []job.Limit // the last one is looked at
	}{
		"in parts, and exact":        {per(5000, 20*time.Second), []job.Limit{per(1000, 20*time.Second)}},
		"in parts, and allowed less": {per(5000, 20*time.Second), []job.Limit{per(10, 100*time.Millisecond), per(5000, 20*time.Second)}},
		"exact, and exacter":         {per(100, time.Second), []job.Limit{per(20, 100*time.Millisecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			w, ctx := scenario(t)
			cfg := PacerConfig{Gateway: testkit.GatewayOf(w.keys.Pace()), NowMicros: func() int64 { return w.now }, Limits: []job.Limit{c.from}}
			p := w.pacer(cfg)
			unreported := p.plan.Load().epsilon
			if width := p.plan.Load().windows[0].width; width > 0 { // the slot is at the end of its part
				unreported = p.plan.Load().tooLate
				w.now = (w.now/width+1)*width - 20_000
			}
			wrote := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0].At + unreported
			w.now = wrote
			w.pass(3 * time.Second)
			cfg.Version, cfg.Limits = 1, c.to
			if err := p.Change(ctx, cfg); err != nil {
				t.Fatal(err)
			}
			w.expect(w.reserve(p, wish{want: 0, cost: 1}), stateReshape, 0)
			if err := p.reshape(ctx); err != nil {
				t.Fatal(err)
			}
			pl := p.plan.Load()
			allows := pl.epsilon
			if pl.windows[len(c.to)-1].width > 0 {
				allows = pl.tooLate
			}
			if at, err := w.client.LIndex(ctx, w.keys.PaceWindow(len(c.to)), 0).Int64(); err != nil || at < wrote-allows {
				t.Errorf("it counts %d µs earlier than it may have been written; the window allows for %d", wrote-at, allows)
			}
		})
	}
}

// A slot whose announcement got no answer can be given back: its pair is where the announcement has put it.
func TestASlotIsGivenBackThoughItsAnnouncementGotNoAnswer(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
	if !p.announce(s) {
		t.Fatal("Redis has not heard it")
	}
	p.late.forget(s) // as without an answer
	if err := p.Release(ctx, s); err != nil || len(p.pairs(t, 1)) != 0 {
		t.Errorf("the list still has %v: %v", p.pairs(t, 1), err)
	}
}

// An older version of the program adds pairs behind later ones. They are found all the same.
func TestASlotIsGivenBackFromAListOutOfOrder(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	p.late.lateness = readiness{mean: 80_000}
	s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
	if s.Counted != s.At+80_000 {
		t.Fatalf("%+v", s)
	}
	w.client.RPush(ctx, w.keys.PaceWindow(1), s.At+10_000, 1)
	if err := p.Release(ctx, s); err != nil || len(p.pairs(t, 1)) != 1 {
		t.Errorf("the list still has %v: %v", p.pairs(t, 1), err)
	}
}
