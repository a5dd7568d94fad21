package admission

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"spillway/internal/job"
)

// Line submits the offers of one caller, in order. With Park, the next offer may be in flight before the
// previous one is answered, so that Redis is never idle between them: an offer that arrives ahead of the one it
// must follow is turned away. A Line is not safe for concurrent use.
type Line struct {
	door      *Door
	sequences [2]*sequence // used in turn: the last reply of each is stored
	turn      int
	last      *Passage
}

// Passage is one offer in flight.
type Passage struct {
	books  Books
	ticket job.Ticket
	over   chan struct{} // closed when it has ended

	answers []Answer
	err     error    // its error; nil if it was answered
	room    job.Room // the room it left
}

// Answered returns a Passage that has already ended.
func Answered(answers []Answer, err error) *Passage {
	p := &Passage{answers: answers, err: err, over: make(chan struct{})}
	close(p.over)
	return p
}

// Over returns a channel that closes when the offer has been answered or has failed.
func (p *Passage) Over() <-chan struct{} { return p.over }

// Wait waits until the offer has ended. It returns what Door.Admit would.
func (p *Passage) Wait() ([]Answer, error) {
	<-p.over
	return p.answers, p.err
}

// Line returns a new line. The caller must close it.
func (d *Door) Line() *Line {
	return &Line{door: d, sequences: [2]*sequence{d.sequences.enter(), d.sequences.enter()}}
}

// Close ends the line. All of its offers must have ended.
func (l *Line) Close() {
	for _, own := range l.sequences {
		l.door.sequences.leave(own)
	}
}

// Begin offers jobs of one gateway. Up to two offers may be in flight: wait for the older one before a third.
// In any mode but Park, Begin returns only when the offer has ended, which keeps the order: jobs that find no
// room are admitted before later ones. After an offer has failed, later ones are not made and get the same
// error. If the jobs of an offer could not even be parked, all later jobs of the same gateway find no room.
func (l *Line) Begin(ctx context.Context, gateway string, jobs []job.Job, mode Mode) *Passage {
	before, me := l.last, &Passage{books: l.door.cfg.Gateways[gateway].Books, ticket: l.sequences[l.turn].ticket(), over: make(chan struct{})}
	l.turn, l.last = 1-l.turn, me
	pass := func() {
		defer close(me.over)
		me.pass(ctx, l.door.prepare(gateway, jobs), before, mode)
	}
	if mode == Park {
		go pass()
	} else {
		pass()
	}
	return me
}

// pass makes the offer at once. If that is turned away or fails, it waits until the previous offer has ended.
// Then nothing is left to overtake, and if the previous one was given up, this one is not made.
func (p *Passage) pass(ctx context.Context, what *prepared, before *Passage, mode Mode) {
	if p.answers, p.err = what.answers, what.err; p.err != nil {
		return
	}
	if before != nil && !before.ended() && before.books == p.books {
		if len(what.left.jobs) > 0 && p.overtake(ctx, what, before) {
			p.finish(ctx, what)
			return
		}
		<-before.over
	}
	if before != nil && before.ended() {
		if p.err = before.err; p.err != nil {
			return
		}
		if before.books == p.books && before.room.Parked.Bounds() {
			p.note(what, slices.Repeat([]job.Admittance{job.Full}, len(what.left.jobs)), before.room)
			return
		}
	}
	if mode != Park {
		p.answers, p.err = what.admit(ctx, mode)
		return
	}
	if len(what.left.jobs) == 0 {
		return
	}
	got, room, err := what.door.put(ctx, what.offer, p.ticket, Park)
	if p.err = err; err == nil {
		p.note(what, got, room)
		p.finish(ctx, what)
	}
}

// finish admits the jobs that another gateway was admitting, once that has ended.
func (p *Passage) finish(ctx context.Context, what *prepared) {
	if what.left = what.left.still(what.answers, Park); len(what.left.jobs) == 0 {
		return
	}
	if p.err = what.door.sleep(ctx, pollParked); p.err != nil {
		forget(what.left, what.answers)
		return
	}
	what.ready()
	p.answers, p.err = what.admit(ctx, Park)
}

// overtake makes the offer before the previous one has ended, and reports whether it was answered.
func (p *Passage) overtake(ctx context.Context, what *prepared, before *Passage) bool {
	ticket := p.ticket
	ticket.Behind = job.Place{Sequence: before.ticket.Sequence, Number: before.ticket.Number}
	got, room, err := what.offer(ctx, ticket, string(Park))
	if err == nil {
		p.note(what, got, room)
	}
	return err == nil
}

func (p *Passage) note(what *prepared, got []job.Admittance, room job.Room) {
	what.note(got, room)
	p.room = room
}

func (p *Passage) ended() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// sequence numbers the offers of one caller of Admit, which come one after the other.
type sequence struct {
	name   string
	offers int64
}

// ticket returns the ticket of the next offer.
func (s *sequence) ticket() job.Ticket {
	s.offers++
	return job.Ticket{Sequence: s.name, Number: s.offers}
}

// sequences is the pool of a door's sequences. It holds as many as there were ever concurrent callers, so that Redis
// stores few replies.
type sequences struct {
	door string // unique to this door

	mu   sync.Mutex
	free []*sequence
	made int
}

func (s *sequences) enter() *sequence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		last := s.free[n-1]
		s.free = s.free[:n-1]
		return last
	}
	s.made++
	return &sequence{name: s.door + "." + strconv.Itoa(s.made)}
}

func (s *sequences) leave(done *sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, done)
}
