package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// diary records events in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) step(name string) Step {
	return Step{
		Name:  name,
		Start: func(context.Context) error { d.note("+" + name); return nil },
		Stop:  func(context.Context) error { d.note("-" + name); return nil },
	}
}

func (d *diary) want(t *testing.T, lines ...string) {
	t.Helper()
	if !slices.Equal(d.lines, lines) {
		t.Errorf("happened: %v, want %v", d.lines, lines)
	}
}

var errBroken = errors.New("broken")

func TestStopsInReverseAndOnce(t *testing.T) {
	t.Parallel()
	var d diary
	var g Group
	g.Add(d.step("a"))
	g.Add(Step{Name: "empty"})
	g.Add(d.step("b"))
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Stop(t.Context()), g.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	d.want(t, "+a", "+b", "-b", "-a")
}

func TestAFailedStartStopsWhatRuns(t *testing.T) {
	t.Parallel()
	var d diary
	var g Group
	g.Add(d.step("a"))
	bad := d.step("b")
	bad.Start = func(context.Context) error { return errBroken }
	g.Add(bad)
	g.Add(d.step("c"))
	err := g.Start(t.Context())
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "starting b") {
		t.Errorf("%v", err)
	}
	d.want(t, "+a", "-a")
}

func TestAnEndedContextStartsNothing(t *testing.T) {
	t.Parallel()
	var d diary
	var g Group
	g.Add(d.step("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	d.want(t)
}

func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		var g Group
		g.Add(d.step("a"))
		slow := d.step("b")
		entered, goOn := make(chan struct{}), make(chan struct{})
		slow.Start = func(context.Context) error { close(entered); <-goOn; d.note("+b"); return nil }
		g.Add(slow)
		g.Add(d.step("c"))
		started := make(chan error)
		go func() { started <- g.Start(t.Context()) }()
		<-entered
		if err := g.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		close(goOn)
		if err := <-started; err == nil || !strings.Contains(err.Error(), "stopped while starting") {
			t.Errorf("Start said %v", err)
		}
		d.want(t, "+a", "-a", "+b", "-b")
	})
}

func TestAStepThatDoesNotEndIsNamedAndLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		var g Group
		g.Add(d.step("a"))
		release := make(chan struct{})
		defer close(release)
		g.Add(Step{Name: "deaf", Within: 3 * time.Second, Stop: func(context.Context) error { <-release; return nil }})
		g.Add(Step{Name: "polite", Stop: func(ctx context.Context) error { <-ctx.Done(); return errBroken }})
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err := g.Stop(t.Context())
		took := time.Since(begun)
		if err == nil || !strings.Contains(err.Error(), "stopping deaf: not done within 3s") || !errors.Is(err, errBroken) {
			t.Errorf("%v", err)
		}
		if took != DefaultStep+3*time.Second+leave {
			t.Errorf("took %v", took)
		}
		d.want(t, "+a", "-a")
	})
}

func TestHurriedStopEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		var g Group
		g.Add(d.step("a"))
		g.Add(Step{Name: "slow", Within: time.Hour, Stop: func(ctx context.Context) error { <-ctx.Done(); return nil }})
		release := make(chan struct{})
		defer close(release)
		g.Add(Step{Name: "deaf", Within: time.Hour, Stop: func(context.Context) error { <-release; return nil }})
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		hurry, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err := g.Stop(hurry)
		if err == nil || !strings.Contains(err.Error(), "stopping deaf: given up") || time.Since(begun) > 2*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		d.want(t, "+a", "-a")
	})
}

func TestRunStopsAtTheEndOfItsContextOrAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(cancel func(), failed chan error){
			"context": func(cancel func(), _ chan error) { cancel() },
			"failure": func(_ func(), failed chan error) { failed <- errBroken },
		} {
			var d diary
			var g Group
			g.Add(d.step("a"))
			ctx, cancel := context.WithCancel(t.Context())
			failed, ran := make(chan error, 1), make(chan error)
			go func() { ran <- g.Run(ctx, t.Context(), failed) }()
			synctest.Wait()
			end(cancel, failed)
			if err := <-ran; (name == "failure") != errors.Is(err, errBroken) {
				t.Errorf("%s: %v", name, err)
			}
			d.want(t, "+a", "-a")
			cancel()
		}
	})
}

func TestEveryLooksAtOnceAndAgainUntilItIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		ended := false
		var g Group
		g.Add(Every("a", time.Minute, func(ctx context.Context) {
			if looks.Add(1) == 3 { // it is under way when it is to stop
				<-ctx.Done()
				ended = true
			}
		}))
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for want := int64(1); want <= 3; want++ {
			synctest.Wait()
			if got := looks.Load(); got != want {
				t.Fatalf("%d looks, want %d", got, want)
			}
			<-time.After(time.Minute)
		}
		if err := g.Stop(t.Context()); err != nil || !ended || looks.Load() != 3 {
			t.Errorf("%v after %d looks, of which the last ended: %v", err, looks.Load(), ended)
		}
	})
}
