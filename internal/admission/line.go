package admission

import (
	"context"
	"slices"

	"spillway/internal/job"
)

// Line is the offers of one caller, in their order. With Park the next one may be on its way before the one before is answered, so that
// Redis need not wait for it: the books turn away what has overtaken the offer that it is to come behind. Not safe for concurrent use.
type Line struct {
	door  *Door
	lanes [2]*lane // in turn: of each the last answer is kept
	turn  int
	last  *Passage
}

// Passage is one offer on its way.
type Passage struct {
	books  Books
	ticket job.Ticket
	over   chan struct{} // closed at its end

	answers []Answer
	err     error    // how it ended
	room    job.Room // what it left
}

// Answered is an offer that has been answered already.
func Answered(answers []Answer, err error) *Passage {
	p := &Passage{answers: answers, err: err, over: make(chan struct{})}
	close(p.over)
	return p
}

// Over closes when the offer has been answered, or has failed.
func (p *Passage) Over() <-chan struct{} { return p.over }

// Wait waits until then. The answers are as Door.Admit's.
func (p *Passage) Wait() ([]Answer, error) {
	<-p.over
	return p.answers, p.err
}

// Line returns a new line. Close it.
func (d *Door) Line() *Line {
	return &Line{door: d, lanes: [2]*lane{d.lanes.enter(), d.lanes.enter()}}
}

// Close ends the line, once all of its offers have ended.
func (l *Line) Close() {
	for _, lane := range l.lanes {
		l.door.lanes.leave(lane)
	}
}

// Begin offers jobs of one gateway. Up to two offers may be under way: wait for the older one before a third. In any mode but Park, Begin returns only
// when the offer has ended, which keeps the order: what has no room goes before what comes behind it. After an offer has failed, those behind it are not
// made and get the same error. If jobs of an offer could not even be parked, all later jobs of the same gateway find no room.
func (l *Line) Begin(ctx context.Context, gateway string, jobs []job.Job, mode Mode) *Passage {
	before, me := l.last, &Passage{books: l.door.cfg.Gateways[gateway].Books, ticket: l.lanes[l.turn].ticket(), over: make(chan struct{})}
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

// pass offers at once. If that comes to nothing, for whatever reason, it waits until the offer before has ended: behind it there is nothing
// more to overtake, and behind one that was given up nothing goes in.
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

// finish takes in what another gateway was taking in, when that has ended.
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

// overtake offers before the offer before has ended, and reports whether that came to something.
func (p *Passage) overtake(ctx context.Context, what *prepared, before *Passage) bool {
	ticket := p.ticket
	ticket.Behind = job.Place{Lane: before.ticket.Lane, Number: before.ticket.Number}
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
