// Package gateway is step 5 of 8: one HTTP call to a payment gateway, written at its slot and never resent by
// itself.
//
//	Send ── request ── http.Transport ── gatedConn ── gate ── TLS ── TCP
//	                   (pool, HTTP/1.1)  first write waits here for the slot
//
// The gate is in the connection for two reasons: net/http resends by itself when a kept connection turns out to
// be dead, and time passes between the request to send and the first write.
package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"spillway/internal/job"
)

const (
	defaultTimeout  = 30 * time.Second
	defaultMaxConns = 64
	// dialTimeout bounds name look-up, connection and TLS handshake together, within the call's timeout.
	dialTimeout = 10 * time.Second
	// idleTimeout is shorter than the 60 s after which common load balancers drop a connection: the side that
	// closes first is never surprised by the other.
	idleTimeout = 50 * time.Second
	// maxAnswer is how much of an answer's body is read.
	maxAnswer = 64 << 10
	// maxTries bounds how many dead kept connections one call goes through before its write.
	maxTries = 10
)

// Config says how to call one gateway.
type Config struct {
	// URL may contain {id} and {payload.FIELD} (dotted) after its host, which are escaped as their position
	// requires.
	URL string
	// Method is GET, POST, PUT, PATCH or DELETE. Empty means POST. GET and DELETE have no body.
	Method string
	// Encoding is json (also "") or form.
	Encoding string
	// Strip names payload fields (dotted paths) that are left out of the body. URL and JobHeaders may use them.
	Strip []string
	// Headers are sent with every call; their values may be secrets.
	Headers map[string]string
	// JobHeaders are sent with every call, too. Their values contain placeholders for the job's own values. A
	// job that lacks one can't be called.
	JobHeaders map[string][]HeaderPart
	// Key says where Request.Key is sent and how it is written. The zero KeyShape: the gateway has no keys.
	Key job.KeyShape
	// Timeout bounds a call from its slot to the end of its answer. Zero means 30 s.
	Timeout time.Duration
	// MaxConns is how many idle connections are kept. Further concurrent calls open connections and close them
	// again. Zero means 64. A Pool keeps as many as were ever in use at once.
	MaxConns int
	// TLS is the base configuration for https. nil = the system's roots.
	TLS *tls.Config
	// Proxy is the URL of the HTTP proxy to the gateway; it may contain a password. Empty = none; the
	// environment's proxy is ignored.
	Proxy string
	// Pool has connections that the client may share with others. Nil: it has its own.
	Pool *Pool
	// Dial opens connections to the gateway, its token endpoint, or its proxy. nil = the machine's network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Sign says how calls are signed. The zero Sign: not at all.
	Sign Sign
	// OAuth2 says how to get the calls' access tokens. The zero OAuth2: calls carry none.
	OAuth2 OAuth2

	places func(name string) (part, error) // of the URL; nil: parsePlace
}

// Client calls one gateway. It is safe for concurrent use.
type Client struct {
	shape   shape
	timeout time.Duration
	most    int64 // bytes of an answer's body that are read
	dialer  *dialer
	conns   *pooled
	leave   func() // releases conns
}

// pooled is the connections of one client, or of those clients of a Pool that share them.
type pooled struct {
	transport *http.Transport

	mu    sync.Mutex
	users int // open clients
	calls int // in flight
}

// count adds clients and calls, and returns the number of clients. When neither is left, idle connections are
// closed. They can't be closed while a call is in flight, because net/http may mark a connection idle just
// before its call has the answer, which would be lost.
func (p *pooled) count(users, calls int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users += users
	p.calls += calls
	if p.users == 0 && p.calls == 0 {
		p.transport.CloseIdleConnections()
	}
	return p.users
}

// New checks the configuration and returns a client. It opens no connection.
func New(cfg Config) (*Client, error) {
	s, err := newShape(cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{shape: s, timeout: cfg.Timeout, most: maxAnswer}
	if c.timeout <= 0 {
		c.timeout = defaultTimeout
	}
	maxConns := cfg.MaxConns
	if maxConns <= 0 {
		maxConns = defaultMaxConns
	}
	if c.dialer, err = cfg.dialer(s.url.address(), s.url.secure, min(dialTimeout, c.timeout)); err != nil {
		return nil, err
	}
	var shared bool
	if c.conns, c.leave, shared = cfg.Pool.take(cfg, c.dialer); !shared {
		own := &pooled{transport: newTransport(c.dialer, c.dialer.dial), users: 1}
		own.transport.MaxIdleConnsPerHost = maxConns
		c.conns, c.leave = own, sync.OnceFunc(func() { own.count(-1, 0) })
	}
	return c, nil
}

// Send makes one call and always returns a result that can be judged. It ends at the latest Timeout after the
// later of now and Due. The end of ctx, which is the call's own, aborts the call. A job that can't be made into
// a request is returned as not sent, with an error of code job.CodeInvalid.
func (c *Client) Send(ctx context.Context, call job.Request) job.Result {
	start := time.Now()
	m, err := c.shape.message(call, later(start, call.Due))
	return c.exchange(ctx, call, start, m, err)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// exchange makes a call with a message, unless err is set.
func (c *Client) exchange(ctx context.Context, call job.Request, start time.Time, m message, err error) job.Result {
	res := job.Result{Stage: job.NotSent, Err: err}
	if err == nil {
		res = c.send(ctx, call, start, &m)
	}
	from := start
	if !res.Wrote.IsZero() {
		from = res.Wrote
	}
	res.Took = time.Since(from)
	return res
}

// send tries connections until one is alive, writes once, and reads the answer.
func (c *Client) send(ctx context.Context, call job.Request, start time.Time, m *message) job.Result {
	c.conns.count(0, 1)
	defer c.conns.count(0, -1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end := time.AfterFunc(time.Until(later(start, call.Due).Add(c.timeout)), func() { cancel(errTimeout) })
	defer end.Stop()
	extend := func(due time.Time) { end.Reset(time.Until(later(time.Now(), due).Add(c.timeout))) }
	for try := 1; ; try++ {
		res, again := c.try(ctx, cancel, extend, &call, m)
		if !again || try == maxTries {
			return res
		}
	}
}

// try takes one connection, waits for the slot, writes and reads. again is true if a kept connection died
// before anything was written on it. Only then may the same call, which cancel ends, take another connection.
func (c *Client) try(ctx context.Context, cancel context.CancelCauseFunc, extend func(due time.Time), call *job.Request, m *message) (res job.Result, again bool) {
	g := &gate{ctx: ctx, due: call.Due, tooLate: call.TooLate, again: call.Again, wrote: call.Wrote, cancel: cancel, extend: extend, back: make(chan struct{})}
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: g.gotConn})
	resp, err := c.conns.transport.RoundTrip(m.request(traced))
	close(g.back)
	if err == nil {
		res = c.read(resp)
	}
	pass := g.shut()
	call.Due = pass.due
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
	case err != nil && refusesCertificate(err) && pass.conn.unproven():
		res = job.Result{Stage: job.NotSent, Err: &callError{text: c.dialer.addr + " refuses our certificate (request.tls.cert)" + detail(err)}}
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
	if codings := resp.Header.Values("Content-Encoding"); len(codings) > 0 {
		return c.decode(res, strings.TrimSpace(strings.Join(codings, ", ")))
	}
	return res
}

// dialer opens connections to one address.
type dialer struct {
	addr    string
	timeout time.Duration
	tls     *tls.Config // nil: plain
	proxy   *Proxy      // nil: none
	open    func(ctx context.Context, network, addr string) (net.Conn, error)
}

func newDialer(addr string, secure bool, timeout time.Duration, base *tls.Config) *dialer {
	d := &dialer{addr: addr, timeout: timeout, open: (&net.Dialer{}).DialContext}
	if !secure {
		return d
	}
	d.tls = &tls.Config{}
	if base != nil {
		d.tls = base.Clone()
	}
	d.tls.NextProtos = []string{"http/1.1"}
	if d.tls.ServerName == "" {
		d.tls.ServerName, _, _ = net.SplitHostPort(addr)
	}
	if d.tls.ClientSessionCache == nil {
		d.tls.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
	return d
}

// dial opens a connection for calls, which writes only under a gate. net/http uses it.
func (d *dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, counted, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	return newGatedConn(conn, counted), nil
}

// connect opens a connection and completes its TLS handshake. It also returns the counting connection below
// TLS.
func (d *dialer) connect(ctx context.Context) (net.Conn, *countedConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, errDialTimeout)
	defer cancel()
	hop := d.addr
	if d.proxy != nil {
		hop = d.proxy.Addr
	}
	tcp, err := d.open(ctx, "tcp", hop)
	if err != nil {
		return nil, nil, d.dialError(ctx, err)
	}
	if d.proxy != nil && d.tls != nil {
		if err := d.proxy.Tunnel(ctx, tcp, d.addr); err != nil {
			tcp.Close()
			return nil, nil, err
		}
	}
	counted := newCountedConn(tcp)
	if d.tls == nil {
		return counted, counted, nil
	}
	secure := tls.Client(counted, d.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		tcp.Close()
		return nil, nil, d.handshakeError(ctx, err)
	}
	return secure, counted, nil
}

// dialer returns a dialer for an address, with the configuration's TLS and proxy.
func (cfg Config) dialer(addr string, secure bool, timeout time.Duration) (*dialer, error) {
	proxy, err := ParseProxy(cfg.Proxy)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	d := newDialer(addr, secure, timeout, cfg.TLS)
	d.proxy = proxy
	if cfg.Dial != nil {
		d.open = cfg.Dial
	}
	return d, nil
}

// newTransport disables what the default transport does by itself: proxies from the environment, gzip, HTTP/2.
// Using it without http.Client avoids redirects and cookies, too.
func newTransport(d *dialer, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{
		DialContext:            dial,
		DialTLSContext:         dial,
		DisableCompression:     true,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 256 << 10,
		Protocols:              protocols,
	}
	if d.proxy != nil && d.tls == nil {
		t.Proxy = http.ProxyURL(d.proxy.url) // asked for the whole URL; for https, the dialer makes a tunnel
	}
	return t
}

// Reach opens a connection and closes it again. It returns why that is not possible.
func (c *Client) Reach(ctx context.Context) error {
	conn, err := c.dialer.dial(ctx, "", "")
	if err != nil {
		return err
	}
	return conn.Close()
}

// Close closes the idle connections that no other client may use, at once or after the last call in flight.
// Calls in flight finish.
func (c *Client) Close() { c.leave() }
