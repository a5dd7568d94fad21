package bucket

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

func (l *waiters) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// A job that is ready does not wait for the end of a hold, a pause or other calls, and does not go ahead after a hold: it goes back to its queue.
func TestRetakeWaitsForItsTimeAlone(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]func(context.Context, *Pacer) error{
		"a hold":   func(ctx context.Context, p *Pacer) error { _, err := hold(ctx, p, time.Minute, job.Slot{}); return err },
		"a pause":  func(ctx context.Context, p *Pacer) error { return p.Pause(ctx, "x") },
		"too many": func(ctx context.Context, p *Pacer) error { _, err := p.Take(ctx, 1, ""); return err },
		"the call that goes ahead": func(ctx context.Context, p *Pacer) error {
			if _, err := hold(ctx, p, time.Millisecond, job.Slot{}); err != nil {
				return err
			}
			<-time.After(5 * time.Millisecond)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestPacer(t, testkit.Client(t), PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(100, time.Second)}, MaxInFlight: 1, CallTimeout: time.Minute})
			if s, err := p.Retake(t.Context(), 1, ""); err != nil || p.Release(t.Context(), s) != nil {
				t.Fatalf("nothing keeps calls back: %v", err)
			}
			if err := keep(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if s, err := p.Retake(t.Context(), 1, ""); !errors.Is(err, ErrHeld) || !s.Zero() {
				t.Errorf("%+v, %v; want ErrHeld", s, err)
			}
		})
	}
	p := newTestPacer(t, testkit.Client(t), PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(100, time.Second)}})
	if _, err := p.Retake(t.Context(), 101, ""); !errors.Is(err, job.ErrCost) {
		t.Errorf("a cost above the limit: %v", err)
	}
}

// Jobs that wait for slots are served in order, many in one answer. Slots that no job waits for any more are given back.
func TestThoseThatTakeASlotShareAnswers(t *testing.T) {
	t.Parallel()
	c := testkit.Client(t)
	p := newTestPacer(t, c, PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(1000, time.Second)}})
	p.takeTurn <- struct{}{} // no job is served yet
	const all, gone = 40, 7
	slots := make([]job.Slot, all)
	leaving, leave := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for i := range all {
		done.Go(func() {
			ctx, cost := t.Context(), int64(1)
			if i == gone {
				ctx = leaving
			}
			if i >= all/2 {
				cost = 2
			}
			var err error
			if slots[i], err = p.Retake(ctx, cost, ""); err != nil && i != gone {
				t.Error(err)
			}
		})
		testkit.Eventually(t, 10*time.Second, "a job that waits", func() bool { return p.waiters.waiting() == i+1 })
	}
	leave()
	testkit.Eventually(t, 10*time.Second, "one that has left", func() bool { return p.waiters.waiting() == all-1 })
	asks := p.asks.Load()
	<-p.takeTurn
	done.Wait()
	if n := p.asks.Load() - asks; n > 10 {
		t.Errorf("%d jobs were served with %d questions", all-1, n)
	}
	var at []int64
	for i, s := range slots {
		if i == gone {
			if !s.Zero() {
				t.Error("the one that left got a slot")
			}
			continue
		}
		if at = append(at, s.At); s.Cost != int64(1+2*i/all) {
			t.Errorf("job %d got a slot of %d", i, s.Cost)
		}
	}
	if !slices.IsSorted(at) {
		t.Errorf("not in order: %v", at)
	}
	if free := p.waiters.ready(); free != nil {
		t.Error("no job waits, and the next one is kept back")
	}
}

// While a job that is ready waits for a slot, none is reserved for one that must still be pulled: at the limit it would take the slot of the ready job.
func TestJobsThatAreReadyGoBeforeThoseInTheQueue(t *testing.T) {
	t.Parallel()
	c := testkit.Client(t)
	p := newTestPacer(t, c, PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(100, time.Second)}})
	fill(t, c, redisdb.NewKeys(p.gateway).Pending(), 1)
	p.takeTurn <- struct{}{}
	ready, taken := make(chan struct{}), make(chan job.Slot, 1)
	go func() {
		close(ready)
		s, _ := p.Retake(t.Context(), 1, "")
		taken <- s
	}()
	<-ready
	testkit.Eventually(t, 10*time.Second, "the job waits", func() bool { return p.waiters.waiting() == 1 })
	pulled := make(chan job.Slot, 1)
	began := time.Now()
	go func() {
		s, _ := p.Next(t.Context())
		pulled <- s
	}()
	<-time.After(horizonMost / 2)
	if n := p.asks.Load(); n != 0 && time.Since(began) < horizonMost {
		t.Errorf("%d slots were asked for meanwhile", n)
	}
	<-p.takeTurn
	if first, second := <-taken, <-pulled; first.Zero() || second.Zero() {
		t.Errorf("got %+v and %+v", first, second)
	}
}

// closing closes a pacer when it first looks at the time.
type closing struct {
	clock.Clock
	once  *sync.Once
	close func()
}

func (c closing) Now() time.Time {
	c.once.Do(c.close)
	return c.Clock.Now()
}

// If a pacer closes just before a slot is asked for, the caller does not wait.
func TestTakeEndsWhenThePacerCloses(t *testing.T) {
	t.Parallel()
	p := newTestPacer(t, testkit.Client(t), PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(100, time.Second)}})
	p.clock = closing{p.clock, &sync.Once{}, func() { p.Close(context.Background()) }}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := p.Take(ctx, 1, ""); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}

// The caller that asks for others too hears at once that calls are held, and leaves the wake-up to those who wait for it.
func TestWhoAsksIsToldAtOnceThatCallsAreHeld(t *testing.T) {
	t.Parallel()
	p := newTestPacer(t, testkit.Client(t), PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(100, time.Second)}})
	if _, err := hold(t.Context(), p, time.Minute, job.Slot{}); err != nil {
		t.Fatal(err)
	}
	p.Wake()
	if _, err := p.Retake(t.Context(), 1, ""); !errors.Is(err, ErrHeld) {
		t.Fatal(err)
	}
	select {
	case <-p.wake:
	default:
		t.Error("the wake-up is gone")
	}
}

// How far back a slot lies continues to grow while the machine is suspended. It is unknown after Redis's clock has been set.
func TestHowFarBackASlotLies(t *testing.T) {
	t.Parallel()
	p := newTestPacer(t, testkit.Client(t), PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(100, time.Second)}})
	s, err := p.Take(t.Context(), 1, "")
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := p.Behind(s, p.clock.Now()); !ok || d < -time.Second || d > 10*time.Second {
		t.Errorf("%s back, %v", d, ok)
	}
	was := p.asleep
	p.asleep = func() time.Duration { return was() + time.Hour }
	if d, ok := p.Behind(s, p.clock.Now()); ok && d < 59*time.Minute {
		t.Errorf("after an hour asleep %s back, %v", d, ok)
	}
	s.Era--
	if _, ok := p.Behind(s, p.clock.Now()); ok {
		t.Error("a slot of an earlier era lies on this clock")
	}
}
