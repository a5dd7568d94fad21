package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"spillway/internal/job"
)

// try takes one connection, waits for the slot, writes and reads. again is true if a kept connection died
// before anything was written on it. Only then may the same call, which cancel ends, take another connection.
func (c *Client) try(ctx context.Context, cancel context.CancelCauseFunc, call job.Request, m *message) (res job.Result, again bool) {
	g := &gate{ctx: ctx, due: call.Due, tooLate: call.TooLate, wrote: call.Wrote, cancel: cancel, back: make(chan struct{})}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: g.gotConn})
	resp, err := c.conns.transport.RoundTrip(m.request(traced))
	close(g.back)
	if err == nil {
		res = c.read(resp)
	}
	pass := g.shut()
	if c.conns.transport.Proxy != nil && res.Status == http.StatusProxyAuthRequired {
		return job.Result{Stage: job.NotSent, Err: c.dialer.proxy.refusal(), Wrote: pass.at}, false // the gateway has not seen it
	}
	switch {
	case pass.late:
		res = job.Result{Stage: job.NotSent, Late: true, Err: ErrTooLate}
	case !pass.wrote:
		// An "answer" to a request that was not written is not an answer: servers send 408 before they close an
		// idle connection.
		res = job.Result{Stage: job.NotSent, Err: c.notSent(ctx, err)}
		again = pass.reused && ctx.Err() == nil
	case err != nil:
		res = job.Result{Stage: job.Sent, Err: c.noAnswer(ctx, err)}
	}
	res.Wrote = pass.at
	return res, again
}

// read reads the answer's head and the beginning of its body. The connection is kept only if the answer was
// read to its end; otherwise net/http closes it.
func (c *Client) read(resp *http.Response) job.Result {
	defer resp.Body.Close()
	res := job.Result{Stage: job.Answered, Status: resp.StatusCode, Header: resp.Header}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return res
	}
	// One more byte than is kept distinguishes a too long answer from a full one, and reaches the end that
	// frees the connection.
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.most+1))
	switch {
	case err != nil:
		res.Err = c.cutOff(err)
	case int64(len(body)) > c.most:
		body, res.Err = body[:c.most], c.tooLong()
	}
	res.Body = body
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		res = c.unzip(res)
	}
	return res
}

// unzip decompresses an answer that was compressed although identity was requested.
func (c *Client) unzip(res job.Result) job.Result {
	z, err := gzip.NewReader(bytes.NewReader(res.Body))
	if err != nil {
		if res.Err == nil && len(res.Body) > 0 {
			res.Err = errors.New("the answer says that it is gzip and is not")
		}
		return res
	}
	body, err := io.ReadAll(io.LimitReader(z, c.most+1))
	switch {
	case int64(len(body)) > c.most:
		body, res.Err = body[:c.most], c.tooLong()
	case err != nil && res.Err == nil:
		res.Err = errors.New("the answer's gzip is cut off or damaged")
	}
	res.Body = body
	return res
}

// message is a prepared call. Tries differ only in the context and the body's reader.
type message struct {
	head http.Request // without body
	body []byte
}

// request returns a request that net/http can't replay: its body has no GetBody, and an empty body is still a
// body. A POST with an empty body must be sent with Content-Length: 0, which net/http does only for no body at
// all; there only the gate prevents a replay.
func (m *message) request(ctx context.Context) *http.Request {
	r := m.head.WithContext(ctx)
	lacksBody := r.Method == http.MethodGet || r.Method == http.MethodDelete
	if lacksBody || len(m.body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(m.body))
		r.ContentLength = int64(len(m.body))
	}
	return r
}

// pass is the final state of a gate.
type pass struct {
	wrote  bool      // something may be on the wire
	at     time.Time // just after the first byte
	late   bool
	reused bool // the last connection was kept from an earlier call
}
