package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strconv"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Replaced is the result of one replacement.
type Replaced struct {
	// Return is the job to be admitted again; set only if Same is false and Err is nil.
	Return job.Return
	// Same means that the job has this payload already: nothing was changed, and it is not replayed.
	Same bool
	// Awaits means that it has its new payload, and its batch awaits approval: it is parked for that, and not
	// replayed.
	Awaits bool
	// Before and After are its old and new payload.
	Before, After Version
	// Err says why the job can't have another payload; it never contains the payload.
	Err error
}

var (
	errNotKnown    = errors.New("no such job is known: enqueue it without --replace")
	errMayCharged  = errors.New(`an earlier call may have charged: look it up, and settle it with "dlq resolve", or replay it as it is`)
	errNotAJob     = errors.New("it is parked as unreadable: it was never a job; enqueue one under an id of its own")
	errPastExpiry  = errors.New("its time to expire has passed: enqueue it under another id")
	errLosesAmount = errors.New("its amount can be read now, and can't be in the new payload: mend it, or say --without-amount")
	errMoved       = errors.New("someone else has just changed it: look at it again")
	errOnlyPayload = errors.New("a replacement changes the payload alone: leave cost, at, expires, batch, route and priority as they are")
)

// Version identifies a payload where it must not be shown.
type Version struct {
	Digest string // as stored in the record; with encryption, it depends on a key
	Money  string // as job.MoneyField returns it; empty if the gateway's jobs have none
}

// Replace gives parked jobs new payloads, with the next generation of their idempotency keys, and returns them
// ready to be admitted again, unless their batch then awaits approval. A job that was replaced before, and not
// admitted since, is ready, too. Each line's cost, times and batch must be the job's, or zero. digests are
// those of the payloads, in plain text. Keep chunks to a few hundred jobs. After an error, some of the jobs
// returned without an error of their own may have been replaced.
func (s *Store) Replace(ctx context.Context, r Rules, jobs []job.Job, digests []string) ([]Replaced, error) {
	p, err := s.plan(ctx, r, jobs, digests)
	if err != nil || len(p.places) == 0 {
		return p.all, err
	}
	keys, args := make([]string, len(p.places)), []any{s.NowMicros.Now(), r.Approvals}
	for n, i := range p.places {
		stored, err := s.box.Seal(jobs[i].ID, jobs[i].Payload)
		if err != nil {
			return nil, err
		}
		to := p.all[i]
		keys[n] = s.keys.Job(jobs[i].ID)
		args = append(args, jobs[i].ID, strconv.FormatInt(to.Return.Generation, 10), string(to.Return.Reason), to.Before.Digest, stored, to.After.Digest, to.After.Money,
			redisdb.Flag(p.unsure[i]))
	}
	done, err := record.Replace.For(s.Feed).Act(ctx, s.c, append(keys, s.keys.Counters()), args...).Int64Slice()
	if err == nil && len(done) != len(keys) {
		return p.all, redisdb.BadReply("replace.lua", done)
	}
	for n, answer := range done {
		one := &p.all[p.places[n]]
		if one.Awaits = answer == replacedAwaits; answer == 0 {
			one.Err = errMoved
		}
	}
	return p.all, err
}

// replacedAwaits is replace.lua's answer for a job that now awaits approval.
const replacedAwaits = 2

// LookReplace returns what Replace would do, and changes nothing.
func (s *Store) LookReplace(ctx context.Context, r Rules, jobs []job.Job, digests []string) ([]Replaced, error) {
	p, err := s.plan(ctx, r, jobs, digests)
	return p.all, err
}

// replacement is a planned replacement.
type replacement struct {
	all    []Replaced
	places []int // indices of the jobs to change
	unsure map[int]bool
}

func (s *Store) plan(ctx context.Context, r Rules, jobs []job.Job, digests []string) (replacement, error) {
	p := replacement{all: make([]Replaced, len(jobs)), unsure: map[int]bool{}}
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	found, err := s.read(ctx, ids, append([]string{"digest"}, record.Listed()...))
	if err != nil {
		return p, err
	}
	seen := map[string]bool{}
	for i, h := range found {
		rec, one := record.Parse(s.gateway, ids[i], h), &p.all[i]
		one.Return = job.Return{ID: ids[i], Generation: rec.Generation, Reason: rec.Reason, Key: job.KeepKey}
		one.Before = Version{h["digest"], rec.Money}
		same := s.box.SameDigest(ids[i], digests[i], h["digest"])
		if one.Same, one.Err = r.replaceable(rec, jobs[i], same); same || one.Err != nil {
			one.After, one.Awaits = one.Before, rec.Reason == job.AwaitsApproval
			continue
		}
		one.After = Version{s.box.Digest(ids[i], digests[i]), r.money(jobs[i].Payload)}
		switch {
		case seen[ids[i]]:
			one.Err = errMoved
		case r.losesAmount(rec, one.After):
			one.Err = errLosesAmount
		default:
			seen[ids[i]], p.unsure[i] = true, rec.Unsure
			p.places = append(p.places, i)
		}
	}
	return p, nil
}

// losesAmount reports whether a job's amount can be read now, but not after the replacement.
func (r Rules) losesAmount(rec job.Record, to Version) bool {
	_, was := job.Booked(rec.Money)
	_, is := job.Booked(to.Money)
	return was && !is && !r.LoseAmounts
}

// replaceable returns whether nothing needs to change, or why nothing may. same: the job already has this
// payload.
func (r Rules) replaceable(rec job.Record, to job.Job, same bool) (unchanged bool, err error) {
	switch {
	case rec.State == "":
		return false, errNotKnown
	case rec.State != job.Parked && same:
		return true, nil
	case rec.State != job.Parked:
		return false, fmt.Errorf("it is %s: only a parked job can have another payload", rec.State)
	case rec.Reason == job.Unreadable:
		return false, errNotAJob
	case !sameBut(rec.Job, to):
		return false, errOnlyPayload
	case same && !rec.Replaced():
		return true, nil
	case r.expired(rec):
		return false, errPastExpiry
	case mayHaveCharged(rec) && !saidNo(rec):
		return false, errMayCharged
	}
	return false, nil
}

// sameBut reports whether a line agrees with the job's record in everything but the payload.
func sameBut(is, line job.Job) bool {
	return (line.Cost == 0 || line.Cost == is.Cost) && (line.Batch == "" || line.Batch == is.Batch) && (line.Route == "" || line.Route == is.Route) && (line.Priority == "" || line.Priority == is.Priority) &&
		(line.Lane == "" || line.Lane == is.Lane) &&
		(line.At.IsZero() || line.At.Equal(is.At)) && (line.Expires.IsZero() || line.Expires.Equal(is.Expires))
}

// Exchange summarizes a replacement of payloads: ids, digests and sums, never a payload.
type Exchange struct {
	Amount   job.Amounts `json:"amount_before"`         // the jobs' money before
	NoAmount int64       `json:"without_amount_before"` // jobs whose amount could not be read before
	Changes  []Change    `json:"changes"`               // the first of them
	Digest   string      `json:"digest"`                // SHA-256 over a line for each: "ID BEFORE AFTER\n"

	sum hash.Hash
}

// Change is one job's payload before and after, by the digest stored in the record.
type Change struct {
	ID     string `json:"id"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// mostChanges is how many jobs an audit entry lists; the digest covers all.
const mostChanges = 100

// NewExchange returns an empty Exchange.
func NewExchange() *Exchange {
	return &Exchange{Changes: []Change{}, sum: sha256.New()}
}

// Add adds one job. money says that the gateway's jobs have money.
func (e *Exchange) Add(id string, before, after Version, money bool) {
	fmt.Fprintf(e.sum, "%s %s %s\n", id, before.Digest, after.Digest) // a hash never fails
	e.Digest = hex.EncodeToString(e.sum.Sum(nil))
	if len(e.Changes) < mostChanges {
		e.Changes = append(e.Changes, Change{id, before.Digest, after.Digest})
	}
	if !money {
		return
	}
	if m, ok := job.Booked(before.Money); ok {
		e.Amount.Add(m)
	} else {
		e.NoAmount++
	}
}
