package client

import (
	"context"
	"net/url"
	"time"
)

// Status is the state of the gateways, and what needs a person.
type Status struct {
	NeedsPerson []Need            `json:"needs_person"` // the most urgent first
	Unlisted    []UnlistedGateway `json:"unlisted,omitempty"`
	Gateways    []GatewayStatus   `json:"gateways"`
	Damaged     []string          `json:"damaged,omitempty"` // what is wrong with the data of gateways that can't be looked at, or not whole
}

// Need is something that a person has to do.
type Need struct {
	Kind    string     `json:"kind"`
	Gateway string     `json:"gateway"`
	Batch   string     `json:"batch,omitempty"`
	What    string     `json:"what"`
	Since   *time.Time `json:"since"`
	Sum
	NoWrites bool   `json:"no_writes,omitempty"` // Redis takes no writes: no dispatcher is missing
	Do       string `json:"do"`                  // a command, or what to see to
	Runbook  string `json:"runbook"`             // the section that explains it
}

// UnlistedGateway has jobs, and is not in the configuration.
type UnlistedGateway struct {
	Gateway string `json:"gateway"`
	Sum
	WithoutSum int64            `json:"without_sum"`
	Waiting    int64            `json:"waiting"`
	Parked     map[Reason]int64 `json:"parked"`
	Done       int64            `json:"done"`
	LastServed *time.Time       `json:"last_served"`
	Served     bool             `json:"served"`
	Moving     string           `json:"moving,omitempty"`
	Damaged    string           `json:"damaged,omitempty"`
}

// GatewayStatus is the state of one gateway.
type GatewayStatus struct {
	Gateway             string           `json:"gateway"`
	Queued              int64            `json:"queued"`
	InFlight            int64            `json:"in_flight"`
	Scheduled           int64            `json:"scheduled"`
	Retrying            int64            `json:"retrying"`
	Pending             int64            `json:"pending"`
	NextLookupAt        *time.Time       `json:"next_lookup_at,omitempty"`
	Done                int64            `json:"done"`
	Parked              map[Reason]int64 `json:"parked"`                // those without jobs are left out
	ParkedMost          int64            `json:"parked_most,omitempty"` // the bound, once it is nearly reached
	ParkedBytes         int64            `json:"parked_bytes"`
	ParkedBytesMost     int64            `json:"parked_bytes_most,omitempty"`
	ParkedAmount        Amounts          `json:"parked_amount"`
	ParkedWithoutAmount int64            `json:"parked_without_amount"`
	Limits              []string         `json:"limits"`
	Admission           []string         `json:"admission"`
	Bottleneck          string           `json:"bottleneck"` // leak or admission
	Rate1m              float64          `json:"rate_1m"`    // calls a second, over the last minute
	HeldUntil           *time.Time       `json:"held_until"`
	HoldReason          string           `json:"hold_reason,omitempty"`
	Paused              bool             `json:"paused"`
	PauseWhy            string           `json:"pause_why,omitempty"`
	ETASeconds          *float64         `json:"eta_seconds"` // nil: nobody can say
	ETAWhy              string           `json:"eta_why,omitempty"`
	Overloaded          []Overload       `json:"overloaded,omitempty"`
	ETAAtLeast          bool             `json:"eta_at_least,omitempty"` // not all lanes were looked at: it may be later
	Outcomes            *FeedStatus      `json:"outcomes,omitempty"`     // nil: it has no feed
	Routes              []RouteStatus    `json:"routes,omitempty"`       // none where the gateway has none
	Classes             []ClassStatus    `json:"classes,omitempty"`      // the highest first; none where the gateway has none
	Lanes               *LanesStatus     `json:"lanes,omitempty"`        // nil where the gateway has neither lanes nor routes with limits
}

// Overload is a dispatcher that is too slow for the gateway's limits.
type Overload struct {
	Process           string    `json:"process"`
	Since             time.Time `json:"since"`
	SlotsInHandAtMost int       `json:"slots_in_hand_at_most"`
}

// FeedStatus is the state of an outcome feed.
type FeedStatus struct {
	Kept      int64          `json:"kept"`
	HeldSince *time.Time     `json:"held_since,omitempty"`
	WaitsFor  string         `json:"waits_for,omitempty"` // the reader for which the gateway is held
	Readers   []ReaderStatus `json:"readers"`
}

// ReaderStatus is the position of a reader.
type ReaderStatus struct {
	Reader      string     `json:"reader"`
	Behind      int64      `json:"behind"`
	BehindSince *time.Time `json:"behind_since,omitempty"`
	Dropped     int64      `json:"dropped,omitempty"`
}

// Status returns the state of the gateways.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, nil, "v1", "status")
}

// CallQuery says which calls are counted.
type CallQuery struct {
	Gateways []string // none: all of the configuration
	Since    string   // 3h for so long ago, a date, or a date and a time; empty: all that is kept
	By       string   // hour or gateway; empty: hour
}

// CallHistory is the calls of the last 24 hours, by their answers.
type CallHistory struct {
	Since time.Time `json:"since"`
	All   CallRow   `json:"all"`
	Rows  []CallRow `json:"rows"`
}

// CallRow is the calls of an hour, or of a gateway.
type CallRow struct {
	Hour    *time.Time   `json:"hour,omitempty"`
	Gateway string       `json:"gateway,omitempty"`
	Calls   int64        `json:"calls"`
	Answers []CallAnswer `json:"answers"`
}

// CallAnswer counts the calls with the same result.
type CallAnswer struct {
	Status  int    `json:"status"`
	Verdict string `json:"verdict"`
	Calls   int64  `json:"calls"`
}

// Calls counts the calls of the last 24 hours.
func (c *Client) Calls(ctx context.Context, q CallQuery) (CallHistory, error) {
	query := url.Values{"gateway": q.Gateways}
	put(query, "since", q.Since)
	put(query, "by", q.By)
	return get[CallHistory](ctx, c, query, "v1", "calls")
}

// AnswerQuery says which jobs' answers are counted.
type AnswerQuery struct {
	Since string // 3h for so long ago, a date, or a date and a time; empty: all
	Batch string // empty: all
}

// Answers has the last answers of a gateway to jobs that are not done.
type Answers struct {
	Gateway  string   `json:"gateway"`
	Answers  []Answer `json:"answers"`
	LookedAt int64    `json:"looked_at"`
	More     bool     `json:"more"` // there are jobs that were not looked at
	Others   int64    `json:"others"`
}

// Answer is how many jobs got the same answer.
type Answer struct {
	Status  int       `json:"status"`
	Verdict string    `json:"verdict"`
	Says    string    `json:"says"`
	Jobs    int64     `json:"jobs"`
	Example string    `json:"example"` // the id of one of them
	Last    time.Time `json:"last"`
}

// Answers counts the last answers of a gateway to jobs that are parked or wait for the end of a back-off.
func (c *Client) Answers(ctx context.Context, gateway string, q AnswerQuery) (Answers, error) {
	query := url.Values{}
	put(query, "since", q.Since)
	put(query, "batch", q.Batch)
	return get[Answers](ctx, c, query, "v1", "gateways", gateway, "answers")
}

// Processes lists the dispatchers of a Redis.
type Processes struct {
	Processes []Process `json:"processes"`
}

// Process is a dispatcher.
type Process struct {
	Process  string     `json:"process"`
	State    string     `json:"state"` // serving or silent
	Version  string     `json:"version"`
	Started  time.Time  `json:"started"`
	LastSeen time.Time  `json:"last_seen"`
	Gateways int        `json:"gateways"`
	Chosen   []string   `json:"chosen,omitempty"`
	Listen   string     `json:"listen,omitempty"`
	Calls    int64      `json:"calls"`
	LastCall *time.Time `json:"last_call"`
}

// Processes returns which dispatchers serve.
func (c *Client) Processes(ctx context.Context) (Processes, error) {
	return get[Processes](ctx, c, nil, "v1", "processes")
}

// Examined is what the dispatcher that answers expects to go wrong.
type Examined struct {
	At time.Time `json:"at"`
	OK bool      `json:"ok"`
	// RedisAway says that it could not be reached.
	RedisAway bool    `json:"redis_away,omitempty"`
	Failed    int     `json:"failed"`
	Warned    int     `json:"warned"`
	Checks    []Check `json:"checks"`
}

// Check is one examined thing.
type Check struct {
	Check   string `json:"check"`
	Gateway string `json:"gateway,omitempty"`
	Level   string `json:"level"` // ok, warn or fail
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Doctor returns what the dispatcher has found. The result is at most a minute old.
func (c *Client) Doctor(ctx context.Context) (Examined, error) {
	return get[Examined](ctx, c, nil, "v1", "doctor")
}

// TrailQuery says which trails are verified.
type TrailQuery struct {
	// Gateways are those whose trails are verified; none: all.
	Gateways []string `json:"gateways,omitempty"`
	// Links and Hash are a recorded head of one gateway's trail; zero: none.
	Links int64  `json:"links,omitempty"`
	Hash  string `json:"hash,omitempty"`
}

// Trails is the result of verifying trails.
type Trails struct {
	OK       bool    `json:"ok"` // nothing was changed in any of them
	Gateways []Trail `json:"gateways"`
}

// Trail is the result of verifying the trail of one gateway.
type Trail struct {
	Gateway   string    `json:"gateway"`
	OK        bool      `json:"ok"`
	Entries   int64     `json:"entries"`   // of the trail
	Before    int64     `json:"before"`    // of those: they were there before there was a chain
	Unchained int64     `json:"unchained"` // the last ones, which the chain does not have yet
	Head      TrailHead `json:"head"`
	Faults    int64     `json:"faults"`
	Findings  []string  `json:"findings"` // the first of the faults, for a person
}

// TrailHead is the end of the chain of a trail.
type TrailHead struct {
	Links   int64  `json:"links"`
	Entries int64  `json:"entries"` // of the trail that have a link
	Hash    string `json:"hash"`    // of the last link; empty if there is none
}

// VerifyTrail verifies the trails of gateways by their chains of hashes.
func (c *Client) VerifyTrail(ctx context.Context, q TrailQuery) (Trails, error) {
	return post[Trails](ctx, c, q, "v1", "trail", "verify")
}
