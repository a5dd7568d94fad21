package deadletter

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// steered are the acts of the trail that are no act upon jobs: a gateway, a lane or a route was paused or resumed, limits changed, a brake lifted, or a gateway renamed. What of such
// an act begins with one of these words.
var steered = []string{"pause", "resume", "limit", "gateway", "lane", "route", "brake"}

// Steers says that the act changed the gateway, and was done to no job.
func (a Act) Steers() bool {
	word, _, _ := strings.Cut(a.What, " ")
	return slices.Contains(steered, word)
}

// Steer does something to the gateway and writes it down in the trail: before it is done, so that what was done is never missing. An act that
// fails stays without an end. a.At is taken from Redis's clock.
func (s *Store) Steer(ctx context.Context, a Act, do func(context.Context) error) error {
	now, err := s.c.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("write down who did what to %s: %w", s.gateway, err)
	}
	a.At = now
	e := s.Entry(a)
	if err := e.Begin(ctx); err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	return e.End(ctx, Deed{})
}
