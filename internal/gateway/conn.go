package gateway

import (
	"net"
	"sync"
	"sync/atomic"
)

// countedConn counts the bytes that the kernel accepted. It lies below TLS, whose own count would miss a record
// that was sent only in part.
type countedConn struct {
	net.Conn
	handed atomic.Int64
}

// Write writes p and counts the bytes.
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
	dead   atomic.Bool // closed by the peer, or unexpected data came in
	closed chan struct{}
	once   sync.Once
}

// Write writes p if a call is open on this connection. A call's first write waits for its slot.
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

// Read reads an answer. Data that arrives before a call was written is no answer, and is withheld from
// net/http.
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

// Close closes the connection and releases a call that waits on it for its slot.
func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
