package desk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/feed"
	"spillway/internal/job"
)

// Outcomes is a gateway's outcome feed, with cursors in their external form.
type Outcomes struct {
	gateway string
	readers []string
	feed    *feed.Feed
}

// Outcomes returns the gateway's outcome feed. An error with code not_found says that none is configured.
func (g *Gateway) Outcomes() (*Outcomes, error) {
	f := dispatch.Feed(g.redis, g.Gateway)
	if f == nil {
		return nil, &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("gateway %s has no outcome feed", g.Name),
			Hint: "write outcomes: {readers: [NAME]} at the gateway in the configuration: what happens from then on is told"}
	}
	return &Outcomes{g.Name, g.Gateway.Outcomes.Readers, f}, nil
}

// Told is the state of an outcome feed.
type Told struct {
	Kept      int64        `json:"kept"`                 // outcomes stored
	HeldSince *time.Time   `json:"held_since,omitempty"` // since when the gateway is held because WaitsFor is too far behind; nil: it is not
	WaitsFor  string       `json:"waits_for,omitempty"`
	Readers   []ToldReader `json:"readers"` // in configured order
}

// ToldReader is the progress of a reader of outcomes.
type ToldReader struct {
	Reader      string     `json:"reader"`
	Behind      int64      `json:"behind"`                 // outcomes not acknowledged
	BehindSince *time.Time `json:"behind_since,omitempty"` // time of the first of them; nil: none
	Dropped     int64      `json:"dropped,omitempty"`      // outcomes dropped before it read them
}

// toldOf returns the state of a feed; nil if there is none.
func toldOf(s *feed.Standing) *Told {
	if s == nil {
		return nil
	}
	t := &Told{Kept: s.Kept, HeldSince: when(s.Held), WaitsFor: s.WaitsFor, Readers: make([]ToldReader, len(s.Readers))}
	for i, r := range s.Readers {
		t.Readers[i] = ToldReader{r.Reader, r.Behind, when(r.Since), r.Dropped}
	}
	return t
}

// Told returns the gateways with an outcome feed, in configured order.
func (d *Desk) Told() (all []*Gateway) {
	for _, g := range d.Gateways {
		if g.Gateway.Outcomes != nil {
			all = append(all, g)
		}
	}
	return all
}

// ToldTo returns the gateways whose outcomes this reader reads, in configured order. An error with code
// not_found says that there are none.
func (d *Desk) ToldTo(reader string) (all []*Gateway, err error) {
	for _, g := range d.Told() {
		if slices.Contains(g.Gateway.Outcomes.Readers, reader) {
			all = append(all, g)
		}
	}
	if len(all) == 0 {
		err = &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("no gateway has a reader %q of its outcomes", reader), Hint: "add it to outcomes.readers in the configuration"}
	}
	return all, err
}

// Read returns up to limit outcomes after a cursor, oldest first; an empty cursor means from the first one
// stored. An empty result means that there are none yet.
func (o *Outcomes) Read(ctx context.Context, after string, limit int) ([]feed.Outcome, error) {
	c, err := cursor(after)
	if err != nil {
		return nil, err
	}
	return o.feed.Read(ctx, c, limit)
}

// Wait returns when there is an outcome after the cursor, or when within has passed. The error is ctx.Err() if
// ctx ends first.
func (o *Outcomes) Wait(ctx context.Context, after string, within time.Duration) error {
	c, err := cursor(after)
	if err != nil {
		return err
	}
	return o.feed.Wait(ctx, c, within)
}

// Acked returns the cursor up to which a reader has acknowledged; empty: nothing yet. An error with code
// not_found says that there is no such reader.
func (o *Outcomes) Acked(ctx context.Context, reader string) (string, error) {
	at := slices.Index(o.readers, reader)
	if at < 0 {
		return "", o.noReader(reader)
	}
	s, err := o.feed.Look(ctx)
	if err != nil {
		return "", err
	}
	return s.Readers[at].Cursor, nil
}

// Ack records that a reader has processed all outcomes up to a cursor. An error with code not_found says that
// there is no such reader.
func (o *Outcomes) Ack(ctx context.Context, reader, upto string) (feed.Acked, error) {
	c, err := cursor(upto)
	switch {
	case err != nil:
		return feed.Acked{}, err
	case upto == "":
		return feed.Acked{}, usage("take it from the last line that was read", "an acknowledgement needs a cursor")
	case !slices.Contains(o.readers, reader):
		return feed.Acked{}, o.noReader(reader)
	}
	return o.feed.Ack(ctx, reader, c)
}

func (o *Outcomes) noReader(name string) error {
	known := "it names none"
	if len(o.readers) > 0 {
		known = "it names " + strings.Join(o.readers, ", ")
	}
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("gateway %s has no reader %q of its outcomes: %s", o.gateway, name, known),
		Hint: "add it to outcomes.readers in the configuration"}
}

func cursor(text string) (feed.Cursor, error) {
	c, err := feed.ParseCursor(text)
	if err != nil {
		return c, usage("", "%s", err)
	}
	return c, nil
}
