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

// RequestState is the state of a request.
type RequestState string

// The states.
const (
	RequestAsked    RequestState = "asked"
	RequestApproved RequestState = "approved" // approved and being carried out
	RequestRejected RequestState = "rejected"
	RequestDone     RequestState = "done"
)

const (
	requestLife = 24 * time.Hour   // how long a request may be approved
	requestMost = 100              // most open requests of a gateway
	carryLease  = 30 * time.Second // how long an owner may be silent before another may carry the request out
)

// CarryAgain is how often the owner of an approved request must call Carry.
const CarryAgain = carryLease / 3

// Request is an action that needs a second person's approval.
type Request struct {
	ID   string
	What []byte // the action, in the desk's encoding
	// Who requested it, and Why. Person is the token's owner; empty if not configured. Via is how the user was
	// identified, as in the audit trail.
	Who, Person, Via, Why string
	Asked, Until          time.Time // it may be approved until Until
	State                 RequestState
	// By is who approved or rejected it at Decided, which is zero while it is undecided.
	By, ByVia, ByWhy string
	Decided          time.Time
}

// Ask stores a request; its times and state are ignored. An error with code failed says that too many are open.
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

// Requests returns the requests that await approval, or are approved and not completed, oldest first.
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

// Request returns one request, even a completed one. ok is false if there is none.
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

// Decision is a second person's decision on a request.
type Decision struct {
	Approver
	Via     string // how the user was identified, as in the audit trail
	Approve bool   // or reject
	// Owner carries out what is approved.
	Owner string
}

// Decide approves or rejects a request. The owner carries out what is approved (see Carry). If Decide returns
// an error with code failed or not_found, nothing was changed.
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

// notDecided returns why request_decide.lua changed nothing, or nil if it did.
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
		return no(job.CodeFailed, "ask another approver", "%s made request %s, and nobody may approve their own request", who, id)
	}
	return redisdb.BadReply("request_decide.lua", answer)
}

// NoRequest returns the error for an unknown request, with code not_found.
func NoRequest(id string) error {
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("there is no request %q", id), Hint: `see what awaits an approval with "dispatcher approval list"`}
}

// Carry extends the owner's lease on an approved request, or takes it over if another owner's lease has
// expired. It must be called every CarryAgain. mine is false if the request is completed or belongs to another
// owner.
func (b *Books) Carry(ctx context.Context, id, owner string) (mine bool, err error) {
	return b.carry(ctx, id, owner, carryLease)
}

// Carried completes an approved request.
func (b *Books) Carried(ctx context.Context, id, owner string) error {
	_, err := b.carry(ctx, id, owner, 0)
	return err
}

func (b *Books) carry(ctx context.Context, id, owner string, lease time.Duration) (bool, error) {
	return record.RequestCarry.Run(ctx, b.c, b.requestKeys(id), b.cfg.NowMicros.Now(), id, owner, lease.Microseconds()).Bool()
}
