package testkit

import (
	"net"
	"sync"
	"testing"
	"time"
)

// InnerLine returns a line to a server in this process, and the listener of that server. If the connections of listen stamp what
// they read (ReadStamped), those of the server do too: with the moment at which the bytes arrived at the clients' end
// of the line, however long the line takes.
func InnerLine(t testing.TB, listen func(addr string) (net.Listener, error)) (*Line, net.Listener) {
	t.Helper()
	inner := &innerListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l := NewLine(t, LineParams{Listen: listen, Reach: inner.reach, Exchanges: true})
	inner.addr = innerAddr(l.Addr())
	t.Cleanup(func() { _ = inner.Close() }) // before the line's own end: nobody waits to be accepted then
	return l, inner
}

// innerListener is where a server accepts the connections of its line.
type innerListener struct {
	addr   innerAddr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type innerAddr string

func (innerAddr) Network() string  { return "tcp" }
func (a innerAddr) String() string { return string(a) }

func (l *innerListener) reach() (net.Conn, error) {
	ours, theirs := net.Pipe()
	marks := &marks{}
	select {
	case l.conns <- &innerReader{Conn: theirs, marks: marks}:
		return &innerWriter{Conn: ours, marks: marks}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Accept returns the next connection.
func (l *innerListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *innerListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the address of the line for clients.
func (l *innerListener) Addr() net.Addr { return l.addr }

// marks records when the bytes of a stream arrived, by their place in it.
type marks struct {
	mu            sync.Mutex
	list          []mark
	written, read int64
}

type mark struct {
	end int64 // the place after its bytes
	at  time.Time
}

// innerWriter is the line's end of a connection to an inner server.
type innerWriter struct {
	net.Conn
	marks *marks
}

func (w *innerWriter) writeStamped(p []byte, at time.Time) error {
	m := w.marks
	m.mu.Lock()
	m.written += int64(len(p))
	m.list = append(m.list, mark{m.written, at})
	m.mu.Unlock()
	_, err := w.Write(p)
	return err
}

// innerReader is the server's end.
type innerReader struct {
	net.Conn
	marks *marks
}

// ReadStamped reads, and returns when the first of the bytes arrived.
func (r *innerReader) ReadStamped(p []byte) (int, time.Time, error) {
	n, err := r.Read(p)
	if n == 0 {
		return n, time.Now(), err
	}
	m := r.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.list[0].end <= m.read {
		m.list = m.list[1:]
	}
	m.read += int64(n)
	return n, m.list[0].at, err
}
