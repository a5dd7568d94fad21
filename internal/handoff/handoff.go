// Package handoff copies outcomes from the feeds of gateways to a reader's own store, and acknowledges them
// once they are there. After a crash it continues from the cursor stored with them.
package handoff

import (
	"context"
	"errors"
	"time"

	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Source is the outcome feed of one gateway. Cursors are as the feed writes them; an empty one precedes the
// first outcome.
type Source interface {
	// Read returns up to limit outcomes after a cursor; none if there are none yet.
	Read(ctx context.Context, after string, limit int) ([]feed.Outcome, error)
	// Wait returns when there is an outcome after a cursor, or when within has passed.
	Wait(ctx context.Context, after string, within time.Duration) error
	// Acked returns the cursor up to which a reader has acknowledged.
	Acked(ctx context.Context, reader string) (string, error)
	// Ack records that a reader has processed everything up to a cursor.
	Ack(ctx context.Context, reader, upto string) (feed.Acked, error)
}

// Sink is the destination of outcomes.
type Sink interface {
	// Begin returns the cursor up to which it has a gateway's outcomes; the reader has acknowledged those up to
	// acked. kept is the oldest outcome in the feed; empty: none.
	Begin(ctx context.Context, gateway, acked, kept string) (after string, err error)
	// Put stores outcomes that follow a cursor. It returns the cursor up to which it then has them, even with
	// an error, and how many this call has stored. The cursor may differ from the last one of the page: the
	// caller continues after it. When ctx ends, Put completes what it has begun.
	Put(ctx context.Context, gateway, after string, page []feed.Outcome) (upto string, put int, err error)
}

// Config says what to copy, and how.
type Config struct {
	Reader string
	Sink   Sink
	// Page is how many outcomes are stored at once.
	Page int
	// Once stops the copier when nothing is left to copy. Otherwise it runs until its context ends.
	Once bool
	// Patience is how long Redis or the sink may be unreachable, with Once. Otherwise there is no bound.
	Patience time.Duration
	// Say prints messages for a person.
	Say func(format string, args ...any)
}

// Lane is the feed of one gateway, with its progress.
type Lane struct {
	Gateway string
	Source  Source
	Copied  int64  // outcomes stored by this run
	Cursor  string // up to which outcomes are stored

	begun bool
	acked string // last acknowledged by this copier
	known string // what the reader had acknowledged when last seen, by any program

	err   error         // why it is not copied now; nil: it is
	since time.Time     // since when something is unreachable; zero with err set: an operator is needed
	pause time.Duration // before the next try, at next
	next  time.Time
}

const (
	waitForNews = 200 * time.Millisecond
	ackWithin   = 10 * time.Second
	firstPause  = 200 * time.Millisecond // after a failed try; doubles with each further one
	mostPause   = 10 * time.Second
)

// Copier copies outcomes. It is not safe for concurrent use.
type Copier struct {
	cfg   Config
	lanes []*Lane
}

// New returns a Copier for some feeds.
func New(cfg Config, lanes []*Lane) *Copier { return &Copier{cfg, lanes} }

// Run copies until nothing is left, or its context ends: then it completes the current page and returns the
// context's error. An error with code unavailable says that something was unreachable for longer than Patience.
// Other errors need an operator; the other feeds are copied to their end first. No error loses anything: Run
// continues where it was.
func (c *Copier) Run(ctx context.Context) error {
	waiting := false
	for ctx.Err() == nil {
		moved := c.round(ctx)
		away := c.away()
		if (away != nil) != waiting && ctx.Err() == nil {
			if waiting = away != nil; waiting {
				c.cfg.Say("waiting: %v", away.err)
			} else {
				c.cfg.Say("it is back: copying goes on")
			}
		}
		if moved || ctx.Err() != nil {
			continue
		}
		if err := c.refused(); err != nil {
			return err
		}
		switch {
		case away != nil && c.cfg.Once && time.Since(away.since) >= c.cfg.Patience:
			return away.err
		case away != nil:
			rest(ctx, c.dueIn())
		case c.cfg.Once:
			return nil
		default:
			if err := c.lanes[0].Source.Wait(ctx, c.lanes[0].Cursor, waitForNews); ctx.Err() == nil { // the others have as long
				c.lanes[0].met(err)
			}
		}
	}
	return ctx.Err()
}

// away returns the lane that has been failing longest; nil if none is.
func (c *Copier) away() (away *Lane) {
	for _, l := range c.lanes {
		if !l.since.IsZero() && (away == nil || l.since.Before(away.since)) {
			away = l
		}
	}
	return away
}

// refused returns why feeds can't be copied until an operator acts; nil if there is no such feed.
func (c *Copier) refused() (all error) {
	for _, l := range c.lanes {
		if l.err != nil && l.since.IsZero() {
			all = errors.Join(all, l.err)
		}
	}
	return all
}

// dueIn returns when a failing lane is due, at the latest when another one may have outcomes.
func (c *Copier) dueIn() time.Duration {
	in := mostPause
	for _, l := range c.lanes {
		if l.since.IsZero() {
			in = min(in, waitForNews)
			continue
		}
		in = min(in, time.Until(l.next))
	}
	return in
}

// met records the result of a try. A failed one is repeated after a while.
func (l *Lane) met(err error) {
	switch err = redisdb.Coded(err); {
	case err == nil || job.CodeOf(err) != job.CodeUnavailable:
		l.err, l.since, l.pause = err, time.Time{}, 0
		return
	case l.since.IsZero():
		l.since = time.Now()
	}
	l.err, l.pause = err, min(max(2*l.pause, firstPause), mostPause)
	l.next = time.Now().Add(l.pause)
}

// rest waits for d, or until the context ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// round copies a page of each feed that is due, and reports whether there was anything to copy. A failing feed
// does not stop the others.
func (c *Copier) round(ctx context.Context) (moved bool) {
	for _, l := range c.lanes {
		if ctx.Err() != nil {
			return moved
		}
		if l.err != nil && (l.since.IsZero() || time.Now().Before(l.next)) {
			continue
		}
		copied := l.Copied
		n, err := c.page(ctx, l)
		if err != nil && ctx.Err() != nil {
			return moved // the normal way to stop
		}
		if l.Copied > copied { // it stored some: it is not unreachable any more
			l.since, l.pause = time.Time{}, 0
		}
		if l.met(err); l.err != nil && l.since.IsZero() && len(c.lanes) > 1 {
			c.cfg.Say("%s stops, and the others go on: %v", l.Gateway, l.err)
		}
		moved = moved || n > 0 && err == nil
	}
	return moved
}

// page copies a page of one feed, and returns how many outcomes there were to copy.
func (c *Copier) page(ctx context.Context, l *Lane) (n int, err error) {
	if err := c.begin(ctx, l); err != nil {
		return 0, err
	}
	page, err := l.Source.Read(ctx, l.Cursor, c.cfg.Page)
	if err != nil {
		return 0, err
	}
	if len(page) > 0 {
		if other, err := c.overtaken(ctx, l); err != nil || other {
			l.begun = !other
			return len(page), err
		}
		var put int
		l.Cursor, put, err = c.cfg.Sink.Put(ctx, l.Gateway, l.Cursor, page)
		l.Copied += int64(put)
		// The sink's position differs: it is ahead, because of another copier, or behind, because it was
		// restored. Begin finds out which, and what is lost.
		l.begun = err != nil || put > 0
	}
	if !l.begun {
		return len(page), nil
	}
	return len(page), errors.Join(err, c.ack(context.WithoutCancel(ctx), l))
}

// overtaken reports whether another program has acknowledged for the reader what this one had not read by then:
// the feed may have dropped it. If it was copied to the same place, Begin finds it there.
func (c *Copier) overtaken(ctx context.Context, l *Lane) (bool, error) {
	acked, err := l.Source.Acked(ctx, c.cfg.Reader)
	if err != nil {
		return false, err
	}
	now, err := feed.ParseCursor(acked)
	known, errKnown := feed.ParseCursor(l.known)
	at, errAt := feed.ParseCursor(l.Cursor)
	return now.Compare(known) > 0 && now.Compare(at) > 0, errors.Join(err, errKnown, errAt)
}

// begin asks the sink for its position: at the start, and when it was not where it was left.
func (c *Copier) begin(ctx context.Context, l *Lane) error {
	if l.begun {
		return nil
	}
	acked, err := l.Source.Acked(ctx, c.cfg.Reader)
	if err != nil {
		return err
	}
	oldest, err := l.Source.Read(ctx, "", 1)
	if err != nil {
		return err
	}
	kept := ""
	if len(oldest) > 0 {
		kept = oldest[0].Cursor
	}
	after, err := c.cfg.Sink.Begin(ctx, l.Gateway, acked, kept)
	if err != nil {
		return err
	}
	if after == "" && acked != "" {
		c.cfg.Say("%s: it begins with the first outcome that is kept; what %s had acknowledged before may not be in it", l.Gateway, c.cfg.Reader)
	}
	l.begun, l.Cursor, l.acked, l.known = true, after, acked, acked
	return nil
}

// ack acknowledges what the sink has. A lost reply does no harm, because the next page acknowledges it again.
func (c *Copier) ack(ctx context.Context, l *Lane) error {
	if l.Cursor == "" || l.Cursor == l.acked {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	if _, err := l.Source.Ack(ctx, c.cfg.Reader, l.Cursor); err != nil {
		return err
	}
	l.acked = l.Cursor
	return nil
}
