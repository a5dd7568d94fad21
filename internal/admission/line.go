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
	last  *passage
}

// passage is one offer of a line on its way.
type passage struct {
	books  Books
	ticket job.Ticket
	over   chan struct{} // closed at its end
	err    error         // how it ended
	room   job.Room      // what it left
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

// Begin offers what was prepared at this door; end waits for the answers, which are as Prepared.Admit's. At most one offer may be on its way
// when another one begins: end the one before it first. With another mode than Park it returns when it has ended, since what has no room must
// go before what comes behind. Once an offer has failed no other one is made: it gets the same error. Behind one of which jobs could not even be
// parked, all jobs of the same gateway find no room.
func (l *Line) Begin(ctx context.Context, p *Prepared, mode Mode) (end func() ([]Answer, error)) {
	before := l.last
	ended := before == nil || before.ended()
	if before != nil && ended && before.err != nil {
		return func() ([]Answer, error) { return p.answers, before.err }
	}
	if before != nil && ended && before.shuts(p) {
		return func() ([]Answer, error) { return p.answers, nil }
	}
	if mode != Park || p.err != nil || len(p.left.jobs) == 0 {
		return l.whole(ctx, p, mode)
	}
	me := &passage{books: p.to.Books, ticket: l.lanes[l.turn].ticket(), over: make(chan struct{})}
	l.turn, l.last = 1-l.turn, me
	if !ended && before.books == p.to.Books {
		me.ticket.Behind = job.Place{Lane: before.ticket.Lane, Number: before.ticket.Number}
	}
	go func() {
		defer close(me.over)
		me.err = me.pass(ctx, p, before)
	}()
	return func() ([]Answer, error) {
		<-me.over
		return p.answers, me.err
	}
}

// whole makes an offer from its beginning to its end.
func (l *Line) whole(ctx context.Context, p *Prepared, mode Mode) func() ([]Answer, error) {
	answers, err := p.Admit(ctx, mode)
	if err != nil {
		l.last = &passage{over: make(chan struct{}), err: err}
		close(l.last.over)
	}
	return func() ([]Answer, error) { return answers, err }
}

func (p *passage) ended() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// shuts answers what comes behind an offer that has ended, if nothing may go in behind that.
func (p *passage) shuts(next *Prepared) bool {
	if !p.room.Parked.Bounds() || p.books != next.to.Books || next.err != nil {
		return false
	}
	next.note(slices.Repeat([]job.Admittance{job.Full}, len(next.left.jobs)), p.room)
	return true
}

// pass offers at once. If that comes to nothing, for whatever reason, it waits until the offer before has ended: behind it there is nothing
// more to overtake, and behind one that was given up nothing goes in.
func (p *passage) pass(ctx context.Context, what *Prepared, before *passage) error {
	if p.ticket.Behind != (job.Place{}) {
		if got, room, err := what.offer(ctx, p.ticket, string(Park)); err == nil {
			what.note(got, room)
			p.room = room
			return nil
		}
		<-before.over
		if before.err != nil {
			return before.err
		}
		if before.shuts(what) {
			p.room = before.room
			return nil
		}
		p.ticket.Behind = job.Place{}
	}
	got, room, err := what.door.put(ctx, what.offer, p.ticket, Park)
	if err != nil {
		return err
	}
	what.note(got, room)
	p.room = room
	return nil
}
