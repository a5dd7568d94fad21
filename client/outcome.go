package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"math/big"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Outcome is what became of a job, or of a batch.
type Outcome struct {
	// Cursor is its place in the gateway's feed. Keep it, best in one transaction with your own work, and continue after it.
	Cursor  string `json:"cursor"`
	Gateway string `json:"gateway"`
	ID      string `json:"id,omitempty"` // empty with BatchDone
	Batch   string `json:"batch"`
	Route   string `json:"route,omitempty"`
	Lane    string `json:"lane,omitempty"`
	// State is Done, Parked, Discarded or BatchDone. A job that is parked and done later is told twice, in this order.
	State State `json:"state"`
	// Reason is why it is parked; nil if it is not.
	Reason *Reason `json:"reason"`
	// Status is that of the gateway's last answer; 0 if there was none.
	Status    int    `json:"status"`
	Reference string `json:"reference"` // the gateway's own
	// Amount is in minor units; nil if the books have none.
	Amount   *big.Int `json:"amount"`
	Currency string   `json:"currency"`
	Attempts int      `json:"attempts"` // calls since it was last admitted
	// AcceptedAt distinguishes one life of an id from the next; nil with BatchDone.
	AcceptedAt *time.Time `json:"accepted_at,omitempty"`
	At         time.Time  `json:"at"`
}

// Outcomes yields what becomes of a gateway's jobs, oldest first: the outcomes that are kept after the cursor, and then new ones. An empty cursor is before all that are kept. It continues until you leave the
// loop, ctx ends, or the dispatcher refuses. Then the last pair has the error, and no Outcome.
//
// While the dispatcher can't be reached, it tries again as long as ctx allows, after the last outcome that it has yielded: none is skipped and none comes twice.
//
//	for o, err := range c.Outcomes(ctx, "stripe", cursor) {
//		if err != nil {
//			return err
//		}
//		cursor = o.Cursor // in the same transaction as what you do with o
//	}
func (c *Client) Outcomes(ctx context.Context, gateway, after string) iter.Seq2[Outcome, error] {
	return c.outcomes(ctx, gateway, OutcomeQuery{After: after})
}

// OutcomesFor is like Outcomes, but begins after the last outcome that this reader of the configuration has acknowledged (see Ack). An outcome that was yielded and not acknowledged comes again.
func (c *Client) OutcomesFor(ctx context.Context, gateway, reader string) iter.Seq2[Outcome, error] {
	return c.outcomes(ctx, gateway, OutcomeQuery{Reader: reader})
}

func (c *Client) outcomes(ctx context.Context, gateway string, q OutcomeQuery) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		b := c.backoff()
		b.until = time.Time{}
		for {
			failed, left := c.stream(ctx, gateway, &q, func(o Outcome) bool {
				b.reset()
				return yield(o, nil)
			})
			if left {
				return
			}
			if err := b.pause(ctx, failed); err != nil {
				yield(Outcome{}, err)
				return
			}
		}
	}
}

// silentFor is how long a stream may be silent before it counts as broken: the dispatcher sends a sign of life every 15 s.
const silentFor = 45 * time.Second

// stream yields the outcomes of a stream of server-sent events, and moves the cursor. It returns why the stream has ended, or that the loop was left.
func (c *Client) stream(ctx context.Context, gateway string, q *OutcomeQuery, yield func(Outcome) bool) (failed *Error, left bool) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silence := time.AfterFunc(silentFor, func() { stop(errSilent) })
	defer silence.Stop()
	header := map[string]string{"Accept": asEvents}
	back, _, failed := c.once(ctx, call{method: http.MethodGet, path: path("v1", "gateways", gateway, "outcomes"), query: q.values(false), header: header})
	if failed != nil {
		return failed, false
	}
	defer back.Body.Close()
	for lines := bufio.NewReaderSize(back.Body, 64<<10); ; {
		text, err := lines.ReadSlice('\n')
		if err != nil {
			return c.broken(ctx, err), false
		}
		data, is := bytes.CutPrefix(text, []byte("data: "))
		if !is { // the id is in the data too
			silence.Reset(silentFor)
			continue
		}
		var o Outcome
		if err := json.Unmarshal(data, &o); err != nil || o.Cursor == "" {
			return &Error{Code: NoAnswer, Status: back.StatusCode, Detail: "an outcome can't be read", Err: err}, false
		}
		silence.Stop() // the loop may take its time
		if !yield(o) {
			return nil, true
		}
		q.After = o.Cursor
		silence.Reset(silentFor)
	}
}

var errSilent = errors.New("nothing came for 45 seconds")

// broken returns why a stream has ended.
func (c *Client) broken(ctx context.Context, err error) *Error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == io.EOF {
		return &Error{Code: NoAnswer, Detail: "the dispatcher has ended the stream: it stops, or its Redis is away", Err: err}
	}
	return noAnswer(err)
}

// OutcomeQuery says which outcomes a page has.
type OutcomeQuery struct {
	After  string        // the cursor of the last one that you have; empty: all that are kept
	Reader string        // without After: go on where this reader has acknowledged
	Limit  int           // of a page, up to 10,000; 0: 1,000
	Wait   time.Duration // while there are none, wait so long for the first, up to 30 s
}

func (q OutcomeQuery) values(page bool) url.Values {
	v := url.Values{}
	if q.After != "" {
		v.Set("after", q.After)
	} else {
		put(v, "reader", q.Reader)
	}
	if page && q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if page && q.Wait > 0 {
		v.Set("wait", q.Wait.String())
	}
	return v
}

// OutcomesPage returns the next outcomes after a cursor, oldest first; none if there are no new ones. Most callers want Outcomes.
func (c *Client) OutcomesPage(ctx context.Context, gateway string, q OutcomeQuery) (all []Outcome, err error) {
	k := call{method: http.MethodGet, path: path("v1", "gateways", gateway, "outcomes"), query: q.values(true), header: map[string]string{"Accept": asLines}}
	for b := c.backoff(); ; {
		failed := c.eachLine(ctx, k, func(text []byte) error {
			var o Outcome
			if err := json.Unmarshal(text, &o); err != nil {
				return err
			}
			all = append(all, o)
			return nil
		})
		if failed == nil || len(all) > 0 { // what was cut off comes behind the last one
			return all, nil
		}
		if err := b.pause(ctx, failed); err != nil {
			return nil, err
		}
	}
}

// Acked is the position of a reader.
type Acked struct {
	Reader string `json:"reader"`
	Cursor string `json:"cursor"` // it has acknowledged all outcomes up to it; empty: none
	Behind int64  `json:"behind"` // how many there are behind it
}

// Ack records that a reader of the configuration has all of a gateway's outcomes up to a cursor, and does not need them again. A cursor before the acknowledged one changes nothing.
func (c *Client) Ack(ctx context.Context, gateway, reader, cursor string) (Acked, error) {
	return post[Acked](ctx, c, map[string]string{"reader": reader, "cursor": cursor}, "v1", "gateways", gateway, "outcomes", "ack")
}
