// Package admission is step 2 of 8: the only way into the queue. It checks each job, looks up whether the job
// is known and whether there is room, and answers what became of it. A whole chunk of jobs is admitted in one
// Redis script.
package admission

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
)

// Mode says what happens to a job for which there is no room.
type Mode string

// The modes.
const (
	Park Mode = "park" // park it as rejected; it is admitted by itself once there is room
	Wait Mode = "wait" // wait for room
	Fail Mode = "fail" // leave it out and report it
)

// Limits on a chunk. One script call admits it, and Redis serves nobody else meanwhile. Callers keep within
// them.
const (
	ChunkJobs  = 500
	ChunkBytes = 2 << 20 // payload bytes as read
)

// Modes returns every mode.
func Modes() []Mode { return []Mode{Park, Wait, Fail} }

// Books admits a chunk of jobs in one step.
type Books interface {
	// Offer prepares jobs without using Redis. It does not change them.
	Offer(jobs []job.Newcomer) (job.Offer, error)
}

// Gateway is what admission needs to know of one gateway.
type Gateway struct {
	Books   Books
	MaxCost int64 // a higher cost can never be granted
	// Key returns why the gateway would not accept the idempotency key of a job with that id, or nil. A nil Key
	// accepts every id.
	Key func(id string) error
	// Route returns the route of a job that names this one; empty means that it names none. Nil: the gateway
	// has no routes.
	Route func(name string) (string, error)
	// Class returns the class of a job that names this one, as it is stored in the record; empty means that it
	// names none. Nil: the gateway has no classes.
	Class func(name string) (string, error)
	// Lane returns the lane of a job, or why it can't have one. Nil: the gateway has no lanes.
	Lane func(j job.Job) (string, error)
	// Money returns a payload's money as it is stored in the record. Nil: Books reads the money itself, if
	// there is any.
	Money func(payload []byte) string
	// Keys returns the Redis keys that admitting a job reads, for error messages. Nil: messages name no keys.
	Keys func(j job.Job) []string
}

// Config configures a Door.
type Config struct {
	Gateways map[string]Gateway
	// Digest returns a value that is equal for equal payloads, however they are written.
	Digest func(json.RawMessage) string
	// Away reports whether an error means that Redis is unreachable for now.
	Away func(error) bool
	// Patience is how long to retry while Redis is unreachable. Zero means no retries.
	Patience time.Duration
	Clock    clock.Clock
}

// Door admits jobs into the queues. It is safe for concurrent use.
type Door struct {
	cfg       Config
	sequences sequences
}

// New returns a door.
func New(cfg Config) *Door { return &Door{cfg: cfg, sequences: sequences{door: rand.Text()}} }

// Answer is what became of one job.
type Answer struct {
	Outcome job.Admittance
	// Err says what is wrong with a Conflict, or with a job that can't be admitted at all. In the second case
	// Outcome is empty.
	Err error
	// RetryAfter is, for Full, when there may be room. Zero means unknown, negative means never.
	RetryAfter time.Duration
	// Room is the room left after this job. Nil if Redis was not asked.
	Room *job.Room
	// KnownAt is, for a Duplicate or a Conflict, the other gateway that knows the job. Empty means the job's
	// own gateway.
	KnownAt string
}

const (
	pollParked = 250 * time.Millisecond // poll interval while waiting behind parked jobs
	maxWait    = time.Second            // longest pause between two tries for room: other jobs may have given some back
	awayFirst  = 100 * time.Millisecond // first pause while Redis is unreachable; doubles up to awayMax
	awayMax    = 2 * time.Second
)

// Admit admits jobs of one gateway, in order, and returns one answer each. The error is non-nil only if Redis
// stayed unreachable (code unavailable) or ctx ended. Jobs without an answer (empty Outcome and Err) may then
// have been admitted or not; submitting them again is safe.
func (d *Door) Admit(ctx context.Context, gateway string, jobs []job.Job, mode Mode) ([]Answer, error) {
	return d.prepare(gateway, jobs).admit(ctx, mode)
}

// prepared holds checked jobs of one gateway, to be offered once.
type prepared struct {
	door    *Door
	to      Gateway
	answers []Answer
	left    entries
	offer   job.Offer // for the jobs that are left
	err     error
}

// prepare does the part of Admit that needs no Redis.
func (d *Door) prepare(gateway string, jobs []job.Job) *prepared {
	g, ok := d.cfg.Gateways[gateway]
	if !ok {
		return &prepared{err: &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no gateway %q in the configuration", gateway)}}
	}
	p := &prepared{door: d, to: g, answers: make([]Answer, len(jobs))}
	p.left = d.check(g, jobs, p.answers)
	p.ready()
	return p
}

// ready prepares the offer of the jobs that are left.
func (p *prepared) ready() {
	if len(p.left.jobs) == 0 {
		return
	}
	if p.offer, p.err = p.to.Books.Offer(p.left.jobs); p.err != nil {
		p.err = fmt.Errorf("take jobs in: %w", p.err)
	}
}

// admit offers the jobs, as Door.Admit does.
func (p *prepared) admit(ctx context.Context, mode Mode) ([]Answer, error) {
	if p.door == nil {
		return nil, p.err
	}
	d := p.door
	own := d.sequences.enter()
	defer d.sequences.leave(own)
	for len(p.left.jobs) > 0 {
		if p.err != nil {
			return p.answers, p.err
		}
		got, room, err := d.put(ctx, p.offer, own.ticket(), mode)
		if err != nil {
			return p.answers, err
		}
		p.note(got, room)
		still := p.left.still(p.answers, mode)
		if len(still.jobs) == 0 {
			return p.answers, nil
		}
		if err := d.sleep(ctx, roomIn(room.Retry)); err != nil {
			return forget(still, p.answers), err
		}
		p.left = still
		p.ready()
	}
	return p.answers, nil
}

// entries holds jobs and their indices in the answers.
type entries struct {
	at   []int
	jobs []job.Newcomer
}

func (e *entries) add(at int, n job.Newcomer) {
	e.at, e.jobs = append(e.at, at), append(e.jobs, n)
}

func (d *Door) check(g Gateway, jobs []job.Job, answers []Answer) entries {
	left := entries{make([]int, 0, len(jobs)), make([]job.Newcomer, 0, len(jobs))}
	for i, j := range jobs {
		err := CheckJob(j, g.MaxCost)
		if err == nil && g.Key != nil {
			err = g.Key(j.ID)
		}
		if err == nil && g.Route != nil {
			j.Route, err = g.Route(j.Route)
		}
		if err == nil && g.Lane != nil {
			j.Lane, err = g.Lane(j)
		}
		if err == nil && g.Class != nil {
			j.Priority, err = g.Class(j.Priority)
		}
		if err != nil {
			answers[i].Err = err
			continue
		}
		n := job.Newcomer{Job: j, Digest: d.cfg.Digest(j.Payload)}
		if g.Money != nil {
			n.Money = g.Money(j.Payload)
		}
		left.add(i, n)
	}
	return left
}

// CheckJob returns why a job can't be admitted, or nil.
func CheckJob(j job.Job, maxCost int64) error {
	if err := job.CheckID(j.ID); err != nil {
		return err
	}
	if j.Cost < 0 {
		return fmt.Errorf("cost %d: a job costs at least 1", j.Cost)
	}
	if j.Cost > maxCost {
		return fmt.Errorf("cost %d is more than a limit can ever grant (%d): it would wait for ever", j.Cost, maxCost)
	}
	return nil
}

// put submits an offer and retries while Redis is unreachable. Every try uses the same ticket, so that jobs
// admitted by a try whose reply was lost are not answered as duplicates.
func (d *Door) put(ctx context.Context, offer job.Offer, ticket job.Ticket, mode Mode) ([]job.Admittance, job.Room, error) {
	start, wait := d.cfg.Clock.Now(), awayFirst
	for {
		got, room, err := offer(ctx, ticket, string(mode))
		if err == nil {
			return got, room, nil
		}
		if ctx.Err() != nil {
			return nil, job.Room{}, ctx.Err()
		}
		if !d.cfg.Away(err) {
			return nil, job.Room{}, fmt.Errorf("take jobs in: %w", err)
		}
		if d.cfg.Clock.Now().Sub(start)+wait > d.cfg.Patience {
			return nil, job.Room{}, &job.Error{Code: job.CodeUnavailable, Message: "Redis can't take jobs in now", Err: err,
				Hint: "running the same again is safe: jobs that were accepted are known and will not be doubled"}
		}
		if err := d.sleep(ctx, wait); err != nil {
			return nil, job.Room{}, err
		}
		wait = min(2*wait, awayMax)
	}
}

// conflict returns the error for an id that exists with another payload, at another gateway if at is not empty.
func conflict(at string) error {
	if at != "" {
		return fmt.Errorf("this id is known at gateway %s with another payload: the first one stands; give this job an id of its own", at)
	}
	return errOtherPayload
}

var errOtherPayload = errors.New("this id is known with another payload: the first one stands; \"enqueue --replace\" corrects a parked job, and another payment needs an id of its own")

var errKeyTaken = errors.New("this id is an idempotency key that a replay of another job has used: the gateway would take this payment for that one; give this job another id")

var errElsewhere = errors.New("this id is known with another route or lane of the gateway: the first one stands; give this job an id of its own")

// damaged returns the error for a job one of whose keys may have been overwritten by another program. It names
// the keys.
func (g Gateway) damaged(j job.Job) error {
	var named string
	if g.Keys != nil {
		named = " (one of " + strings.Join(g.Keys(j), ", ") + ")"
	}
	return fmt.Errorf("not accepted: a key of this job in Redis%s has another type than Spillway writes: find it with redis-cli TYPE, look up at the gateway "+
		"whether the id was paid before, move the key away with RENAME, and send the job again", named)
}

// note records the answers for the jobs that were left.
func (p *prepared) note(got []job.Admittance, room job.Room) {
	for i, at := range p.left.at {
		a := Answer{Outcome: got[i], Room: &room, KnownAt: room.Elsewhere[i]}
		switch got[i] {
		case job.Conflict:
			a.Err = conflict(a.KnownAt)
		case job.Elsewhere:
			a.Outcome, a.Err = job.Conflict, errElsewhere
		case job.KeyTaken:
			a.Outcome, a.Err = job.Conflict, errKeyTaken
		case job.Damaged:
			a.Err = p.to.damaged(p.left.jobs[i].Job)
		case job.Full:
			a.RetryAfter = room.Retry
		}
		p.answers[at] = a
	}
}

// still returns the jobs to be offered again: those that another gateway was admitting and, if the mode waits
// for room, those that found none.
func (e entries) still(answers []Answer, mode Mode) (still entries) {
	for i, at := range e.at {
		if o := answers[at].Outcome; o == job.Claimed || o == job.Full && mode == Wait {
			still.add(at, e.jobs[i])
		}
	}
	return still
}

// forget clears the answers of jobs that were never admitted.
func forget(left entries, answers []Answer) []Answer {
	for _, at := range left.at {
		answers[at] = Answer{}
	}
	return answers
}

func roomIn(retry time.Duration) time.Duration {
	if retry <= 0 {
		return pollParked
	}
	return min(retry, maxWait)
}

func (d *Door) sleep(ctx context.Context, wait time.Duration) error {
	select {
	case <-d.cfg.Clock.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
