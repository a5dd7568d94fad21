// Package gateway is step 5 of 8: one HTTP call to a payment gateway, written at its slot and never by itself sent twice.
package gateway

import (
	"context"
	"time"

	"spillway/internal/job"
)

// Config says how one gateway is called.
type Config struct {
	// URL may hold {id} and {payload.FIELD} (dotted), escaped as their place in it demands.
	URL string
	// Method is the HTTP method. Empty means POST. GET, HEAD and DELETE go without a body.
	Method string
	// Encoding is json (also "") or form.
	Encoding string
	// Headers go with every call; their values may be secrets.
	Headers map[string]string
	// IdempotencyHeader carries Call.Key. Empty = the gateway has none.
	IdempotencyHeader string
	// Timeout bounds a call from its slot to the end of its answer. Zero means 30 s.
	Timeout time.Duration
	// MaxConns is how many idle connections are kept for the next calls. Zero means 64.
	MaxConns int
}

// Call is one attempt of one job.
type Call struct {
	Job job.Job
	// Key is the idempotency key. It is sent where the gateway has a header for it.
	Key string
	// Due is the slot: nothing is written before it. Zero means at once.
	Due time.Time
	// TooLate is asked once, just before the write, with the present moment; true gives the call up (Result.Late). nil = never.
	TooLate func(time.Time) bool
}

// Client calls one gateway. It is safe for any number of goroutines.
type Client struct{}

// New checks the configuration and returns a client. It opens no connection.
func New(cfg Config) (*Client, error) { return &Client{}, nil }

// Send makes one call and always returns something to judge. The call ends at the latest Timeout after the later
// of now and Due; ctx is the call's own and ends it before that only when it is done.
func (c *Client) Send(ctx context.Context, call Call) job.Result {
	return job.Result{Stage: job.NotSent}
}

// Warm opens up to n connections ahead of need and returns at once; what fails is left to the calls.
func (c *Client) Warm(n int) {}

// Close closes the idle connections.
func (c *Client) Close() {}
