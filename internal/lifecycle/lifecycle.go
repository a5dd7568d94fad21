// Package lifecycle starts the parts of a program in order and stops them in reverse order. Each stop is
// bounded, named in errors, and safe to repeat.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// DefaultStep is the bound of a step that names none.
const DefaultStep = 10 * time.Second

// Step is one part of a program.
type Step struct {
	// Name names the part in errors.
	Name string
	// Start starts the part and returns once it works; it must not block for the part's life. Nil means nothing
	// to do.
	Start func(ctx context.Context) error
	// Stop stops the part. Its context ends when Within has passed or the stop is hurried; Stop should return
	// soon after. Nil means nothing to do.
	Stop func(ctx context.Context) error
	// Within bounds Stop. Zero means DefaultStep.
	Within time.Duration
}

// Background returns a part that runs in the background. Its context ends when the part is stopped, and run
// must return soon after.
func Background(name string, run func(ctx context.Context)) Step {
	ctx, halt := context.WithCancel(context.Background())
	over := make(chan struct{})
	return Step{
		Name: name,
		Start: func(context.Context) error {
			go func() { defer close(over); run(ctx) }()
			return nil
		},
		Stop: func(bounded context.Context) error {
			halt()
			select {
			case <-over:
				return nil
			case <-bounded.Done():
				return bounded.Err()
			}
		},
	}
}

// Every returns a part that calls look in the background: at its start, and then at intervals of d.
func Every(name string, d time.Duration, look func(ctx context.Context)) Step {
	return Background(name, func(ctx context.Context) {
		again := time.NewTicker(d)
		defer again.Stop()
		for ctx.Err() == nil {
			look(ctx)
			select {
			case <-again.C:
			case <-ctx.Done():
			}
		}
	})
}

// Group is the parts of one program. The zero value is ready for use.
type Group struct {
	mu       sync.Mutex
	steps    []Step
	running  int // this many of the first steps have started
	stopping bool
	stopOnce sync.Once
	result   error
}

// Add appends a part: it is started after those before it, and stopped before them. Add all parts before Start.
func (g *Group) Add(s Step) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.steps = append(g.steps, s)
}

// Start starts the parts in order. If one fails, or ctx ends, or Stop is called meanwhile, it starts no more,
// stops those that run, and returns the reason.
func (g *Group) Start(ctx context.Context) error {
	for {
		step, more, err := g.next(ctx)
		if err == nil && !more {
			return nil
		}
		if err == nil {
			err = g.begin(ctx, step)
		}
		if err != nil {
			return errors.Join(err, g.Stop(context.WithoutCancel(ctx)))
		}
	}
}

func (g *Group) next(ctx context.Context) (step Step, more bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return Step{}, false, ctx.Err()
	case g.stopping:
		return Step{}, false, errors.New("stopped while starting")
	case g.running == len(g.steps):
		return Step{}, false, nil
	}
	return g.steps[g.running], true, nil
}

// begin counts the step as running before starting it, so that a concurrent Stop stops it, too. A step that
// failed to start has nothing to stop.
func (g *Group) begin(ctx context.Context, step Step) error {
	if step.Start != nil {
		if err := step.Start(ctx); err != nil {
			return fmt.Errorf("starting %s: %w", step.Name, err)
		}
	}
	g.mu.Lock()
	g.running++
	late := g.stopping
	g.mu.Unlock()
	if late {
		return errors.Join(errors.New("stopped while starting"), end(context.WithoutCancel(ctx), step))
	}
	return nil
}

// Stop stops the running parts, last one first, each within its own bound. A part that does not end in time is
// named in the error and left behind, and the next one is stopped. Cancelling ctx ends every bound at once. A
// second Stop waits for the first one and returns its result.
func (g *Group) Stop(ctx context.Context) error {
	g.stopOnce.Do(func() {
		g.mu.Lock()
		g.stopping = true
		started := g.steps[:g.running]
		g.mu.Unlock()
		var errs []error
		for i := len(started) - 1; i >= 0; i-- {
			errs = append(errs, end(ctx, started[i]))
		}
		g.result = errors.Join(errs...)
	})
	return g.result
}

// leave is how long a Stop may take to notice that its context has ended.
const leave = 100 * time.Millisecond

func end(ctx context.Context, step Step) error {
	if step.Stop == nil {
		return nil
	}
	within := step.Within
	if within == 0 {
		within = DefaultStep
	}
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- step.Stop(bounded) }()
	select {
	case err := <-ended:
		return named(step, err)
	case <-bounded.Done():
	}
	select {
	case err := <-ended:
		return named(step, err)
	case <-time.After(leave):
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopping %s: given up, as the stop was hurried", step.Name)
	}
	return fmt.Errorf("stopping %s: not done within %v", step.Name, within)
}

func named(step Step, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("stopping %s: %w", step.Name, err)
}

// Run starts the parts, waits until ctx ends or failed delivers an error (nil never does), and stops them. The
// end of hurry ends a stop that takes too long, for example on a second signal.
func (g *Group) Run(ctx, hurry context.Context, failed <-chan error) error {
	if err := g.Start(ctx); err != nil {
		return err
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, g.Stop(hurry))
}
