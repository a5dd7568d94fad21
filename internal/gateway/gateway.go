// Package gateway is step 5 of 8: one HTTP call to a payment gateway, written at its slot and never by itself sent twice.
//
//	Send ── request ── http.Transport ── gatedConn ── gate ── TLS ── TCP
//	                   (pool, HTTP/1.1)  first write waits here for the slot
//
// The gate sits in the connection because nothing else does exactly what is needed: net/http resends by itself when a
// kept connection turns out dead, and time passes between asking it to send and its first write.
package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"spillway/internal/job"
)

const (
	defaultTimeout  = 30 * time.Second
	defaultMaxConns = 64
	// dialTimeout bounds look-up, connection and TLS handshake together, within the call's time-out.
	dialTimeout = 10 * time.Second
	// idleTimeout is shorter than the 60 s after which common load balancers drop a connection: who closes first
	// can't be surprised by the other.
	idleTimeout = 50 * time.Second
	// maxAnswer is how much of an answer's body is read.
	maxAnswer = 64 << 10
	// maxTries bounds how many dead kept connections one call goes through before its write.
	maxTries = 10
)

// Config says how one gateway is called.
type Config struct {
	// URL may hold {id} and {payload.FIELD} (dotted) after its host, escaped as their place demands.
	URL string
	// Method is GET, POST, PUT, PATCH or DELETE. Empty means POST. GET and DELETE go without a body.
	Method string
	// Encoding is json (also "") or form.
	Encoding string
	// Strip names fields of the payload (dotted paths) that are left out of the body. URL and JobHeaders may have them.
	Strip []string
	// Headers go with every call; their values may be secrets.
	Headers map[string]string
	// JobHeaders go with every call too, and their values have places for what the job has. A job without it can't be called.
	JobHeaders map[string][]HeaderPart
	// Key says where Request.Key stands and how it is written. The zero KeyShape: the gateway has no keys.
	Key job.KeyShape
	// Timeout bounds a call from its slot to the end of its answer. Zero means 30 s.
	Timeout time.Duration
	// MaxConns is how many idle connections are kept for the next calls; more calls than that open their own and
	// close them again. Zero means 64. A Pool has as many as were under way at once.
	MaxConns int
	// TLS is the base for connections to https. nil = the system's roots.
	TLS *tls.Config
	// Proxy is the URL of the HTTP proxy that the gateway is called through; it may hold a password. Empty = none: the environment's is not obeyed.
	Proxy string
	// Pool has the connections that the client may share with others. Nil: it has its own.
	Pool *Pool
	// Dial opens each connection to the gateway, its token endpoint, or its proxy. nil = over the machine's network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Sign says how calls are signed. The zero Sign: not at all.
	Sign Sign
	// OAuth2 says where the access tokens of calls come from. The zero OAuth2: calls carry none.
	OAuth2 OAuth2

	places func(name string) (part, error) // of the URL; nil: parsePlace
}

// Client calls one gateway. It is safe for any number of goroutines.
type Client struct {
	shape   shape
	timeout time.Duration
	most    int64 // how much of an answer's body is read, in bytes
	dialer  *dialer
	conns   *pooled
	leave   func() // lets go of conns
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

// dialer returns what opens connections to an address by the configuration's TLS and proxy.
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

// newTransport leaves out all that the default one does unasked: proxies from the environment, gzip, HTTP/2.
// Using it without http.Client leaves out redirects and cookies as well.
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
		t.Proxy = http.ProxyURL(d.proxy.url) // which asks it for the whole URL; to https, the dialer makes a tunnel
	}
	return t
}

// Send makes one call and always returns something to judge. It ends at the latest Timeout after the later of now and
// Due; ctx is the call's own, and its end breaks the call off. A job that can't be made into a request comes back as
// not sent, with an error of code job.CodeInvalid.
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

// exchange makes a call of a message, unless there is an error in its place.
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

// send goes through dead connections until one stands, writes once, and reads the answer.
func (c *Client) send(ctx context.Context, call job.Request, start time.Time, m *message) job.Result {
	c.conns.count(0, 1)
	defer c.conns.count(0, -1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(time.Until(later(start, call.Due).Add(c.timeout)), func() { cancel(errTimeout) }).Stop()
	for try := 1; ; try++ {
		res, again := c.try(ctx, cancel, call, m)
		if !again || try == maxTries {
			return res
		}
	}
}

// Reach opens a connection and closes it again, and says why it can't.
func (c *Client) Reach(ctx context.Context) error {
	conn, err := c.dialer.dial(ctx, "", "")
	if err != nil {
		return err
	}
	return conn.Close()
}

// Close closes the idle connections that no other client may use, at once or after the last call under way. Calls under way finish.
func (c *Client) Close() { c.leave() }
