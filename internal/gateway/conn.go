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
	handed  *atomic.Int64
	onClose func()

	gate   atomic.Pointer[gate]
	dead   atomic.Bool // its end, or something unasked, has come in
	closed chan struct{}
	once   sync.Once
	watch  *watch // nil unless it was opened ahead of need
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
	n, err := c.take(p)
	g := c.gate.Load()
	if g == nil {
		c.dead.Store(true)
	}
	if (g == nil || !g.heard(c)) && n > 0 {
		return 0, errUnasked
	}
	return n, err
}

// take reads what the watch has read, then from the connection.
func (c *gatedConn) take(p []byte) (int, error) {
	if c.watch != nil {
		if n, err, ok := c.watch.take(p); ok {
			return n, err
		}
	}
	return c.Conn.Read(p)
}

// Close closes the connection and lets go of a call that waits on it for its slot.
func (c *gatedConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.onClose()
	})
	return c.Conn.Close()
}

// watch reads ahead on a connection that nobody uses yet, so that its end is noticed at once.
type watch struct {
	done chan struct{} // closed when the read has come back
	buf  []byte
	err  error
	used atomic.Bool // all of it has been handed over
}

// early says that something, or the end, has come in that nobody has read yet: before the write that is no answer.
func (w *watch) early() bool {
	if w == nil || w.used.Load() {
		return false
	}
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func newWatch(c net.Conn) *watch {
	w := &watch{done: make(chan struct{})}
	go func() {
		buf := make([]byte, 512)
		n, err := c.Read(buf)
		w.buf, w.err = buf[:n], err
		close(w.done)
	}()
	return w
}

// take waits for the read and hands over what it brought, once; ok is false when all of it has been taken.
func (w *watch) take(p []byte) (n int, err error, ok bool) {
	if w.used.Load() {
		return 0, nil, false
	}
	<-w.done
	n = copy(p, w.buf)
	w.buf = w.buf[n:]
	if len(w.buf) > 0 {
		return n, nil, true
	}
	w.used.Store(true)
	return n, w.err, n > 0 || w.err != nil
}
