// Package admission is step 2 of 8: the only door into the queue. It checks each job, asks whether it is known already
// and whether there is room, and says what became of it: all of that for a chunk of jobs in one step of the books.
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

// Mode says what happens to a job that admission has no room for.
type Mode string

// The modes.
const (
	Park Mode = "park" // park it as rejected; it goes in by itself when there is room
	Wait Mode = "wait" // wait for room
	Fail Mode = "fail" // leave it out and say so
)

// A chunk of jobs goes through the door in one step of Redis, which stalls everybody else for that long: callers keep it within these.
const (
	ChunkJobs  = 500
	ChunkBytes = 2 << 20 // of the jobs as they were read
)

// Modes returns every mode.
func Modes() []Mode { return []Mode{Park, Wait, Fail} }

// Books take a chunk of jobs in, in one step.
type Books interface {
	// Offer does what needs no Redis. jobs stay as they are.
	Offer(jobs []job.Newcomer) (job.Offer, error)
}

// Gateway is what the door knows of one gateway.
type Gateway struct {
	Books   Books
	MaxCost int64 // more than this can never be granted
	// Key returns why the gateway would not take the idempotency key of a job with that id, or nil. Nil: it takes all.
	Key func(id string) error
	// Route returns the route that a job takes which names this one, or none (empty), or why it can't. Nil: the gateway has no routes.
	Route func(name string) (string, error)
	// Class returns the class of a job that names this one, or none (empty), as its record has it, or why it has none. Nil: the gateway has no classes.
	Class func(name string) (string, error)
	// Lane returns the lane of a job, or why it can't have it. Nil: the gateway has no lanes.
	Lane func(j job.Job) (string, error)
	// Money reads a payload's money as its record has it. Nil: the books read it themselves, if there is any.
	Money func(payload []byte) string
	// Keys are the keys of Redis that are read for a job on its way in, for messages. Nil: they are not named.
	Keys func(j job.Job) []string
}

// Config says which gateways the door leads to.
type Config struct {
	Gateways map[string]Gateway
	// Digest tells payloads apart: equal for the same payload, however it is written.
	Digest func(json.RawMessage) string
	// Away says whether an error means that Redis can't answer now and may later.
	Away func(error) bool
	// Patience is how long to go on trying while Redis is away; zero means not at all.
	Patience time.Duration
	Clock    clock.Clock
}

// Door is the way into the queues. Safe for concurrent use.
type Door struct {
	cfg   Config
	lanes lanes
}

// New returns a door.
func New(cfg Config) *Door { return &Door{cfg: cfg, lanes: lanes{door: rand.Text()}} }

// Answer says what became of one job.
type Answer struct {
	Outcome job.Admittance
	// Err says what is wrong with a Conflict or with a job that can't be taken at all (Outcome is empty then).
	Err error
	// RetryAfter is, for Full, when there may be room; zero if nobody knows, negative if never.
	RetryAfter time.Duration
	// Room is what the offer of this job left. Nil where the books were not asked.
	Room *job.Room
	// KnownAt is, for a Duplicate or a Conflict, the other gateway that knows the job. Empty: its own does.
	KnownAt string
}

const (
	pollParked = 250 * time.Millisecond // while waiting behind parked jobs
	maxWait    = time.Second            // between two tries for room: others may have given some back
	awayFirst  = 100 * time.Millisecond // first wait while Redis is away; doubles up to awayMax
	awayMax    = 2 * time.Second
)

// Admit takes jobs of one gateway in, in order, one answer each. The error is not nil only if Redis stayed away
// (coded unavailable) or ctx ended; jobs without an answer (empty Outcome and Err) have then not been taken, or may
// have been: offering them again is safe.
func (d *Door) Admit(ctx context.Context, gateway string, jobs []job.Job, mode Mode) ([]Answer, error) {
	return d.prepare(gateway, jobs).admit(ctx, mode)
}

// prepared are jobs of one gateway, looked at and ready to be offered once.
type prepared struct {
	door    *Door
	to      Gateway
	answers []Answer
	left    entries
	offer   job.Offer // of what is left
	err     error
}

// prepare does all of Admit that needs no Redis.
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

// ready makes what is left ready to be offered.
func (p *prepared) ready() {
	if len(p.left.jobs) == 0 {
		return
	}
	if p.offer, p.err = p.to.Books.Offer(p.left.jobs); p.err != nil {
		p.err = fmt.Errorf("take jobs in: %w", p.err)
	}
}

// admit offers them, as Door.Admit does.
func (p *prepared) admit(ctx context.Context, mode Mode) ([]Answer, error) {
	if p.door == nil {
		return nil, p.err
	}
	d := p.door
	lane := d.lanes.enter()
	defer d.lanes.leave(lane)
	for len(p.left.jobs) > 0 {
		if p.err != nil {
			return p.answers, p.err
		}
		got, room, err := d.put(ctx, p.offer, lane.ticket(), mode)
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

// entries are jobs and their places in the answers.
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

// CheckJob returns why a job can't be taken in, or nil.
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

// put puts an offer before the books, and tries again while Redis is away: with the same ticket, so that jobs which were taken in
// when an answer was lost are not taken for known ones.
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
				Hint: "running the same again is safe: jobs that were taken in are known and will not be doubled"}
		}
		if err := d.sleep(ctx, wait); err != nil {
			return nil, job.Room{}, err
		}
		wait = min(2*wait, awayMax)
	}
}

// conflict says that an id has another payload already, at another gateway if one is named.
func conflict(at string) error {
	if at != "" {
		at = " at gateway " + at
	}
	return fmt.Errorf("this id is known%s with another payload: the first one stands; give this job an id of its own", at)
}

var errKeyTaken = errors.New("this id is an idempotency key that a replay of another job has used: the gateway would take this payment for that one; give this job another id")

var errElsewhere = errors.New("this id is known with another route or lane of the gateway: the first one stands; give this job an id of its own")

// damaged says of a job which of its keys may be the one that something else wrote to.
func (g Gateway) damaged(j job.Job) error {
	var named string
	if g.Keys != nil {
		named = " (one of " + strings.Join(g.Keys(j), ", ") + ")"
	}
	return fmt.Errorf("not taken in: what belongs to this job in Redis%s is of another type than Spillway writes: find it with redis-cli TYPE, look up at the gateway "+
		"whether the id was paid before, move the key away with RENAME, and send the job again", named)
}

// note writes down what the books answered on what was left.
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

// still are those that are offered once more: those that another gateway was taking in, and where room is waited for those for which there was none.
func (e entries) still(answers []Answer, mode Mode) (still entries) {
	for i, at := range e.at {
		if o := answers[at].Outcome; o == job.Claimed || o == job.Full && mode == Wait {
			still.add(at, e.jobs[i])
		}
	}
	return still
}

// forget takes back the answers of jobs that never got in.
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
