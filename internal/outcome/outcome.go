// Package outcome is step 6 of 8: a pure table that says what the result of one call means for its job.
// It decides and does nothing: recording, holding and parking are for others.
package outcome

import (
	"time"

	"spillway/internal/job"
)

// Input is one call's result with what has to be known beside it to judge it.
type Input struct {
	Result job.Result
	// KeySent says that an idempotency key went with the call.
	KeySent bool
	// KeyLives says that the gateway still remembers that key, so that the same call again charges nothing twice.
	KeyLives bool
	// Received is the moment at which the answer arrived, by the local clock; it measures Retry-After dates
	// where the answer has no Date of its own.
	Received time.Time
}

// Judgement is a verdict with its reasons.
type Judgement struct {
	Verdict job.Verdict
	// Spent says that the call uses up one of the job's attempts.
	Spent bool
	// HoldFor is how long the gateway asked to be left alone. Only with job.VerdictHold; 0 = it did not say: a growing back-off.
	HoldFor time.Duration
	// Why is short, for logs and the hold's reason: "HTTP 429", never the answer's body.
	Why string
	// Error is for the job's record: the status and the answer's first 500 bytes in one line
	// (`HTTP 402: {"error":…}`), or what went wrong on the way. Empty when done.
	Error string
	// Alarm asks for a person: the gateway does not let us in (401, 403).
	Alarm bool
}

// Rule gives an answer a meaning of its own. All that is set must match.
type Rule struct {
	// Status is the HTTP status. 0 = any.
	Status int
	// Header holds names (in any case) and the exact value wanted of each.
	Header map[string]string
	// Body holds dotted paths into the JSON answer (error.code, items.0.id) and the value wanted there, as text.
	Body map[string]string
	// Then is what such an answer means.
	Then job.Verdict
}

// Table is an ordered list of rules above a profile's own. The zero Table judges like "default".
type Table struct{ user, profile []entry }

// Profile returns a built-in table: "default" (also "") or "stripe".
func Profile(name string) (Table, error) { return Table{}, nil }

// With returns the table with the user's rules put first. The first rule that matches decides.
func (t Table) With(rules []Rule) (Table, error) { return t, nil }

// Judge says what the result means. It never fails: what it doesn't know is unknown.
func (t Table) Judge(in Input) Judgement { return Judgement{Verdict: job.VerdictUnknown} }

type entry struct{ rule Rule }

// Backoff grows from First to Max by doubling, with jitter.
type Backoff struct {
	// First is the delay after the first failed attempt. Zero or less means 1 s.
	First time.Duration
	// Max is the longest delay. Less than First counts as First.
	Max time.Duration
}

// Delay returns how long to wait after attempt failures, counted from 1: a random time in [d/2, d], where d is
// First doubled attempt-1 times and at most Max.
func (b Backoff) Delay(attempt int) time.Duration { return b.First }

// HoldHint returns how long an answer's headers ask us to wait, at most 15 minutes, and whether they say so at all.
func HoldHint(h map[string][]string, status int, received time.Time) (time.Duration, bool) {
	return 0, false
}
