package client

import (
	"context"
	"math/big"
	"net/url"
	"time"
)

// Job is one call to a gateway.
type Job struct {
	// ID names the job within its gateway: visible ASCII without spaces, at most 200 bytes. It is the first idempotency key. Enqueuing a job again changes nothing.
	ID string `json:"id"`
	// Payload is what is sent to the gateway: anything that encoding/json writes as an object, json.RawMessage included. Nil is {}. Write amounts as whole numbers or texts, as the gateway
	// wants them, because a float64 rounds.
	Payload any `json:"payload,omitempty"`
	// Gateway is a gateway of the dispatcher's configuration. Enqueue needs it.
	Gateway string `json:"gateway,omitempty"`
	// Cost is how many units of every limit the call takes; 0 is 1.
	Cost int64 `json:"cost,omitempty"`
	// At is the earliest moment of sending; nil is now.
	At *time.Time `json:"at,omitempty"`
	// Expires is the moment after which the job is not sent any more; nil is never.
	Expires *time.Time `json:"expires,omitempty"`
	// Batch is the run that the job belongs to; empty is none.
	Batch string `json:"batch,omitempty"`
	// Route is the gateway's route that the job takes; empty is the gateway's own request, or its first route if it has none of its own.
	Route string `json:"route,omitempty"`
	// Lane is the job's lane, where jobs name their lanes themselves; empty is that of the payload, or none.
	Lane string `json:"lane,omitempty"`
	// Priority is the job's class; empty is the gateway's default.
	Priority string `json:"priority,omitempty"`
}

// State is the state of a job.
type State string

// These are the states of a job, and what else an Outcome may say.
const (
	Scheduled State = "scheduled" // waits for its At
	Queued    State = "queued"
	InFlight  State = "in_flight"
	Retrying  State = "retrying" // waits for the end of a back-off
	Pending   State = "pending"  // the gateway is being asked what became of its call
	Done      State = "done"
	Parked    State = "parked" // a dead letter, or waiting for room
	Discarded State = "discarded"

	BatchDone State = "batch_done" // of an Outcome alone: each job of the batch that was taken in so far is done or discarded
)

// States returns the states of a job.
func States() []State {
	return []State{Scheduled, Queued, InFlight, Retrying, Pending, Done, Parked, Discarded}
}

// Reason is why a job is parked.
type Reason string

// These are the reasons for parking. The first three need a person.
const (
	UnknownOutcome Reason = "unknown_outcome" // it may have been charged
	Refused        Reason = "refused"
	Exhausted      Reason = "exhausted" // its attempts are used up
	Unreadable     Reason = "unreadable"
	Expired        Reason = "expired"
	Cancelled      Reason = "cancelled"         // with its batch
	AwaitsApproval Reason = "awaiting_approval" // with its batch
	Paused         Reason = "paused"            // with its batch
	Rejected       Reason = "rejected"          // no dead letter: it waits for room, and goes in by itself
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{UnknownOutcome, Refused, Exhausted, Unreadable, Expired, Cancelled, AwaitsApproval, Paused, Rejected}
}

// Amounts is money by currency, in minor units. Sums of many jobs may be beyond any machine's integers.
type Amounts map[string]*big.Int

// JobView is everything about a job except its payload.
type JobView struct {
	ID                string     `json:"id"`
	Gateway           string     `json:"gateway"`
	State             State      `json:"state"`
	Why               string     `json:"why"`                   // for people: why it isn't running now
	ETASeconds        *float64   `json:"eta_seconds,omitempty"` // about how long it waits for its call, where it waits in a lane
	ETAAtMost         bool       `json:"eta_at_most,omitempty"` // it may be called earlier, as other lanes may give up their turns
	Batch             string     `json:"batch"`
	Route             string     `json:"route,omitempty"`
	Priority          string     `json:"priority,omitempty"`
	Lane              string     `json:"lane,omitempty"`
	Cost              int64      `json:"cost"`
	Amount            Amounts    `json:"amount"`
	Attempts          int        `json:"attempts"`
	AttemptsSpent     int        `json:"attempts_spent"` // those that count against its bound
	Replays           int        `json:"replays"`
	IdempotencyKey    string     `json:"idempotency_key"` // empty: the gateway has none
	Reason            Reason     `json:"reason,omitempty"`
	Error             string     `json:"error,omitempty"`
	Status            int        `json:"status,omitempty"`    // of the gateway's last answer; 0: none
	Reference         string     `json:"reference,omitempty"` // the gateway's own
	Settled           *Settled   `json:"settled,omitempty"`   // by a person, or by the gateway's word
	AcceptedAt        *time.Time `json:"accepted_at"`
	At                *time.Time `json:"at,omitempty"`
	Expires           *time.Time `json:"expires,omitempty"`
	DueAt             *time.Time `json:"due_at,omitempty"`
	ParkedAt          *time.Time `json:"parked_at,omitempty"`
	FinishedAt        *time.Time `json:"finished_at,omitempty"`
	ErasedAt          *time.Time `json:"erased_at,omitempty"` // its payload, error and reference were, when a person had it forgotten
	Lookups           int        `json:"lookups,omitempty"`
	NextLookupAt      *time.Time `json:"next_lookup_at,omitempty"`
	LastLookup        string     `json:"last_lookup,omitempty"`
	LookupsFailSince  *time.Time `json:"lookups_fail_since,omitempty"`
	CallEndedAt       *time.Time `json:"call_ended_at,omitempty"`
	AcceptedByGateway bool       `json:"accepted_by_gateway,omitempty"`
	MayHaveCharged    bool       `json:"may_have_charged,omitempty"` // a call with its present key
	Calls             []Call     `json:"calls"`
	PayloadDeleted    bool       `json:"payload_deleted,omitempty"`
}

// Settled says who has resolved a job, and how.
type Settled struct {
	As  string    `json:"as"` // done or not_done
	At  time.Time `json:"at"`
	Who string    `json:"who"`
	Why string    `json:"why"`
}

// Call is one call that was made for a job, or a look-up.
type Call struct {
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Status  int       `json:"status"` // 0: no answer came
	Verdict string    `json:"verdict"`
}

// Job returns everything about a job. For an unknown job the error is UnknownJob.
func (c *Client) Job(ctx context.Context, gateway, id string) (JobView, error) {
	return get[JobView](ctx, c, nil, "v1", "gateways", gateway, "jobs", id)
}

// Search selects jobs: all conditions must hold, and there must be an ID, a reference or a field.
type Search struct {
	ID        string            `json:"id,omitempty"`        // the beginning of the id
	Reference string            `json:"reference,omitempty"` // the gateway's own of the payment, whole
	Fields    map[string]string `json:"fields,omitempty"`    // what stands in the payload, by "payload.customer"
	Gateways  []string          `json:"gateways,omitempty"`  // none: all of the configuration
	Limit     int               `json:"limit,omitempty"`     // about how many jobs a page has, up to 1,000; 0: 100
	After     string            `json:"after,omitempty"`     // the Next of the page before
}

// JobHits is a page of a search.
type JobHits struct {
	Jobs   []JobHit `json:"jobs"`
	Keys   int64    `json:"keys"`   // about how many keys of Redis were looked at
	Unread int64    `json:"unread"` // jobs whose payload can't be read: they may match or not
	Next   *string  `json:"next"`   // nil: that was all
}

// JobHit is a job that a search has found.
type JobHit struct {
	ID         string     `json:"id"`
	Gateway    string     `json:"gateway"`
	State      State      `json:"state"`
	Reason     Reason     `json:"reason,omitempty"`
	Batch      string     `json:"batch,omitempty"`
	Amount     *big.Int   `json:"amount,omitempty"` // minor units; nil: the books have none
	Currency   string     `json:"currency,omitempty"`
	Reference  string     `json:"reference,omitempty"`
	AcceptedAt *time.Time `json:"accepted_at"`
}

// Search finds jobs, a page at a time. A page takes a few seconds at most. It may be empty and still have a next one.
func (c *Client) Search(ctx context.Context, s Search) (JobHits, error) {
	return post[JobHits](ctx, c, s, "v1", "search")
}

// put sets a parameter that has a value.
func put(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
