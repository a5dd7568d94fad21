package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Status is the state of a gateway: one gateway of "status -o json".
type Status struct {
	Gateway    string           `json:"gateway"`
	Queued     int64            `json:"queued"`
	InFlight   int64            `json:"in_flight"`
	Scheduled  int64            `json:"scheduled"`
	Retrying   int64            `json:"retrying"`
	Pending    int64            `json:"pending"`                  // their outcome is being looked up
	NextLook   *time.Time       `json:"next_lookup_at,omitempty"` // of pending jobs
	Done       int64            `json:"done"`
	Parked     map[string]int64 `json:"parked"`                // by reason; reasons without jobs are left out
	ParkedMost int64            `json:"parked_most,omitempty"` // set when more than 80 % of it is used
	Bytes      int64            `json:"parked_bytes"`
	BytesMost  int64            `json:"parked_bytes_most,omitempty"` // set when more than 80 % of it is used
	Amount     job.Amounts      `json:"parked_amount"`
	NoAmount   int64            `json:"parked_without_amount"`
	Limits     []string         `json:"limits"`
	Admission  []string         `json:"admission"`
	Bottleneck string           `json:"bottleneck"`
	Rate1m     float64          `json:"rate_1m"` // calls a second
	HeldUntil  *time.Time       `json:"held_until"`
	HoldReason string           `json:"hold_reason,omitempty"`
	Paused     bool             `json:"paused"`
	PauseWhy   string           `json:"pause_why,omitempty"`
	ETASeconds *float64         `json:"eta_seconds"`
	ETAWhy     string           `json:"eta_why,omitempty"`
	ETALeast   bool             `json:"eta_at_least,omitempty"` // not all lanes were read: it may be later
	Overloaded []Overload       `json:"overloaded,omitempty"`   // the dispatchers that are too slow for their limits

	Routes  []RouteStatus `json:"routes,omitempty"`  // empty if the gateway has none
	Classes []ClassStatus `json:"classes,omitempty"` // highest first; empty if the gateway has none
	Lanes   *LanesStatus  `json:"lanes,omitempty"`   // nil if the gateway has neither lanes nor routes with limits

	Outcomes *Told `json:"outcomes,omitempty"` // the outcome feed; nil if there is none

	// Drawn is what is needed to draw it elsewhere; nil unless Show was called.
	Drawn *DrawnStatus `json:"drawn,omitempty"`

	// Glance is the snapshot from which the status was made.
	Glance dispatch.Glance `json:"-"`
	// Money is the money of parked jobs, by reason.
	Money map[job.Reason]job.Totals `json:"-"`
}

// Status returns the state of the gateway.
func (g *Gateway) Status(ctx context.Context) (Status, error) {
	v, err := dispatch.Look(ctx, g.redis, g.Gateway)
	if err != nil {
		return Status{}, err
	}
	money, err := g.Books.ParkedMoney(ctx)
	if err != nil {
		return Status{}, err
	}
	s := StatusOf(g.Name, v, money)
	var ofLanes []job.Limit
	if g.Lanes != nil {
		ofLanes = g.Lanes.Limits
	}
	s.parts(v.Parts, ofLanes)
	return s, nil
}

// StatusOf makes a status from a snapshot of a gateway and the money parked there, by reason.
func StatusOf(name string, v dispatch.Glance, money map[job.Reason]job.Totals) Status {
	s := Status{Gateway: name, Queued: v.Queued, InFlight: v.InFlight, Scheduled: v.Scheduled, Retrying: v.Retrying, Pending: v.Pending, NextLook: when(v.Asking.Next),
		Done: v.Done, Parked: map[string]int64{}, ParkedMost: v.ParkedNear.Jobs, Bytes: v.ParkedBytes, BytesMost: v.ParkedNear.Bytes, Limits: limitTexts(v.Limits),
		Admission: limitTexts(v.Admission), Bottleneck: v.Bottleneck(), Rate1m: tenth(v.Rate), Paused: v.Hold.Paused, PauseWhy: v.Hold.PauseWhy, Glance: v, Money: money}
	for _, p := range v.Slow {
		s.Overloaded = append(s.Overloaded, Overload{p.Process, p.Since.UTC(), p.Slots, []string{name}})
	}
	for r, n := range v.Parked {
		s.Parked[string(r)] = n
	}
	s.Outcomes = toldOf(v.Outcomes)
	for _, of := range money {
		s.Amount.AddAll(of.Amount)
		s.NoAmount += of.NoAmount
	}
	if v.Hold.HeldUntil.After(v.Now) {
		until := v.Hold.HeldUntil.UTC()
		s.HeldUntil, s.HoldReason = &until, v.Hold.Reason
	}
	if v.Hold.Probing {
		s.HoldReason = v.Hold.Reason
	}
	if s.ETASeconds = seconds(v.ETA); s.ETASeconds == nil {
		s.ETAWhy = v.Stopped
	}
	s.ETALeast = s.ETASeconds != nil && v.ETALeast
	return s
}

// Calls returns how many calls ended in each span of ledger.CallSpan up to the time of the status, oldest
// first.
func (g *Gateway) Calls(ctx context.Context, s Status) ([]int64, error) {
	calls, err := g.Books.Calls(ctx, s.Glance.Now)
	return calls, err
}

// Calls is Gateway.Calls for several gateways of the desk, in the order of their statuses.
func (d *Desk) Calls(ctx context.Context, some []Status) ([][]int64, error) {
	byName := make(map[string]*Gateway, len(d.Gateways))
	for _, g := range d.Gateways {
		byName[g.Name] = g
	}
	asked, at := &Desk{}, make(map[string]Status, len(some))
	for _, s := range some {
		asked.Gateways = append(asked.Gateways, byName[s.Gateway])
		at[s.Gateway] = s
	}
	calls, errs := abreast(ctx, asked, func(ctx context.Context, g *Gateway) ([]int64, error) { return g.Calls(ctx, at[g.Name]) })
	return calls, cmp.Or(errs...)
}

// seconds returns a duration to the tenth of a second; nil if it is negative, which means unknown.
func seconds(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	s := tenth(d.Seconds())
	return &s
}

func tenth(f float64) float64 { return math.Round(f*10) / 10 }

// ForRoom returns how many jobs wait for room at admission. Programs find them under parked.
func (s Status) ForRoom() int64 { return s.Glance.ForRoom() }

// Dead returns the dead letters with their money: parked jobs that do not only wait for room.
func (s Status) Dead() job.Totals {
	t := job.Totals{Jobs: s.Glance.AllParked() - s.ForRoom()}
	for _, r := range job.DeadReasons() {
		of := s.Money[r]
		of.Jobs = 0
		t.Add(of)
	}
	return t
}

// LimitsText returns the leak's limits, and admission's if they are the bottleneck.
func (s Status) LimitsText() string { return boundText(s.Limits, s.Admission, s.Bottleneck) }

// The words for what holds a gateway's calls back.
const (
	Stopped  = "stopped"      // its data in Redis, or its limits, are in doubt
	Paused   = "paused"       // by an operator
	Denied   = "denied"       // it denies access
	Open     = "circuit open" // it fails
	Held     = "held"         // for a limited time
	Unserved = "unserved"     // no dispatcher serves it
	Probing  = "probing"      // the hold is over, and a probe goes first
)

// Word returns the word for what holds the gateway's calls back; empty if nothing does.
func (s Status) Word() string {
	switch h := s.Glance.Hold; {
	case h.Barred:
		return Stopped
	case h.Paused:
		return Paused
	case h.Denied:
		return Denied
	case h.Circuit:
		return Open
	case h.Endless, s.HeldUntil != nil:
		return Held
	case s.Glance.Stopped != "":
		return Unserved
	case h.Probing:
		return Probing
	}
	return ""
}

// Why explains Word in a sentence.
func (s Status) Why() string {
	switch s.Word() {
	case Stopped:
		return "stopped: " + s.PauseWhy
	case Paused:
		return "paused: " + s.PauseWhy
	case Unserved:
		return s.Glance.Stopped
	}
	switch {
	case s.HeldUntil != nil:
		return fmt.Sprintf("until %s: %s", job.Moment(*s.HeldUntil), s.HoldReason)
	case s.HoldReason != "":
		return "over, one call goes ahead: " + s.HoldReason
	}
	return ""
}

// Status returns the state of each gateway.
func (d *Desk) Status(ctx context.Context) ([]Status, error) {
	all, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) (Status, error) { return g.Status(ctx) })
	return all, cmp.Or(errs...)
}

// StatusOfWell returns the state of each gateway that can be read, and the errors for gateways with damaged
// data.
func (d *Desk) StatusOfWell(ctx context.Context) (all []Status, damaged error) {
	found, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) (Status, error) { return g.Status(ctx) })
	damaged, err := d.damaged(errs)
	if err != nil {
		return nil, err
	}
	if damaged == nil { // none of thousands is left out
		return found, nil
	}
	for i, s := range found {
		if errs[i] == nil {
			all = append(all, s)
		}
	}
	return all, damaged
}

// AlsoDamaged joins the damage that two reads found, each key once.
func AlsoDamaged(one, other error) error {
	if one != nil && other != nil && strings.Contains(one.Error(), other.Error()) {
		return one
	}
	return errors.Join(one, other)
}

// damaged joins the errors about damaged data of single gateways. err is the first error of another kind.
func (d *Desk) damaged(errs []error) (damaged, err error) {
	for i, err := range errs {
		if _, is := errors.AsType[*redisdb.DamagedError](err); err != nil && !is {
			if redisdb.Away(err) { // unreachable for all of them
				return nil, err
			}
			return nil, fmt.Errorf("gateway %s: %w", d.Gateways[i].Name, err)
		}
		if err != nil {
			damaged = errors.Join(damaged, fmt.Errorf("gateway %s: %w", d.Gateways[i].Name, err))
		}
	}
	return damaged, nil
}

// StoppedBatch is a batch that has paused itself.
type StoppedBatch struct {
	Batch, Why string
	Since      time.Time
	// GoOn says, for a person, how to continue it.
	GoOn string
}

// StoppedBatches returns up to most batches that have paused themselves and about which nobody has decided
// since, and how many there are.
func (g *Gateway) StoppedBatches(ctx context.Context, most int) (list []StoppedBatch, all int, err error) {
	names, err := g.Books.Braked(ctx)
	for _, name := range names[:min(most, len(names))] {
		b, _, err := g.Books.Batch(ctx, name)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, StoppedBatch{name, b.Why, b.Paused, dispatch.GoOn(name, b)})
	}
	return list, len(names), err
}

// GoOn says how to continue a batch whose jobs are parked as paused.
func (g *Gateway) GoOn(ctx context.Context, batch string) (string, error) {
	b, _, err := g.Books.Batch(ctx, batch)
	return dispatch.GoOn(batch, b), err
}

// Watched is a gateway's status with the calls that ended in each span of ledger.CallSpan up to then, oldest
// first.
type Watched struct {
	Status
	Calls []int64 `json:"calls"`
}

// Watch returns the state of each gateway that can be read, with the calls of the last minutes, and the errors
// for gateways with damaged data.
func (d *Desk) Watch(ctx context.Context) (all []Watched, damaged, err error) {
	found, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) (w Watched, err error) {
		if w.Status, err = g.Status(ctx); err == nil {
			w.Calls, err = g.Calls(ctx, w.Status)
		}
		return w, err
	})
	if damaged, err = d.damaged(errs); err != nil {
		return nil, nil, err
	}
	for i, w := range found {
		if errs[i] == nil {
			all = append(all, w)
		}
	}
	return all, damaged, nil
}

// PausedBatch returns the paused batch of the job that has been parked longest; empty if there is none.
func (g *Gateway) PausedBatch(ctx context.Context) (string, error) {
	for r, err := range g.Store.List(ctx, deadletter.Filter{Reasons: []job.Reason{job.Paused}, Limit: 1, NoPayload: true}) {
		return r.Job.Batch, err
	}
	return "", nil
}

// Overload is a dispatcher that is too slow for its gateways' limits, although it calls as fast as it can.
type Overload struct {
	Process string    `json:"process"` // HOST.PID
	Since   time.Time `json:"since"`
	Slots   int64     `json:"slots_in_hand_at_most"` // it takes no more slots than it can use
	// Gateways are those for which it reported this.
	Gateways []string `json:"-"`
}

// overloads returns the dispatchers that are too slow, each once with all of its gateways, in the order of
// their first gateways.
func overloads(all []Status) (found []Overload) {
	for _, s := range all {
		for _, o := range s.Overloaded {
			i := slices.IndexFunc(found, func(f Overload) bool { return f.Process == o.Process })
			if i < 0 {
				i, found = len(found), append(found, Overload{Process: o.Process, Since: o.Since, Slots: o.Slots})
			}
			f := &found[i]
			f.Gateways = append(f.Gateways, s.Gateway)
			if o.Since.Before(f.Since) {
				f.Since = o.Since
			}
		}
	}
	return found
}

func (o Overload) need() Need {
	return Need{Kind: NeedOverload, Gateway: o.Gateways[0], What: fmt.Sprintf("%s: the dispatcher %s is too slow for the limits, and calls as fast as it can", firstNames(o.Gateways), o.Process),
		Since: when(o.Since), Do: "run dispatchers on more machines, or give that one and Redis more processors", Runbook: NeedOverload.Runbook()}
}
