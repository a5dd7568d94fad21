package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// Filter selects parked jobs: all conditions must hold. The zero Filter selects all.
type Filter struct {
	Gateways []string `json:"gateways,omitempty"`
	Reasons  []Reason `json:"reasons,omitempty"`
	Batch    string   `json:"batch,omitempty"`
	Lane     string   `json:"lane,omitempty"`
	Route    string   `json:"route,omitempty"`
	// Since and Until bound when the jobs were parked: a time (RFC 3339), or 24h for that long ago.
	Since string   `json:"since,omitempty"`
	Until string   `json:"until,omitempty"`
	IDs   []string `json:"ids,omitempty"`
	// Match is a regular expression that the error has to match (RE2).
	Match string `json:"match,omitempty"`
	// Limit is the largest number of jobs; 0: all, or a page of 100.
	Limit int `json:"limit,omitempty"`
}

func (f Filter) values() url.Values {
	q := url.Values{"gateway": f.Gateways, "id": f.IDs}
	for _, r := range f.Reasons {
		q.Add("reason", string(r))
	}
	put(q, "batch", f.Batch)
	put(q, "lane", f.Lane)
	put(q, "route", f.Route)
	put(q, "since", f.Since)
	put(q, "until", f.Until)
	put(q, "match", f.Match)
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}

// LeftOut is what a Filter names but does not select.
type LeftOut struct {
	Missing    []string `json:"missing,omitempty"`     // the ids whose jobs are not parked
	MissingWhy string   `json:"missing_why,omitempty"` // where they are instead
}

// DeadLetter is a parked job in a list.
type DeadLetter struct {
	ID       string    `json:"id"`
	Gateway  string    `json:"gateway"`
	Reason   Reason    `json:"reason"`
	Error    string    `json:"error"`
	Attempts int       `json:"attempts"`
	ParkedAt time.Time `json:"parked_at"`
	Batch    string    `json:"batch"`
	Route    string    `json:"route,omitempty"`
	Priority string    `json:"priority,omitempty"`
	Lane     string    `json:"lane,omitempty"`
	Replays  int       `json:"replays"`
	InVain   bool      `json:"in_vain,omitempty"` // replayed without success so often that another replay may fail too
	Cursor   string    `json:"cursor,omitempty"`
	// Payload is what is sent to the gateway, and Unopened why it can't be shown. Both are there only if they were asked for.
	Payload        json.RawMessage `json:"payload,omitempty"`
	Unopened       string          `json:"unopened,omitempty"`
	MayHaveCharged bool            `json:"may_have_charged,omitempty"`
}

// DeadLetterQuery says which page of parked jobs is listed.
type DeadLetterQuery struct {
	Filter
	After   string // the Next of the previous page
	Payload bool   // payloads too: they may hold personal data
	ByNeed  bool   // jobs that need a person first, without those that wait for room; else the oldest first, gateway by gateway
}

// DeadLetters is a page of parked jobs.
type DeadLetters struct {
	Jobs []DeadLetter `json:"jobs"`
	Next *string      `json:"next"` // nil: that was all
	LeftOut
	WaitingForRoom int64 `json:"waiting_for_room,omitempty"` // how many ByNeed has left out
}

// DeadLetters returns a page of parked jobs.
func (c *Client) DeadLetters(ctx context.Context, q DeadLetterQuery) (DeadLetters, error) {
	query := q.values()
	put(query, "after", q.After)
	if q.Payload {
		query.Set("payload", "true")
	}
	if q.ByNeed {
		query.Set("order", "need")
	}
	return get[DeadLetters](ctx, c, query, "v1", "dead-letters")
}

// EachDeadLetter yields all selected parked jobs, a page at a time. An error ends it.
func (c *Client) EachDeadLetter(ctx context.Context, q DeadLetterQuery) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		for {
			page, err := c.DeadLetters(ctx, q)
			if err != nil {
				yield(DeadLetter{}, err)
				return
			}
			for _, d := range page.Jobs {
				if !yield(d, nil) {
					return
				}
			}
			if page.Next == nil {
				return
			}
			q.After = *page.Next
		}
	}
}

// DeadLetterView is everything about a parked job.
type DeadLetterView struct {
	ID             string          `json:"id"`
	Gateway        string          `json:"gateway"`
	Reason         Reason          `json:"reason"`
	Error          string          `json:"error"`
	Attempts       int             `json:"attempts"`
	AttemptsSpent  int             `json:"attempts_spent"`
	AttemptsMost   int             `json:"attempts_most"` // how many a job of the gateway may spend
	ParkedAt       time.Time       `json:"parked_at"`
	Batch          string          `json:"batch"`
	Route          string          `json:"route,omitempty"`
	Priority       string          `json:"priority,omitempty"`
	Lane           string          `json:"lane,omitempty"`
	Replays        int             `json:"replays"`
	InVain         bool            `json:"in_vain,omitempty"`
	Cursor         string          `json:"cursor,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
	Unopened       string          `json:"unopened,omitempty"`
	MayHaveCharged bool            `json:"may_have_charged"`
	Cost           int64           `json:"cost"`
	Amount         Amounts         `json:"amount"`
	IdempotencyKey string          `json:"idempotency_key"`
	Status         int             `json:"status,omitempty"`
	AcceptedAt     *time.Time      `json:"accepted_at"`
	At             *time.Time      `json:"at,omitempty"`
	Expires        *time.Time      `json:"expires,omitempty"`
	FirstCallAt    *time.Time      `json:"first_call_at,omitempty"`
	EditedAt       *time.Time      `json:"edited_at,omitempty"`
	Replay         string          `json:"replay"` // for people: what a replay would do with it
	Lookups        int             `json:"lookups,omitempty"`
	LastLookup     string          `json:"last_lookup,omitempty"`
	Calls          []Call          `json:"calls"`
}

// DeadLetter returns everything about a parked job except its payload. If several gateways have the job, the error says so: name the gateway.
func (c *Client) DeadLetter(ctx context.Context, id string, gateways ...string) (DeadLetterView, error) {
	return get[DeadLetterView](ctx, c, url.Values{"gateway": gateways}, "v1", "dead-letters", "job", id)
}

// DeadLetterStats is what is parked, by gateway.
type DeadLetterStats struct {
	Gateways []ParkedAt `json:"gateways"`
	LeftOut
}

// ParkedAt is what is parked at one gateway.
type ParkedAt struct {
	Gateway       string               `json:"gateway"`
	Total         int64                `json:"total"`
	ByReason      map[Reason]ReasonSum `json:"by_reason"`
	Oldest        *time.Time           `json:"oldest"`
	Amount        Amounts              `json:"amount"`
	WithoutAmount int64                `json:"without_amount"`
}

// ReasonSum is what is parked for one reason.
type ReasonSum struct {
	Sum
	Oldest time.Time `json:"oldest"`
}

// DeadLetterStats counts parked jobs and sums their money.
func (c *Client) DeadLetterStats(ctx context.Context, f Filter) (DeadLetterStats, error) {
	return get[DeadLetterStats](ctx, c, f.values(), "v1", "dead-letters", "stats")
}

// Action is what is done with parked jobs.
type Action string

// These are the actions.
const (
	Replay         Action = "replay"
	Discard        Action = "discard"
	ResolveDone    Action = "done"     // they were charged
	ResolveNotDone Action = "not-done" // they were not: they are replayed
	AskGateway     Action = "ask"      // the gateway is asked what became of them
)

// Clearing is an act on parked jobs.
type Clearing struct {
	Filter
	Action Action `json:"action"`
	// Rate or Share is the highest speed of a replay: 50/s, or 20% of the gateway's limits. Empty: as fast as there is room.
	Rate  string `json:"rate,omitempty"`
	Share string `json:"share,omitempty"`
	// Canary is how many jobs of each gateway are replayed first; 0: all are replayed at once.
	Canary int `json:"canary,omitempty"`
	// ExpiredKeys also replays jobs whose idempotency key the gateway has forgotten: they may be charged twice.
	ExpiredKeys bool `json:"expired_keys,omitempty"`
	// MayBeCharged also discards jobs that may have been charged.
	MayBeCharged bool `json:"may_be_charged,omitempty"`
	// Reference is the gateway's own name for the payment of the one job that is resolved as done.
	Reference string `json:"reference,omitempty"`
	// Priority is the class that replayed jobs have from now on. Empty: each keeps its own.
	Priority string `json:"priority,omitempty"`
}

// Preview is what a Clearing would do.
type Preview struct {
	// Token identifies what was previewed.
	Token  string `json:"token"`
	Action Action `json:"action"`
	// Priority is the class that the jobs would have from then on. Empty: each keeps its own.
	Priority string `json:"priority,omitempty"`
	Sum
	Gateways []string      `json:"gateways"` // all that are meant
	Would    Sum           `json:"would"`    // those of the jobs that it would take
	Parts    []PreviewPart `json:"parts"`
	LeftOut

	of Clearing
}

// PreviewPart is the jobs of one gateway.
type PreviewPart struct {
	ParkedAt
	Would        Sum              `json:"would"`
	HeldBackWhy  map[string]int64 `json:"held_back_why"`
	OftenInVain  int64            `json:"replayed_3_times_or_more"`
	WouldStopFor string           `json:"would_stop,omitempty"`     // why a replay would stop at once
	NeedsSecond  bool             `json:"needs_approval,omitempty"` // a second person has to approve it
}

// Preview says what a Clearing would do, and changes nothing.
func (c *Client) Preview(ctx context.Context, of Clearing) (Preview, error) {
	p, err := post[Preview](ctx, c, of, "v1", "dead-letters", "preview")
	p.of = of
	return p, err
}

// Cleared is the result of an act on parked jobs.
type Cleared struct {
	Sum
	Taken    int64         `json:"taken"`
	HeldBack int64         `json:"held_back"`
	Gone     int64         `json:"gone"`   // no longer parked meanwhile
	Unsure   int64         `json:"unsure"` // it is unknown whether they were taken
	Parts    []ClearedPart `json:"parts"`
}

// ClearedPart is what became of the jobs of one gateway.
type ClearedPart struct {
	Gateway       string           `json:"gateway"`
	Taken         int64            `json:"taken"`
	HeldBack      int64            `json:"held_back"`
	Gone          int64            `json:"gone"`
	Unsure        int64            `json:"unsure"`
	Amount        Amounts          `json:"amount"` // of those that were taken
	WithoutAmount int64            `json:"without_amount"`
	HeldBackWhy   map[string]int64 `json:"held_back_why"`
	Canary        *ClearedCanary   `json:"canary,omitempty"`
	Request       *Request         `json:"request,omitempty"` // what was asked for: nothing was done, since a second person has to approve it
	Stopped       bool             `json:"stopped,omitempty"`
	Problem       *PartProblem     `json:"problem,omitempty"`
}

// ClearedCanary is what became of the first jobs of a replay.
type ClearedCanary struct {
	Sent    int64    `json:"sent"`
	Done    int64    `json:"done"`
	Later   int64    `json:"later"`
	Waiting int64    `json:"waiting"`
	Failed  []string `json:"failed"`
}

// PartProblem is why a part of an act was not done.
type PartProblem struct {
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

type clearRequest struct {
	Clearing
	actor
	Token     string `json:"token"`
	IfChanged string `json:"if_changed,omitempty"`
}

// Clear does what was previewed. If the selection has changed meanwhile, nothing is done, and the error is Changed: preview it again.
func (c *Client) Clear(ctx context.Context, p Preview, by Act) (Cleared, error) {
	return long[Cleared](ctx, c, clearRequest{Clearing: p.of, actor: actor(by), Token: p.Token}, "v1", "dead-letters", "run")
}
