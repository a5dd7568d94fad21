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

// mostConns is how many connections the HTTP side holds where the process may have descriptors enough, and an idle one takes some 16 KiB.
const mostConns = 4096

// MostConns returns how many connections the HTTP side may hold: at most half of the process's descriptors, so that calls and Redis have the others.
func MostConns() int { return min(mostConns, max(descriptors()/2, 1)) }

// bounded is a listener that holds a bounded number of connections. Beyond it the oldest one makes room of those that nobody was let in by,
// then of those that idle: so a new caller, such as a probe, is answered however many others hang.
type bounded struct {
	*net.TCPListener
	most   int
	meters *Metrics
	log    *slog.Logger

	mu   sync.Mutex
	open list.List // of *conn, oldest first
	told time.Time // when the log last heard of it
}

// conn is a connection of a caller.
type conn struct {
	*net.TCPConn
	of    *bounded
	place *list.Element
	known atomic.Bool // somebody was let in by it
	busy  atomic.Bool // a request is under way
	once  sync.Once
}

// Bound returns ln with at most so many connections open. Nil meters and a nil log hear nothing.
func Bound(ln *net.TCPListener, most int, meters *Metrics, log *slog.Logger) net.Listener {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &bounded{TCPListener: ln, most: most, meters: meters, log: log}
}

// Accept waits for a connection that there is room for.
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

// add takes a connection in, and returns the one that has to go for it, if any.
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

// oldest returns the connection that can best be done without; c itself if there is none.
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

// moved is told by net/http what a connection is about.
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

// letIn marks the connection of a caller who was let in.
func letIn(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.known.Store(true)
	}
}
