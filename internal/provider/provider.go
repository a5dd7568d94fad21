// Package provider is the strict provider: a payment gateway that counts every arrival in exact rolling windows and
// answers what goes over with 429. It is the judge of the limit in tests, the demo and trials of a configuration.
package provider

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Limit allows N calls in every window (t-Window, t].
type Limit struct {
	N      int
	Window time.Duration
}

// Config says how the provider behaves. The zero Config has no limit, answers at once and charges every card.
// All of it but Seed can be changed while it runs (PUT or PATCH /settings).
type Config struct {
	// Limits hold together; none means no limit.
	Limits []Limit
	// Service is how long an answer takes.
	Service time.Duration
	// Decline is the share of new keys, 0 to 1, answered with 402.
	Decline float64
	// DeclineEvery answers each n-th new job id with 402. 0 = none.
	DeclineEvery int
	// Fail is the share of calls, 0 to 1, answered with 500 without a charge.
	Fail float64
	// Hang is the share of calls, 0 to 1, that are charged and never answered.
	Hang float64
	// Down answers everything with 503.
	Down bool
	// RetryAfter goes with 503. 0 = no header. With 429 the exact wait goes out always, in whole seconds rounded up.
	RetryAfter time.Duration
	// NoHint leaves Retry-After out of the 429s.
	NoHint bool
	// CountRefused makes calls refused with 429 take a permit too, as some gateways do.
	CountRefused bool
	// NoKeys ignores idempotency keys: every call charges.
	NoKeys bool
	// Seed makes the chances repeatable. 0 = random.
	Seed uint64
}

// Provider is the strict provider.
type Provider struct{}

// New returns a provider.
func New(cfg Config) *Provider { return &Provider{} }

// ServeHTTP answers a charge (any other path), GET /stats, GET /calls, GET, PUT and PATCH /settings and POST /reset.
// Arrivals are stamped here unless the connection was taken by Serve.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {}

// Serve answers on ln until ctx is done, stamping each arrival at the first byte of its request.
func (p *Provider) Serve(ctx context.Context, ln net.Listener) error { <-ctx.Done(); return nil }

// Set changes the behaviour from now on. Arrivals already counted stay counted.
func (p *Provider) Set(cfg Config) {}

// Config returns the present behaviour.
func (p *Provider) Config() Config { return Config{} }

// Stats returns what was seen so far.
func (p *Provider) Stats() Stats { return Stats{} }

// Reset forgets every arrival, key and count; the behaviour stays.
func (p *Provider) Reset() {}

// Stats is what the provider saw.
type Stats struct {
	Calls        int           `json:"calls"`         // arrivals on a charging path, refused ones too
	OK           int           `json:"ok"`            // answers 200, repeated ones too
	Charged      int           `json:"charged"`       // distinct keys charged
	ChargedTwice int           `json:"charged_twice"` // job ids charged more than once
	Declined     int           `json:"declined"`      // first answers 402
	Failed       int           `json:"failed"`        // answers 500
	Down         int           `json:"down"`          // answers 503
	TooMany      int           `json:"too_many"`      // answers 429
	Conflicts    int           `json:"conflicts"`     // answers 409: the same key was still running
	Hung         int           `json:"hung"`          // charged and never answered
	Replayed     int           `json:"replayed"`      // first answers given again for a used key
	Windows      []WindowStats `json:"windows"`       // one for each limit
	Over         int           `json:"over"`          // calls that were above some limit when they arrived
	Rate         float64       `json:"rate"`          // calls a second over the whole run
	MaxInFlight  int           `json:"max_in_flight"`
	FirstAt      *time.Time    `json:"first_at"`
	LastAt       *time.Time    `json:"last_at"`
}

// WindowStats is how close the calls came to one limit.
type WindowStats struct {
	Limit       string  `json:"limit"`         // as in the configuration: 100/s, 300/10s
	MaxInWindow int     `json:"max_in_window"` // most arrivals in any rolling window
	Utilisation float64 `json:"utilisation"`   // rate over the middle 80 % of the run, as a share of the limit
}
