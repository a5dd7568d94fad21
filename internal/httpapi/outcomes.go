package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/producer"
)

// Outcomes is the outcome feed of one gateway. An empty cursor precedes the first outcome.
type Outcomes interface {
	// Read returns up to limit outcomes after a cursor; none if there are none yet.
	Read(ctx context.Context, after string, limit int) ([]Outcome, error)
	// Wait returns when there is an outcome after a cursor, or when within has passed. The error is ctx.Err()
	// if ctx ends first.
	Wait(ctx context.Context, after string, within time.Duration) error
	// Acked returns the cursor up to which a reader has acknowledged. An error with code not_found says that
	// there is no such reader.
	Acked(ctx context.Context, reader string) (string, error)
	// Ack records that a reader has processed everything up to a cursor. It returns the answer, to be written
	// as JSON.
	Ack(ctx context.Context, reader, cursor string) (any, error)
}

// Outcome is a line of the feed.
type Outcome struct {
	Cursor string
	Line   []byte // JSON, without a line end
}

const (
	outcomesShown   = 1000
	outcomesMost    = 10_000
	outcomesWait    = 30 * time.Second // the longest wait for outcomes
	outcomesAtATime = 1000             // read and sent at once
	ackMost         = 4 << 10          // bytes of an acknowledgement
)

// outcomeQuery is a reader's request.
type outcomeQuery struct {
	after, reader string
	limit         int
	wait          time.Duration
}

// outcomes answers with outcomes: as NDJSON, or as a stream of events if the caller accepts one.
func (a *API) outcomes(w http.ResponseWriter, r *http.Request) {
	feed, p := a.feedOf(r)
	var q outcomeQuery
	if p == nil {
		q, p = outcomeQueryOf(r.URL.Query())
	}
	stream := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	if last := r.Header.Get("Last-Event-ID"); stream && last != "" {
		q.after = last
	}
	if p == nil && q.reader != "" {
		acked, err := feed.Acked(r.Context(), q.reader)
		if q.after = cmp.Or(q.after, acked); err != nil {
			p = a.readerProblem(r, err)
		}
	}
	switch {
	case p != nil:
		p.answer(w)
	case stream:
		a.outcomeEvents(w, r, feed, q)
	default:
		a.outcomeLines(w, r, feed, q)
	}
}

// feedOf returns the feed of the gateway in a request.
func (a *API) feedOf(r *http.Request) (Outcomes, *problem) {
	name := r.PathValue("gateway")
	if _, ok := a.known(r)[name]; !ok {
		return nil, new(noGateway(name))
	}
	feed, err := a.cfg.Outcomes(name)
	if job.CodeOf(err) == job.CodeNotFound {
		p := problemOf(err)
		return nil, new(newProblem(codeOutcomes, p.Detail, p.Hint))
	}
	if err != nil {
		return nil, new(a.problemOf(r, err))
	}
	return feed, nil
}

func (a *API) readerProblem(r *http.Request, err error) *problem {
	p := a.problemOf(r, err)
	if job.CodeOf(err) == job.CodeNotFound {
		p = newProblem(codeReader, p.Detail, p.Hint)
	}
	return &p
}

func outcomeQueryOf(values url.Values) (q outcomeQuery, p *problem) {
	q.limit = outcomesShown
	for name, all := range values {
		text, err := all[0], error(nil)
		switch name {
		case "after":
			q.after = text
		case "reader":
			q.reader = text
		case "limit":
			if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 || q.limit > outcomesMost {
				return q, new(newProblem(codeRequest, fmt.Sprintf("limit is not a number from 1 to %d", outcomesMost), ""))
			}
		case "wait":
			if q.wait, err = time.ParseDuration(text); err != nil || q.wait < 0 || q.wait > outcomesWait {
				return q, new(newProblem(codeRequest, "wait is not a time from 0s to "+outcomesWait.String(), "write it like 30s"))
			}
		default:
			return q, new(newProblem(codeRequest, fmt.Sprintf("there is no parameter %.40q", name), "use after, limit, reader and wait"))
		}
		if len(all) > 1 {
			return q, new(newProblem(codeRequest, name+" is there twice", "give it once"))
		}
	}
	return q, nil
}

// outcomeLines answers with up to limit lines, and waits for the first one if requested.
func (a *API) outcomeLines(w http.ResponseWriter, r *http.Request, feed Outcomes, q outcomeQuery) {
	page, err := a.awaited(r, feed, q)
	if err != nil {
		a.problemOf(r, err).answer(w)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	out := newPiecemeal(w, a.times.write)
	for sent := 0; len(page) > 0; {
		for _, o := range page {
			out.text = append(append(out.text, o.Line...), '\n')
		}
		if out.send() != nil {
			return
		}
		q.after = page[len(page)-1].Cursor
		if sent += len(page); sent >= q.limit {
			return
		}
		if page, err = feed.Read(r.Context(), q.after, min(q.limit-sent, outcomesAtATime)); err != nil {
			a.problemOf(r, err) // logged; the reader continues after the last line
			return
		}
	}
}

// awaited returns the first outcomes after the cursor. It waits for them as long as the request says.
func (a *API) awaited(r *http.Request, feed Outcomes, q outcomeQuery) ([]Outcome, error) {
	ctx := r.Context()
	for until := time.Now().Add(q.wait); ; {
		page, err := feed.Read(ctx, q.after, min(q.limit, outcomesAtATime))
		left := time.Until(until)
		if err != nil || len(page) > 0 || left <= 0 || a.stopping.Load() {
			return page, err
		}
		if err := feed.Wait(ctx, q.after, min(left, stopWithin)); err != nil {
			return nil, err
		}
		if !isStillIn(r) {
			return nil, new(tokenEnded())
		}
	}
}

const (
	stopWithin = time.Second      // how often a waiting request checks whether this dispatcher stops
	beatEvery  = 15 * time.Second // how often a stream without outcomes sends a sign of life
)

// outcomeEvents sends outcomes as server-sent events, until the reader leaves, its token expires, this
// dispatcher stops, or Redis can't be read: then the reader reconnects with the last event's id.
func (a *API) outcomeEvents(w http.ResponseWriter, r *http.Request, feed Outcomes, q outcomeQuery) {
	page, err := feed.Read(r.Context(), q.after, outcomesAtATime)
	if err != nil {
		a.problemOf(r, err).answer(w)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx would buffer events
	out, beat := newPiecemeal(w, a.times.write), time.Now()
	out.text = append(out.text, "retry: 1000\n\n"...)
	for !a.stopping.Load() && isStillIn(r) {
		for _, o := range page {
			out.text = fmt.Appendf(out.text, "id: %s\ndata: %s\n\n", o.Cursor, o.Line)
			q.after = o.Cursor
		}
		if len(out.text) == 0 && time.Since(beat) > beatEvery {
			out.text = append(out.text, ":\n\n"...)
		}
		if len(out.text) > 0 {
			beat = time.Now()
			if out.send() != nil {
				return
			}
		}
		if len(page) == 0 {
			err = feed.Wait(r.Context(), q.after, stopWithin)
		}
		if err == nil {
			page, err = feed.Read(r.Context(), q.after, outcomesAtATime)
		}
		if err != nil {
			a.problemOf(r, err)
			return
		}
	}
}

// piecemeal sends an answer in pieces, each with its own time limit.
type piecemeal struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	within time.Duration
	text   []byte // the next piece
}

func newPiecemeal(w http.ResponseWriter, within time.Duration) *piecemeal {
	return &piecemeal{w: w, rc: http.NewResponseController(w), within: within}
}

// send sends the next piece.
func (p *piecemeal) send() error {
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.within)) // not supported by a test recorder
	_, err := p.w.Write(p.text)
	p.text = p.text[:0]
	return errors.Join(err, p.rc.Flush())
}

// acknowledgement is the body of a reader's acknowledgement.
type acknowledgement struct {
	Reader string `json:"reader"`
	Cursor string `json:"cursor"`
}

// ackOutcomes records that a reader has processed all outcomes up to a cursor.
func (a *API) ackOutcomes(w http.ResponseWriter, r *http.Request) {
	feed, p := a.feedOf(r)
	var ack acknowledgement
	if p == nil {
		ack, p = acknowledgementOf(r)
	}
	if p != nil {
		drain(w, r)
		p.answer(w)
		return
	}
	a.show(w, r, func(ctx context.Context) (any, error) {
		v, err := feed.Ack(ctx, ack.Reader, ack.Cursor)
		if err != nil {
			return nil, a.readerProblem(r, err)
		}
		return v, nil
	})
}

func acknowledgementOf(r *http.Request) (ack acknowledgement, p *problem) {
	for name := range r.URL.Query() {
		return ack, new(newProblem(codeRequest, fmt.Sprintf("there is no parameter %.40q", name), "reader and cursor stand in the body"))
	}
	var text bytes.Buffer
	d := json.NewDecoder(io.TeeReader(io.LimitReader(r.Body, ackMost), &text))
	d.DisallowUnknownFields()
	err := d.Decode(&ack)
	if _, behind := d.Token(); err != nil || behind != io.EOF || slices.Contains([]string{ack.Reader, ack.Cursor}, "") {
		return ack, new(newProblem(codeRequest, `the body is not an acknowledgement`, `send {"reader": "NAME", "cursor": "CURSOR"} with the cursor of the last line that you have`))
	}
	if err := producer.Once(text.Bytes()); err != nil {
		return ack, new(newProblem(codeRequest, "the body is not an acknowledgement: "+err.Error(), "write each key once"))
	}
	return ack, nil
}
