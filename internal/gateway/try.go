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

// try takes one connection, waits for the slot, writes and reads. again is true when a kept connection died before
// anything was written on it: then, and only then, another one may be taken under the same call, which cancel ends.
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
		// An "answer" to a request that was not written is none: servers send 408 before they close an idle connection.
		res = job.Result{Stage: job.NotSent, Err: c.notSent(ctx, err)}
		again = pass.reused && ctx.Err() == nil
	case err != nil:
		res = job.Result{Stage: job.Sent, Err: c.noAnswer(ctx, err)}
	}
	res.Wrote = pass.at
	return res, again
}

// read takes the answer's head and the beginning of its body. The connection is kept only where the answer ended by
// itself; net/http closes it otherwise.
func (c *Client) read(resp *http.Response) job.Result {
	defer resp.Body.Close()
	res := job.Result{Stage: job.Answered, Status: resp.StatusCode, Header: resp.Header}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return res
	}
	// One byte more than is kept tells a long answer from a full one, and meets the end that frees the connection.
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

// unzip reads an answer that was compressed though we asked for identity.
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

// message is a call made ready: what differs from try to try is only the context and the body's reader.
type message struct {
	head http.Request // without body
	body []byte
}

// request returns a request that net/http can't replay: its body has no GetBody, and an empty one is still a body.
// A body of length zero on a POST must go as Content-Length: 0, which only no body at all gives; there the gate
// alone stands between a replay and the wire.
func (m *message) request(ctx context.Context) *http.Request {
	r := m.head.WithContext(ctx)
	lacksBody := r.Method == http.MethodGet || r.Method == http.MethodDelete
	if lacksBody || len(m.body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(m.body))
		r.ContentLength = int64(len(m.body))
	}
	return r
}

// pass is what became of a gate.
type pass struct {
	wrote  bool      // something may have reached the wire
	at     time.Time // just after the first byte
	late   bool
	reused bool // the last connection had been kept from an earlier call
}
