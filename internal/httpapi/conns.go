package httpapi

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// mostConns is the most connections of the HTTP server if the process may have enough descriptors; an idle one
// takes some 16 KiB.
const mostConns = 4096

// MostConns returns how many connections the HTTP server may hold: at most half of the process's descriptors,
// so that calls and Redis get the others.
func MostConns() int { return min(mostConns, max(descriptors()/2, 1)) }

// bounded is a listener with a bounded number of connections. Beyond it, a new connection replaces the oldest
// one without an authenticated request, or else the oldest idle one. So a new caller, such as a probe, is
// answered however many others hang.
type bounded struct {
	*net.TCPListener
	most   int
	meters *Metrics
	log    *slog.Logger

	mu   sync.Mutex
	open list.List // of *conn, oldest first
	told time.Time // when that was last logged
}

// conn is a caller's connection.
type conn struct {
	*net.TCPConn
	of    *bounded
	place *list.Element
	known atomic.Bool // it had an authenticated request
	busy  atomic.Bool // a request is in progress
	once  sync.Once
}

// Bound returns ln with at most so many open connections. meters and log may be nil.
func Bound(ln *net.TCPListener, most int, meters *Metrics, log *slog.Logger) net.Listener {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &bounded{TCPListener: ln, most: most, meters: meters, log: log}
}

// Accept waits for a connection for which there is room.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		tcp, err := b.AcceptTCP()
		if err != nil {
			return nil, err
		}
		c := &conn{TCPConn: tcp, of: b}
		out := b.add(c)
		if out != nil {
			out.Close()
			b.meters.crowdedOut()
		}
		if out != c {
			return c, nil
		}
	}
}

// add adds a connection, and returns the one to close for it, if any.
func (b *bounded) add(c *conn) *conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.place = b.open.PushBack(c)
	b.meters.connections(b.open.Len())
	if b.open.Len() <= b.most {
		return nil
	}
	if time.Since(b.told) > time.Minute {
		b.told = time.Now()
		b.log.Warn("callers hold as many connections as there may be: the oldest that show no token are closed, then the oldest that idle",
			"most", b.most, "hint", "see who holds them (ss -tn), and keep strangers out before they reach this port; raise the limit of descriptors if they are all callers of yours")
	}
	return b.oldest(c)
}

// oldest returns the connection to close; c itself if there is no other.
func (b *bounded) oldest(c *conn) *conn {
	idle := c
	for e := b.open.Front(); e != c.place; e = e.Next() {
		o := e.Value.(*conn)
		if !o.known.Load() {
			return o
		}
		if idle == c && !o.busy.Load() {
			idle = o
		}
	}
	return idle
}

// Close closes the connection and makes room for another.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.open.Remove(c.place)
		c.of.meters.connections(c.of.open.Len())
	})
	return c.TCPConn.Close()
}

// moved is called by net/http when a connection's state changes.
func moved(c net.Conn, s http.ConnState) {
	if own, ok := c.(*conn); ok {
		own.busy.Store(s == http.StateActive)
	}
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// letIn marks the connection of an authenticated caller.
func letIn(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.known.Store(true)
	}
}

// times bound how long a caller may take. A connection without a bound could be held forever.
type times struct {
	head  time.Duration // for the head of a request
	read  time.Duration // for a whole request; for many jobs, between two pieces of the body
	write time.Duration // for a whole answer; for many jobs, for each piece
	idle  time.Duration // between two requests
	// refuse is how long the rest of a refused request is read, so that the caller sees the reason.
	refuse time.Duration
	// unread is how long a POST of many jobs waits for the caller to read once the spool is full; shorter than
	// write.
	unread time.Duration
}

func defaultTimes() times {
	return times{head: 5 * time.Second, read: 30 * time.Second, write: time.Minute, idle: 2 * time.Minute, refuse: time.Second, unread: 30 * time.Second}
}

// headMost bounds the head of a request, in bytes.
const headMost = 64 << 10

// Server returns the HTTP server, with time limits for every phase of a connection. Serve it on a listener of
// Bound.
func (a *API) Server(log *slog.Logger) *http.Server {
	t := a.times
	return &http.Server{Handler: a, ReadHeaderTimeout: t.head, ReadTimeout: t.read, WriteTimeout: t.write, IdleTimeout: t.idle,
		MaxHeaderBytes: headMost, ConnContext: withConn, ConnState: moved, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}

// refused reports whether an answer ends its connection: always for a refused caller, and otherwise if an
// unwanted body may still come.
func refused(r *http.Request, status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return true
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return r.ContentLength != 0
	}
	return false
}

// refuse sends the answer at once and ends the connection soon, whatever is still to come of the request.
func refuse(w http.ResponseWriter, within time.Duration) {
	w.Header().Set("Connection", "close")
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // without it the answer waits for the body; not supported by a test recorder
	_ = rc.SetReadDeadline(time.Now().Add(within))
}
