package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// RequestState is how a request stands.
type RequestState string

// The states.
const (
	RequestAsked    RequestState = "asked"
	RequestApproved RequestState = "approved" // it is being done
	RequestRejected RequestState = "rejected"
	RequestDone     RequestState = "done"
)

const (
	requestLife = 24 * time.Hour   // how long a request may be approved
	requestMost = 100              // requests that a gateway may have open at once
	carryLease  = 30 * time.Second // how long what was approved is left to who does it, from his last word on
)

// CarryAgain is how often whoever does what was approved says so.
const CarryAgain = carryLease / 3

// Request is an act that a second person has to approve.
type Request struct {
	ID   string
	What []byte // what is to be done, as the desk has it
	// Who asked for it, and Why. Person is whose token that was; empty: nobody has said so. Via is how it is known that it was he, as in the trail.
	Who, Person, Via, Why string
	Asked, Until          time.Time // until then it may be approved
	State                 RequestState
	// By approved or rejected it when it was Decided; zero where nobody did.
	By, ByVia, ByWhy string
	Decided          time.Time
}

// Ask writes a request down; its times and its state are not looked at. An error with the code failed says that too many are open.
func (b *Books) Ask(ctx context.Context, r Request) error {
	n, err := record.RequestAsk.Act(ctx, b.c, b.requestKeys(r.ID), b.cfg.NowMicros.Now(), r.ID, requestLife.Microseconds(), requestMost,
		"what", r.What, "who", r.Who, "person", r.Person, "via", r.Via, "why", r.Why).Int()
	if err == nil && n == 0 {
		err = &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("%d requests at %s await an approval, and no more are taken", requestMost, b.cfg.Gateway),
			Hint: `have them approved or rejected first: "dispatcher approval list"`}
	}
	return err
}

func (b *Books) requestKeys(id string) []string {
	return []string{b.keys.Request(id), b.keys.Requests()}
}

// Requests returns what awaits an approval, or was approved and is not over, that which was asked first before the others.
func (b *Books) Requests(ctx context.Context) ([]Request, error) {
	now, err := b.Look(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := b.c.ZRangeByScore(ctx, b.keys.Requests(), &redis.ZRangeBy{Min: "(" + strconv.FormatInt(record.Micros(now.Now), 10), Max: "+inf"}).Result()
	if err != nil || len(ids) == 0 {
		return nil, b.unreadRequests(err)
	}
	found := make([]*redis.MapStringStringCmd, len(ids))
	if _, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			found[i] = p.HGetAll(ctx, b.keys.Request(id))
		}
		return nil
	}); err != nil {
		return nil, b.unreadRequests(err)
	}
	var all []Request
	for i, id := range ids {
		if h := found[i].Val(); len(h) > 0 {
			all = append(all, requestOf(id, h))
		}
	}
	slices.SortFunc(all, func(x, y Request) int { return cmp.Or(x.Asked.Compare(y.Asked), cmp.Compare(x.ID, y.ID)) })
	return all, nil
}

func (b *Books) unreadRequests(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read what awaits an approval at %s: %w", b.cfg.Gateway, err)
}

// Request returns one of them, also when it is over; ok is false if there is none.
func (b *Books) Request(ctx context.Context, id string) (r Request, ok bool, err error) {
	h, err := b.c.HGetAll(ctx, b.keys.Request(id)).Result()
	if err != nil || len(h) == 0 {
		return r, false, b.unreadRequests(err)
	}
	return requestOf(id, h), true, nil
}

func requestOf(id string, h map[string]string) Request {
	moment := func(field string) time.Time {
		if us, err := strconv.ParseInt(h[field], 10, 64); err == nil {
			return record.Moment(us)
		}
		return time.Time{}
	}
	return Request{ID: id, What: []byte(h["what"]), Who: h["who"], Person: h["person"], Via: h["via"], Why: h["why"], Asked: moment("asked"), Until: moment("until"),
		State: RequestState(h["state"]), By: h["decider"], ByVia: h["decider_via"], ByWhy: h["decider_why"], Decided: moment("decided")}
}

// Decision is what a second person says of a request.
type Decision struct {
	Approver
	Via     string // how it is known who he is, as in the trail
	Approve bool   // or reject it
	// Owner does what is approved.
	Owner string
}

// Decide approves or rejects a request. What is approved is the owner's to do (Carry). Where an error comes back that says why not, nothing was done; it has the code failed or not_found.
func (b *Books) Decide(ctx context.Context, id string, d Decision) error {
	what := "reject"
	if d.Approve {
		what = "approve"
	}
	n, err := record.RequestDecide.Act(ctx, b.c, b.requestKeys(id), b.cfg.NowMicros.Now(), id, what, d.Who, d.Person, d.Via, d.Why, d.Owner, carryLease.Microseconds()).Int()
	if err != nil {
		return err
	}
	return b.notDecided(ctx, id, d.Who, n)
}

// notDecided says why request_decide.lua did nothing; nil if it did.
func (b *Books) notDecided(ctx context.Context, id, who string, answer int) error {
	no := func(code job.Code, hint, format string, args ...any) error {
		return &job.Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	switch answer {
	case 0:
		return NoRequest(id)
	case 1:
		return nil
	case 2:
		r, _, err := b.Request(ctx, id)
		if err != nil {
			return err
		}
		did := "approved"
		if r.State == RequestRejected {
			did = "rejected"
		}
		return no(job.CodeFailed, "", "request %s awaits no approval: %s has %s it", id, r.By, did)
	case 3:
		return no(job.CodeFailed, "have it asked for again", "request %s was not decided within %s, and is void", id, job.FormatDuration(requestLife))
	case 4:
		return no(job.CodeFailed, "somebody else has to look at it", "%s has asked for request %s, and nobody approves what he asks for", who, id)
	}
	return redisdb.BadReply("request_decide.lua", answer)
}

// NoRequest is the error that there is no such request; it has the code not_found.
func NoRequest(id string) error {
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("there is no request %q", id), Hint: `see what awaits an approval with "dispatcher approval list"`}
}

// Carry says that the owner does what was approved, or takes it over from one who has not said so in time. It has to say so every CarryAgain. mine is false if it is over, or another one's to do.
func (b *Books) Carry(ctx context.Context, id, owner string) (mine bool, err error) {
	return b.carry(ctx, id, owner, carryLease)
}

// Carried says that what was approved is over.
func (b *Books) Carried(ctx context.Context, id, owner string) error {
	_, err := b.carry(ctx, id, owner, 0)
	return err
}

func (b *Books) carry(ctx context.Context, id, owner string, lease time.Duration) (bool, error) {
	return record.RequestCarry.Run(ctx, b.c, b.requestKeys(id), b.cfg.NowMicros.Now(), id, owner, lease.Microseconds()).Bool()
}
