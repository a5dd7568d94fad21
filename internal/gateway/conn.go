package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

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

// pooledIdle is how many idle connections to one address are kept for all gateways that share them.
const pooledIdle = 4096

// Pool holds the connections of gateways that are called in the same way: the same address, proxy and dial
// timeout, and the system's roots. With it, thousands of merchants of one payment service need as many
// connections as they have calls in flight, not one each; a connection takes some 20 kB and two goroutines. The
// call itself says which merchant it is for. A gateway with its own TLS configuration does not share
// connections. A Pool is safe for concurrent use; a nil Pool shares nothing.
type Pool struct {
	mu  sync.Mutex
	all map[way]*pooled
}

// NewPool returns an empty pool.
func NewPool() *Pool { return &Pool{all: make(map[way]*pooled)} }

// way is what connections must have in common to be shared.
type way struct {
	addr    string
	secure  bool
	proxy   string
	timeout time.Duration
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

// take returns the connections to share for cfg, creating them if needed, and a function that releases them.
// The last release closes the idle ones. ok is false if nothing may be shared.
func (p *Pool) take(cfg Config, d *dialer) (with *pooled, leave func(), ok bool) {
	if p == nil || cfg.TLS != nil || cfg.Dial != nil {
		return nil, nil, false
	}
	w := way{addr: d.addr, secure: d.tls != nil, proxy: cfg.Proxy, timeout: d.timeout}
	p.mu.Lock()
	defer p.mu.Unlock()
	with = p.all[w]
	if with == nil {
		with = &pooled{transport: newTransport(d, d.dial)}
		with.transport.MaxIdleConnsPerHost = pooledIdle
		p.all[w] = with
	}
	with.count(1, 0)
	return with, sync.OnceFunc(func() { p.leave(w, with) }), true
}

func (p *Pool) leave(w way, with *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if with.count(-1, 0) == 0 && p.all[w] == with {
		delete(p.all, w)
	}
}

// Proxy is the HTTP proxy through which a gateway is called.
type Proxy struct {
	// Addr is its host and port.
	Addr string
	url  *url.URL
}

// ParseProxy parses a URL like http://user:password@proxy:3128. Its errors don't quote it. Empty = no proxy:
// nil.
func ParseProxy(raw string) (*Proxy, error) {
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return nil, errors.New("it can't be read: write http://user:password@host:port, with special characters of the password as %XX")
	}
	return &Proxy{Addr: u.Host, url: u}, nil
}

// mostOfProxy is how much of a proxy's answer is read, in bytes. Its body is not needed.
const mostOfProxy = 64 << 10

// Tunnel asks the proxy at the other end of a connection for a tunnel to addr. After success, what is written
// goes to addr.
func (p *Proxy) Tunnel(ctx context.Context, c net.Conn, addr string) error {
	end := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer end()
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{"User-Agent": {"spillway"}}}
	if user := p.url.User; user != nil {
		password, _ := user.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := r.Write(c); err != nil {
		return p.broken(ctx, addr, err)
	}
	answer := &io.LimitedReader{R: c, N: mostOfProxy}
	in := bufio.NewReaderSize(answer, 4096)
	resp, err := http.ReadResponse(in, r)
	if err != nil && answer.N == 0 {
		return &callError{text: fmt.Sprintf("the proxy %s opened no way to %s: its answer is longer than %d KiB", p.Addr, addr, mostOfProxy>>10)}
	}
	if err != nil {
		return p.broken(ctx, addr, err)
	}
	switch {
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return p.refusal()
	case resp.StatusCode != http.StatusOK:
		return &callError{text: fmt.Sprintf("the proxy %s opens no way to %s: it answered %d", p.Addr, addr, resp.StatusCode)}
	case in.Buffered() > 0:
		return &callError{text: "the proxy " + p.Addr + " said more than it was asked for"}
	case !end():
		return p.broken(ctx, addr, context.Cause(ctx))
	}
	return nil
}

// refusal is the error for a proxy that rejects the password. It can't come from a gateway, even without a
// tunnel.
func (p *Proxy) refusal() error {
	return &callError{text: "the proxy " + p.Addr + " does not let us in (407): check user and password in request.proxy"}
}

func (p *Proxy) broken(ctx context.Context, addr string, err error) error {
	why := detail(err)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		why = ": it closed the connection"
	}
	text := because(fmt.Sprintf("the proxy %s opened no way to %s%s", p.Addr, addr, why), err)
	if ctx.Err() != nil {
		text.text, text.cause = fmt.Sprintf("the proxy %s opened no way to %s in time", p.Addr, addr), context.DeadlineExceeded
	}
	return text
}
