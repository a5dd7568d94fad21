package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialer opens connections to one address, and keeps some open ahead of need.
type dialer struct {
	addr      string
	timeout   time.Duration
	tls       *tls.Config // nil: plain
	proxy     *Proxy      // nil: none
	maxSpares int
	open      atomic.Int64 // connections that stand

	mu     sync.Mutex
	spares []spare // oldest first
	shut   bool
}

type spare struct {
	conn  *gatedConn
	since time.Time
}

func newDialer(addr string, secure bool, timeout time.Duration, base *tls.Config) *dialer {
	d := &dialer{addr: addr, timeout: timeout}
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

// dial is net/http's way to a connection: one that was opened ahead, or a new one.
func (d *dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if c := d.spare(); c != nil {
		return c, nil
	}
	return d.connect(ctx)
}

// connect opens a connection, with its TLS handshake done.
func (d *dialer) connect(ctx context.Context) (*gatedConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, errDialTimeout)
	defer cancel()
	hop := d.addr
	if d.proxy != nil {
		hop = d.proxy.Addr
	}
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", hop)
	if err != nil {
		return nil, d.dialError(ctx, err)
	}
	if d.proxy != nil && d.tls != nil {
		if err := d.proxy.Tunnel(ctx, tcp, d.addr); err != nil {
			tcp.Close()
			return nil, err
		}
	}
	counted := &countedConn{Conn: tcp}
	c := &gatedConn{Conn: counted, handed: &counted.handed, closed: make(chan struct{})}
	if d.tls != nil {
		secure := tls.Client(counted, d.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			tcp.Close()
			return nil, d.handshakeError(ctx, err)
		}
		c.Conn = secure
	}
	d.open.Add(1)
	c.onClose = func() { d.open.Add(-1) }
	return c, nil
}

// warm opens up to n connections in the background.
func (d *dialer) warm(n int) {
	d.mu.Lock()
	n = min(n, d.maxSpares-len(d.spares))
	d.mu.Unlock()
	for range n {
		go func() { _ = d.keepOne(context.Background()) }() // the calls will meet what fails, and say so
	}
}

// keepOne opens a connection ahead of need.
func (d *dialer) keepOne(ctx context.Context) error {
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	c.watch = newWatch(c.Conn)
	d.put(c)
	return nil
}

func (d *dialer) put(c *gatedConn) {
	d.mu.Lock()
	if keep := !d.shut && len(d.spares) < d.maxSpares; keep {
		d.spares = append(d.spares, spare{conn: c, since: time.Now()})
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	c.Close()
}

// spare takes the youngest connection that is alive, and closes those that are not.
func (d *dialer) spare() *gatedConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.spares) > 0 {
		last := d.spares[len(d.spares)-1]
		d.spares = d.spares[:len(d.spares)-1]
		if last.alive() {
			return last.conn
		}
		last.conn.Close()
	}
	return nil
}

// alive says that nothing, and no end, has come in, and that the gateway has had no time to tire of it.
func (s spare) alive() bool {
	select {
	case <-s.conn.watch.done:
		return false
	default:
		return time.Since(s.since) < idleTimeout
	}
}

func (d *dialer) close() {
	d.mu.Lock()
	spares := d.spares
	d.spares, d.shut = nil, true
	d.mu.Unlock()
	for _, s := range spares {
		s.conn.Close()
	}
}
