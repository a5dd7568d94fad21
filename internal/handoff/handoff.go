// Package handoff takes outcomes from the feeds of gateways to where a reader keeps them, and acknowledges them when they are there. Whatever is killed, it goes on from the
// cursor that is kept with them.
package handoff

import (
	"context"
	"errors"
	"time"

	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Source is the outcome feed of one gateway. Cursors are as the feed writes them; an empty one is before the first outcome.
type Source interface {
	// Read returns up to so many outcomes behind a cursor; none where there is no news.
	Read(ctx context.Context, after string, limit int) ([]feed.Outcome, error)
	// Wait returns when there is news behind a cursor, and at the latest after a while.
	Wait(ctx context.Context, after string, within time.Duration) error
	// Acked returns the cursor up to which a reader has acknowledged.
	Acked(ctx context.Context, reader string) (string, error)
	// Ack notes that a reader has all up to a cursor.
	Ack(ctx context.Context, reader, upto string) (feed.Acked, error)
}

// Sink is where the outcomes go.
type Sink interface {
	// Begin returns the cursor up to which it has the outcomes of a gateway, of which the reader has acknowledged those up to acked. kept is the oldest that the feed has; empty: none.
	Begin(ctx context.Context, gateway, acked, kept string) (after string, err error)
	// Put takes outcomes behind a cursor. It returns the cursor up to which it has them then, also with an error, and how many this call has put. The cursor may be another one
	// than the last of the page: the next ones are read behind it. When ctx ends it ends what it has begun.
	Put(ctx context.Context, gateway, after string, page []feed.Outcome) (upto string, put int, err error)
}

// Config says what is copied, and how.
type Config struct {
	Reader string
	Sink   Sink
	// Page is how many outcomes are put at a time.
	Page int
	// Once says that it ends when there is nothing left to copy. Else it goes on until its context ends.
	Once bool
	// Patience is how long Redis or the sink may be away, with Once. Else they may be for any time.
	Patience time.Duration
	// Say hears, for a person, of what goes on.
	Say func(format string, args ...any)
}

// Lane is the feed of one gateway, and how far it is copied.
type Lane struct {
	Gateway string
	Source  Source
	Copied  int64  // outcomes that this run has put
	Cursor  string // up to which they are there

	begun bool
	acked string // what was last acknowledged
	known string // how far the reader had acknowledged when that was last seen, whoever did

	err   error         // why it is not copied now; nil: it is
	since time.Time     // something is away since then; zero: nothing is, and with err a person is needed
	pause time.Duration // before the next try, which is at next
	next  time.Time
}

const (
	waitForNews = 200 * time.Millisecond
	ackWithin   = 10 * time.Second
	firstPause  = 200 * time.Millisecond // after a try at which something was away; each further one is twice as long
	mostPause   = 10 * time.Second
)

// Copier copies outcomes. Not safe for concurrent use.
type Copier struct {
	cfg   Config
	lanes []*Lane
}

// New returns a copier of some feeds.
func New(cfg Config, lanes []*Lane) *Copier { return &Copier{cfg, lanes} }

// Run copies until there is nothing left, or its context ends: then it ends the page that is under way, and returns the context's error. An error with the code unavailable says that something was away for
// longer than Patience. Others need a person: the other feeds are copied to their end first. Nothing is lost by any of them: Run goes on where it was.
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
			if err := c.lanes[0].Source.Wait(ctx, c.lanes[0].Cursor, waitForNews); ctx.Err() == nil { // the others have so long
				c.lanes[0].met(err)
			}
		}
	}
	return ctx.Err()
}

// away is the lane that has been away for longest; nil if none is.
func (c *Copier) away() (away *Lane) {
	for _, l := range c.lanes {
		if !l.since.IsZero() && (away == nil || l.since.Before(away.since)) {
			away = l
		}
	}
	return away
}

// refused is why feeds can't be copied until a person has acted; nil if there is none.
func (c *Copier) refused() (all error) {
	for _, l := range c.lanes {
		if l.err != nil && l.since.IsZero() {
			all = errors.Join(all, l.err)
		}
	}
	return all
}

// dueIn is when a lane that is away is due, at the latest when one that is not may have news.
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

// met notes what has become of a try. One at which something was away comes again after a while.
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

// rest waits for a while, or until the context ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// round copies a page of each feed that is due, and says whether there was anything to copy. What stops one stops no other.
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
			return moved // that is how it ends
		}
		if l.Copied > copied { // it takes some: it is not away for longer
			l.since, l.pause = time.Time{}, 0
		}
		if l.met(err); l.err != nil && l.since.IsZero() && len(c.lanes) > 1 {
			c.cfg.Say("%s stops, and the others go on: %v", l.Gateway, l.err)
		}
		moved = moved || n > 0 && err == nil
	}
	return moved
}

// page copies a page of one feed, and says how many outcomes there were to copy.
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
		// The sink is elsewhere: ahead, by another copier, or behind, since it was restored. Begin tells which, and what is lost.
		l.begun = err != nil || put > 0
	}
	if !l.begun {
		return len(page), nil
	}
	return len(page), errors.Join(err, c.ack(context.WithoutCancel(ctx), l))
}

// overtaken says whether another program has acknowledged for the reader what this one had not read by then: the feed may have let go of it. Copied to the same place, Begin finds it there.
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

// begin asks the sink how far it is: at first, and when it was not where it had been left.
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

// ack acknowledges what the sink has. An answer that is lost does no harm: it is acknowledged again with the next page.
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
