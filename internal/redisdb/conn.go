package redisdb

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"
)

// lostError is a reply that did not arrive: whether the command has run is unknown.
//
// It hides its cause from errors.Is and errors.As on purpose. MaxRetries -1 keeps go-redis from resending a command,
// but its cluster client has a loop of its own, meant for MOVED, that also resends after anything like a timeout or an
// EOF: a script that takes a slot would run twice. It does not resend after an error that it does not recognise.
type lostError struct{ cause error }

func (e *lostError) Error() string { return "no answer from Redis: " + e.cause.Error() }

// carefulConn turns every failure of an established connection into a lostError.
type carefulConn struct{ net.Conn }

func (c carefulConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, lost(err)
}

func (c carefulConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, lost(err)
}

// carefulSocket also exposes its file descriptor, with which the driver detects that an idle connection was closed.
type carefulSocket struct {
	carefulConn
	syscall.Conn
}

func lost(err error) error {
	if err == nil {
		return nil
	}
	return &lostError{err}
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

func careful(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if socket, ok := conn.(syscall.Conn); ok {
			return carefulSocket{carefulConn{conn}, socket}, nil
		}
		return carefulConn{conn}, nil
	}
}

// dialTo returns a dialler that differs from the driver's in that ctx bounds the TLS handshake, too.
func dialTo(t *target, opt Options) dialer {
	d := &net.Dialer{Timeout: opt.DialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	if !t.tls {
		return d.DialContext
	}
	conf := opt.TLS
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return (&tls.Dialer{NetDialer: d, Config: conf}).DialContext
}
