package deadletter

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// steered are the first words of What for acts that concern no jobs: a gateway, lane or route was paused or
// resumed, limits were changed, a brake was lifted, or a gateway was renamed.
var steered = []string{"pause", "resume", "limit", "gateway", "lane", "route", "brake"}

// Steers reports whether the act changed the gateway, and not a job.
func (a Act) Steers() bool {
	word, _, _ := strings.Cut(a.What, " ")
	return slices.Contains(steered, word)
}

// Steer does something to the gateway and records it in the audit trail. The entry is written first, so that
// nothing that was done is missing there. An act that fails has no end. a.At is set from Redis's clock.
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
