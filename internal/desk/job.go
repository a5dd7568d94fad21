package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// Job is everything known of one job except its payload: "job -o json", and the API's answer.
type Job struct {
	ID         string              `json:"id"`
	Gateway    string              `json:"gateway"`
	State      job.State           `json:"state"`
	Why        string              `json:"why"`
	ETA        *float64            `json:"eta_seconds,omitempty"` // approximate wait for its call, if it waits in a lane
	ETAMost    bool                `json:"eta_at_most,omitempty"` // it may be called earlier, because other lanes may skip their turns
	Batch      string              `json:"batch"`
	Route      string              `json:"route,omitempty"`    // empty: the gateway's own request
	Priority   string              `json:"priority,omitempty"` // its class; empty: the gateway's default
	Lane       string              `json:"lane,omitempty"`     // empty: no lane
	Cost       int64               `json:"cost"`
	Amount     job.Amounts         `json:"amount"`
	Attempts   int                 `json:"attempts"`
	Spent      int                 `json:"attempts_spent"`
	Replays    int                 `json:"replays"`
	Key        string              `json:"idempotency_key"`
	Reason     job.Reason          `json:"reason,omitempty"`
	Error      string              `json:"error,omitempty"`
	Status     int                 `json:"status,omitempty"`
	Reference  string              `json:"reference,omitempty"`
	Settled    *deadletter.Settled `json:"settled,omitempty"`
	AcceptedAt *time.Time          `json:"accepted_at"`
	At         *time.Time          `json:"at,omitempty"`
	Expires    *time.Time          `json:"expires,omitempty"`
	DueAt      *time.Time          `json:"due_at,omitempty"`
	ParkedAt   *time.Time          `json:"parked_at,omitempty"`
	FinishedAt *time.Time          `json:"finished_at,omitempty"`
	ErasedAt   *time.Time          `json:"erased_at,omitempty"` // when "dispatcher forget" erased its payload, error and reference
	// Lookups is how many look-ups were made since the call in doubt ended, without failed ones.
	Lookups   int        `json:"lookups,omitempty"`
	NextLook  *time.Time `json:"next_lookup_at,omitempty"`
	LastLook  string     `json:"last_lookup,omitempty"` // what the last look-up saw, for a person
	LooksFail *time.Time `json:"lookups_fail_since,omitempty"`
	CallEnded *time.Time `json:"call_ended_at,omitempty"`
	HasIt     bool       `json:"accepted_by_gateway,omitempty"` // the gateway said so
	// InDoubt says that a call with its present key may have charged.
	InDoubt bool   `json:"may_have_charged,omitempty"`
	Calls   []Call `json:"calls"`
	// PayloadDeleted is true for a job that is over: its payload no longer exists.
	PayloadDeleted bool `json:"payload_deleted,omitempty"`
}

// Fact is one line about a job, for a table or a page: a text or a time.
type Fact struct {
	Name, Text string
	At         *time.Time // nil: a text
}

// known leaves out unknown facts.
func known(all ...Fact) []Fact {
	return slices.DeleteFunc(all, func(f Fact) bool { return f.Text == "" && f.At == nil })
}

// Given returns the facts given by its producer.
func (v Job) Given() []Fact { return given(v.Route, v.Lane, v.Priority) }

func given(route, lane, priority string) []Fact {
	return known(Fact{"route", route, nil}, Fact{"lane", lane, nil}, Fact{"priority", priority, nil})
}

// Facts returns the facts since then, without its calls.
func (v Job) Facts() []Fact {
	var settled, looks, doubt string
	if v.Settled != nil {
		settled = v.Settled.Text()
	}
	if v.Lookups > 0 {
		looks = strconv.Itoa(v.Lookups)
	}
	if v.InDoubt {
		doubt = "yes: a call was sent, and what came of it is unknown"
	}
	return known(Fact{"may have charged", doubt, nil}, Fact{"accepted", "", v.AcceptedAt}, Fact{"at", "", v.At}, Fact{"expires", "", v.Expires}, Fact{"due", "", v.DueAt}, Fact{"parked", "", v.ParkedAt},
		Fact{"finished", "", v.FinishedAt}, Fact{"forgotten", "", v.ErasedAt}, Fact{"reference", v.Reference, nil}, Fact{FactSettled, settled, nil}, Fact{FactError, v.Error, nil},
		Fact{"call in doubt ended", "", v.CallEnded}, Fact{"next look-up", "", v.NextLook}, Fact{"look-ups", looks, nil}, Fact{"last look-up", v.LastLook, nil},
		Fact{"look-ups fail since", "", v.LooksFail})
}

// The facts with a special place on a page.
const (
	FactSettled = "settled"
	FactError   = "error"
)

// Call is one call made for a job.
type Call struct {
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Status  int       `json:"status"` // 0: no answer
	Verdict string    `json:"verdict"`
}

// Lookup reports whether it was a look-up.
func (c Call) Lookup() bool { return job.Call{Verdict: c.Verdict}.Lookup() }

// Text returns "TIME  HTTP 200  done  0.123 s".
func (c Call) Text() string {
	answer := "no answer"
	if c.Status > 0 {
		answer = fmt.Sprintf("HTTP %d", c.Status)
	}
	return fmt.Sprintf("%s  %s  %s  %.3f s", c.At.Format(time.RFC3339Nano), answer, c.Verdict, c.Seconds)
}

// Job returns everything known of a job, and why it isn't in flight now.
func (f Found) Job(ctx context.Context) (Job, error) {
	v := f.view()
	wait, err := dispatch.WaitOf(ctx, f.redis, f.Gateway.Gateway, f.Record)
	if err != nil {
		return Job{}, err
	}
	v.Why = wait.Why
	if v.ETA = seconds(wait.In); v.ETA != nil {
		v.ETAMost = wait.Most
	}
	v.Settled, err = f.Store.Settlements()(ctx, f.Record)
	return v, err
}

// view returns what the record alone says.
func (f Found) view() Job {
	r := f.Record
	v := Job{ID: r.Job.ID, Gateway: f.Name, State: r.State, Batch: r.Job.Batch, Route: r.Job.Route, Priority: r.Job.Priority, Lane: r.Job.Lane, Cost: r.Job.Cost, Attempts: r.Attempts, Spent: r.Spent,
		Replays: r.Replays, Key: f.key(r.KeyGeneration), Reason: r.Reason, Error: r.Error, Status: r.Status, Reference: r.Reference,
		AcceptedAt: when(r.Accepted), At: when(r.Job.At), Expires: when(r.Job.Expires), DueAt: when(r.Due),
		ParkedAt: when(r.ParkedAt), FinishedAt: when(r.Finished), ErasedAt: when(r.Erased), PayloadDeleted: r.PayloadGone() != "", Amount: f.Money(r).Amount, Calls: callsOf(r)}
	v.Lookups, v.LastLook, v.HasIt, v.InDoubt = r.Looks, r.LastSeen, r.Taken, r.InDoubt()
	v.NextLook, v.LooksFail, v.CallEnded = when(r.NextLook), when(r.LookFailing), when(r.CallEnded)
	return v
}

// key returns the idempotency key of a generation without the gateway's prefix; empty if the gateway has no
// keys.
func (f Found) key(generation int64) string {
	if !f.Request.Key.Any() {
		return ""
	}
	return job.IdempotencyKey(f.Record.Job.ID, generation)
}

// Money returns the money of a job.
func (g *Gateway) Money(r job.Record) (t job.Totals) {
	t.AddRecord(r, g.Amount.Field, g.Amount.Currency)
	return t
}

// callsOf returns the calls made for a job; it is never nil.
func callsOf(r job.Record) []Call {
	calls := make([]Call, len(r.History))
	for i, c := range r.History {
		calls[i] = Call{At: c.At, Seconds: c.Took.Seconds(), Status: c.Status, Verdict: c.Verdict}
	}
	return calls
}

// when converts a time for views; nil if it is zero.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// PayloadJSON returns a payload as it is, or as a JSON string if it is not JSON: an unreadable job may contain
// anything.
func PayloadJSON(payload []byte) json.RawMessage {
	if json.Valid(payload) {
		return payload
	}
	text, _ := json.Marshal(string(payload))
	return text
}

// Parked is a line of "dlq list -o json".
type Parked struct {
	ID       string          `json:"id"`
	Gateway  string          `json:"gateway"`
	Reason   job.Reason      `json:"reason"`
	Error    string          `json:"error"`
	Attempts int             `json:"attempts"`
	ParkedAt time.Time       `json:"parked_at"`
	Batch    string          `json:"batch"`
	Route    string          `json:"route,omitempty"`
	Priority string          `json:"priority,omitempty"`
	Lane     string          `json:"lane,omitempty"`
	Replays  int             `json:"replays"`
	InVain   bool            `json:"in_vain,omitempty"` // replayed so often without success that another replay may fail, too
	Cursor   string          `json:"cursor,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	// InDoubt says that it may have been charged; "dlq show" always shows it.
	InDoubt bool `json:"may_have_charged,omitempty"`
}

// ParkedOf returns a parked job as shown in lists.
func ParkedOf(r job.Record, payload bool) Parked {
	v := Parked{ID: r.Job.ID, Gateway: r.Job.Gateway, Reason: r.Reason, Error: r.Error, Attempts: r.Attempts,
		ParkedAt: r.ParkedAt, Batch: r.Job.Batch, Route: r.Job.Route, Priority: r.Job.Priority, Lane: r.Job.Lane, Replays: r.Replays, InVain: r.Replays >= deadletter.OftenReplayed,
		InDoubt: r.InDoubt()}
	if payload {
		v.Payload = PayloadJSON(r.Job.Payload)
	}
	return v
}

// ParkedWhole is "dlq show -o json".
type ParkedWhole struct {
	Parked
	Spent      int         `json:"attempts_spent"`
	Cost       int64       `json:"cost"`
	Key        string      `json:"idempotency_key"`
	Status     int         `json:"status,omitempty"`
	AcceptedAt *time.Time  `json:"accepted_at"`
	At         *time.Time  `json:"at,omitempty"`
	Expires    *time.Time  `json:"expires,omitempty"`
	FirstCall  *time.Time  `json:"first_call_at,omitempty"`
	Edited     *time.Time  `json:"edited_at,omitempty"`
	Unsure     bool        `json:"may_have_charged"`
	Amount     job.Amounts `json:"amount"`
	Replay     string      `json:"replay"` // what a replay would do
	Lookups    int         `json:"lookups,omitempty"`
	LastLook   string      `json:"last_lookup,omitempty"`
	Calls      []Call      `json:"calls"`
}

// ParkedWhole returns everything known of a parked job, and what a replay would do.
func (f Found) ParkedWhole(ctx context.Context, payload bool) (ParkedWhole, error) {
	rules, err := dispatch.Rules(ctx, f.redis, f.Gateway.Gateway)
	if err != nil {
		return ParkedWhole{}, err
	}
	r := f.Record
	v := ParkedWhole{Parked: ParkedOf(r, payload), Spent: r.Spent, Cost: r.Job.Cost, Key: f.key(r.KeyGeneration), Status: r.Status,
		AcceptedAt: when(r.Accepted), At: when(r.Job.At), Expires: when(r.Job.Expires), FirstCall: when(r.FirstCall), Edited: when(r.Edited),
		Unsure: r.InDoubt(), Amount: f.Money(r).Amount, Lookups: r.Looks, LastLook: r.LastSeen, Calls: callsOf(r)}
	change, why := rules.Key(r)
	switch {
	case why != "":
		v.Replay = "held back: " + why
	case change == job.NextKey && rules.Keys:
		v.Replay = "goes in with the idempotency key " + f.key(r.KeyGeneration+1)
	default:
		v.Replay = "goes in as it is"
	}
	return v, nil
}

// Given returns the facts given by its producer.
func (v ParkedWhole) Given() []Fact { return given(v.Route, v.Lane, v.Priority) }

// Facts returns the facts since then, without its calls.
func (v ParkedWhole) Facts() []Fact {
	return known(Fact{"accepted", "", v.AcceptedAt}, Fact{"at", "", v.At}, Fact{"expires", "", v.Expires}, Fact{"first call", "", v.FirstCall},
		Fact{"payload replaced", "", v.Edited}, Fact{"last look-up", v.LastLook, nil})
}

// Parked returns the single parked job with this id, with its payload.
func (d *Desk) Parked(ctx context.Context, id string) (Found, error) {
	s := Selection{Desk: d, Filter: deadletter.Filter{IDs: []string{id}}}
	var all []Found
	if _, err := s.Each(ctx, func(g *Gateway, r job.Record) error {
		all = append(all, Found{g, r})
		return nil
	}); err != nil {
		return Found{}, err
	}
	return only(all, "job %q is parked at several gateways: %s")
}
