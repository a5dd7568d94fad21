package gateway

import (
	"context"
	"crypto/tls"
	"net"
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
	return &gatedConn{Conn: conn, handed: &counted.handed, closed: make(chan struct{})}, nil
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
	counted := &countedConn{Conn: tcp}
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
