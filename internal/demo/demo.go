// Package demo is the whole system in one process, with a story to watch: a billing file goes in, there is room for a part of
// it, the rest is parked and goes in by itself, two workers call a strict provider at its limit; some jobs are refused, and
// replayed once the provider has changed its mind. It ends with a summary whose totals must add up.
//
// It puts together what the two programs put together, from the same parts: nothing here is a simulation but the provider.
package demo

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"spillway/internal/provider"
)

// Params say what is played. Default returns the demo's own.
type Params struct {
	// Jobs is how many jobs the billing file has, beside the lines that are no jobs of their own.
	Jobs int
	// Expiring is how many of them are at the file's end with a time to expire that passes before their turn comes.
	Expiring int
	// ExpireAfter is how long after the start these expire.
	ExpireAfter time.Duration
	// Limit is what the provider allows; the dispatchers are told the same.
	Limit provider.Limit
	// Room is how many jobs admission takes at once.
	Room int
	// Workers is how many dispatchers work side by side.
	Workers int
	// Service is how long the provider takes for an answer.
	Service time.Duration
	// DeclineEvery is how many jobs it takes for one to be refused, with 402.
	DeclineEvery int
	// Fail is the share of calls, 0 to 1, that are answered with 500.
	Fail float64
	// Patience bounds the whole run: a demo that takes longer has failed.
	Patience time.Duration
	// Log hears what the dispatchers have to say.
	Log *slog.Logger
}

// Default returns the demo as it is played: some 27 seconds.
func Default() Params {
	return Params{
		Jobs: 2400, Expiring: 12, ExpireAfter: 5 * time.Second,
		Limit: provider.Limit{N: 100, Window: time.Second}, Room: 600, Workers: 2,
		Service: 20 * time.Millisecond, DeclineEvery: 20, Fail: 0.01,
		Patience: 2 * time.Minute, Log: slog.New(slog.DiscardHandler),
	}
}

// Watcher sees the story as it goes on. Its methods are called one after the other.
type Watcher interface {
	// Tell is told what begins now.
	Tell(what string)
	// Show is shown where things stand, several times a second.
	Show(v View)
}

// Outcome is what is left of a demo when it has ended.
type Outcome struct {
	Reckoning Reckoning
	// Calls are all arrivals at the provider, for a picture.
	Calls []provider.CallLine
	Limit provider.Limit
}

// Run plays the demo. Its error says that it could not be played to its end; whether the reckoning holds is for the caller to
// look at. With ctx's error everything has been stopped in order.
func Run(ctx context.Context, p Params, w Watcher) (Outcome, error) {
	s, err := setUp(ctx, p)
	if err != nil {
		return Outcome{}, err
	}
	o, err := s.play(ctx, w)
	if stopErr := s.tearDown(); err == nil {
		err = stopErr
	}
	return o, err
}

// play is the story.
func (s *stage) play(ctx context.Context, w Watcher) (Outcome, error) {
	begun := time.Now()
	bounded, cancel := context.WithDeadline(ctx, begun.Add(s.p.Patience))
	defer cancel()
	r := Reckoning{Limit: s.p.Limit.String()}
	err := s.chapters(bounded, w, &r)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return Outcome{}, ctx.Err()
	case time.Since(begun) >= s.p.Patience:
		return Outcome{}, fmt.Errorf("the demo did not end within %v: is this machine very busy?", s.p.Patience)
	default:
		return Outcome{}, err
	}
	r.Seconds = tenth(time.Since(begun).Seconds())
	calls, err := s.reckon(ctx, &r)
	return Outcome{Reckoning: r, Calls: calls, Limit: s.p.Limit}, err
}

func (s *stage) chapters(ctx context.Context, w Watcher, r *Reckoning) error {
	w.Tell(fmt.Sprintf("A billing file of %s jobs goes in. There is room for %s;\nthe rest waits for room, and goes in by itself.",
		number(s.p.Jobs), number(s.p.Room)))
	if err := s.enqueue(ctx, r); err != nil {
		return err
	}
	w.Tell(fmt.Sprintf("%d workers call a provider that allows %s and answers 429 above.\nIt refuses one job in %d, and one call in %.0f fails.",
		s.p.Workers, s.p.Limit, s.p.DeclineEvery, 1/s.p.Fail))
	if err := s.watch(ctx, w, r.Jobs); err != nil {
		return err
	}
	s.noteRate(r)
	w.Tell("The provider changes its mind about the jobs that it refused:\nthey are replayed, each under a new idempotency key.")
	s.strict.Set(s.forgiving())
	if err := s.replay(ctx, r); err != nil {
		return err
	}
	return s.watch(ctx, w, r.Jobs)
}

// The pace of watching.
const lookEvery = 200 * time.Millisecond

// watch shows where things stand until nothing waits and nothing is under way.
func (s *stage) watch(ctx context.Context, w Watcher, jobs int) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		v, err := s.look(ctx, jobs)
		if err != nil {
			return err
		}
		w.Show(v)
		if v.Waiting+v.Rejected+v.InFlight == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
