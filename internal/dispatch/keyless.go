package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"spillway/internal/config"
	"spillway/internal/redisdb"
)

// Keyless warns of gateways whose calls carry no idempotency key, or one that does not make a second call safe,
// with a Redis that may lose a call: the call would be repeated unnoticed. It returns nil if there are none, or
// if Redis loses nothing.
func Keyless(gateways []config.Gateway, h redisdb.Health, wait int) *redisdb.Finding {
	var names []string
	for _, g := range gateways {
		if g.Request.KeyCovers() == 0 {
			names = append(names, g.Name)
		}
	}
	what, hint := h.Forgets(wait)
	if len(names) == 0 || what == "" {
		return nil
	}
	return &redisdb.Finding{Severity: redisdb.Warn, Hint: hint,
		Message: fmt.Sprintf("calls of %s carry no idempotency key that covers a second call, and %s: a call that it forgets is made again, and may charge twice unnoticed",
			strings.Join(names, ", "), what)}
}

// LookForKeyless is Keyless for every server of db.
func LookForKeyless(ctx context.Context, db *redisdb.DB, gateways []config.Gateway, wait int, patience time.Duration) (found []redisdb.Finding, err error) {
	if db.Embedded {
		return nil, nil // at the start it reports that nothing is persisted
	}
	var all []redisdb.Health
	look := func(ctx context.Context) (err error) { all, err = db.Health(ctx, nil); return err }
	if err := redisdb.Patiently(ctx, patience, look); err != nil {
		return nil, err
	}
	for _, h := range all {
		if f := Keyless(gateways, h, wait); f != nil {
			return []redisdb.Finding{*f}, nil
		}
	}
	return nil, nil
}
