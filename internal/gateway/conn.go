package gateway

import (
	"net"
	"sync"
	"sync/atomic"
)

// countedConn counts the bytes that the kernel took. It lies beneath TLS, whose own count would miss a record of which
// only a part went out.
type countedConn struct {
	net.Conn
	handed atomic.Int64
}

// Write writes p and counts.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.handed.Add(int64(n))
	return n, err
}

// gatedConn is the connection that net/http sees. It writes only under a gate.
type gatedConn struct {
	net.Conn
	handed *atomic.Int64

	gate   atomic.Pointer[gate]
	dead   atomic.Bool // its end, or something unasked, has come in
	closed chan struct{}
	once   sync.Once
}

// Write hands p to the wire if a call is open on this connection. A call's first write waits for its slot.
func (c *gatedConn) Write(p []byte) (int, error) {
	g := c.gate.Load()
	switch {
	case g == nil:
		return 0, errNoGate
	case g.open(c):
		return c.Conn.Write(p)
	}
	return g.first(c, p)
}

// Read reads an answer. What comes while no call has been written is not one, and is kept from net/http.
func (c *gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	g := c.gate.Load()
	if g == nil {
		c.dead.Store(true)
	}
	if (g == nil || !g.heard(c)) && n > 0 {
		return 0, errUnasked
	}
	return n, err
}

// Close closes the connection and lets go of a call that waits on it for its slot.
func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
