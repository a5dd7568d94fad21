package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// ErrTooLate is the error of a call given up before its write because its slot had passed too long ago.
var ErrTooLate = errors.New("the slot had passed too long ago: nothing was sent")

var (
	errNoGate  = errors.New("this connection is not open for a call")
	errResend  = errors.New("a second write of the same call was stopped")
	errDead    = errors.New("the connection was dead before the request was written")
	errUnasked = errors.New("the gateway spoke before it was asked")
	errShut    = errors.New("the call is over")
)

type gateState int

const (
	waiting gateState = iota // nothing written
	writing                  // the kernel has the first write
	written                  // something is on the wire, or may be
	over                     // the call ended without a write
)

// gate lets one call through to the wire once: not before its slot, not too late, on one connection.
type gate struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	extend  func(due time.Time) // puts the time-out off to another slot's
	tooLate func(time.Time) bool
	again   func() (due time.Time, ok bool)
	wrote   func(time.Time)
	back    chan struct{} // closed when net/http has finished with the request head

	mu     sync.Mutex
	due    time.Time // changes only in the goroutine that writes
	state  gateState
	conn   *gatedConn // the connection that is armed
	reused bool
	late   bool
	at     time.Time
}

// pass is the final state of a gate.
type pass struct {
	wrote  bool      // something may be on the wire
	at     time.Time // just after the first byte
	late   bool
	due    time.Time  // of the last slot
	reused bool       // the last connection was kept from an earlier call
	conn   *gatedConn // the last connection; nil: there was none
}

// gotConn arms the connection that net/http chose. After the first write it arms none, because net/http is then
// about to resend the request.
//
// net/http keeps a connection for the next call before it returns an answer without a body. Until it has
// returned, the end of the connection would end the previous call too, and the end of that call would end the
// connection. So the next call waits. It also waits until net/http has used up what came in on the connection:
// as long as it expects no answer, it closes the connection if anything is left.
func (g *gate) gotConn(info httptrace.GotConnInfo) {
	c, ok := info.Conn.(*gatedConn)
	if !ok {
		g.cancel(errNoGate)
		return
	}
	if before := c.gate.Load(); before != nil && before != g {
		<-before.back
	}
	if info.Reused {
		c.drained(g.ctx.Done())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != waiting {
		g.cancel(errResend)
		return
	}
	g.disarm()
	g.conn, g.reused = c, info.Reused
	c.gate.Store(g)
}

func (g *gate) disarm() {
	if g.conn != nil {
		g.conn.gate.CompareAndSwap(g, nil)
	}
}

// first makes the first write on c. It waits for the slot, and checks whether it is too late. If so, it takes another
// slot while it has the connection: given up, the call would lose it. Then a gateway would never be called whose
// connections take longer to open than a slot can be used.
func (g *gate) first(c *gatedConn, p []byte) (int, error) {
	for {
		err := g.await(c)
		if err == nil {
			err = g.enter(c)
		}
		if err == nil {
			break
		}
		if err != ErrTooLate || !g.renew() {
			return 0, err
		}
	}
	before := c.wire.handed.Load()
	n, err := c.Conn.Write(p)
	at := time.Now()
	g.leave(n > 0 || c.wire.handed.Load() > before, at)
	return n, err
}

// await waits for the slot. A timer never fires early on the monotonic clock; the loop is for a slot without a
// monotonic reading.
func (g *gate) await(c *gatedConn) error {
	for wait := time.Until(g.due); wait > 0; wait = time.Until(g.due) {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-c.closed:
			t.Stop()
			return errDead
		case <-g.ctx.Done():
			t.Stop()
			return context.Cause(g.ctx)
		}
	}
	return nil
}

// enter is the last check before the write. To find out whether it is too late, it may have to ask Redis; the
// connection and the call may change meanwhile.
func (g *gate) enter(c *gatedConn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.ready(c); err != nil || g.tooLate == nil {
		return g.begin(err)
	}
	g.mu.Unlock()
	late := g.tooLate(time.Now())
	g.mu.Lock()
	err := g.ready(c)
	if err == nil && late {
		g.late, err = true, ErrTooLate
	}
	return g.begin(err)
}

// renew takes another slot for a call that is too late, and reports whether there is one.
func (g *gate) renew() bool {
	if g.again == nil {
		return false
	}
	due, ok := g.again()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !ok || g.state != waiting {
		return false
	}
	g.due, g.late = due, false
	g.extend(due)
	return true
}

// ready returns why nothing can be written on c, or nil. The caller holds mu.
func (g *gate) ready(c *gatedConn) error {
	switch {
	case g.state != waiting || g.conn != c:
		return errShut
	case g.late:
		return ErrTooLate // not on another connection either
	case c.dead.Load():
		return errDead
	case g.ctx.Err() != nil:
		return context.Cause(g.ctx)
	}
	return nil
}

// begin records the start of the first write, unless against is not nil. The caller holds mu. On a busy machine
// the reader hears of an answer, or of the connection's end, well after the kernel has it. On a kept connection
// both come too early, so begin asks the kernel.
func (g *gate) begin(against error) error {
	if against == nil && g.reused && pending(g.conn.wire.Conn) {
		g.conn.dead.Store(true)
		against = errDead
	}
	if against == nil {
		g.state = writing
	}
	return against
}

// leave records whether the kernel accepted anything. If not, nothing was sent, and another connection may be
// armed.
func (g *gate) leave(wrote bool, at time.Time) {
	g.mu.Lock()
	mine := g.state == writing // unless shut has already taken it for written
	if mine {
		g.state = waiting
	}
	if mine && wrote {
		g.state, g.at = written, at
	}
	g.mu.Unlock()
	if mine && wrote {
		g.tell(at)
	}
}

// tell reports the write at once: the answer, and the end of the call, may be far off.
func (g *gate) tell(at time.Time) {
	if g.wrote != nil {
		g.wrote(at)
	}
}

// shut ends the call and returns what became of it. After it, nothing is written for the call. A write in
// progress counts as written.
func (g *gate) shut() pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.state {
	case waiting:
		g.state = over
	case writing:
		g.state, g.at = written, time.Now()
		defer g.tell(g.at)
	}
	g.disarm()
	return pass{wrote: g.state == written, at: g.at, late: g.late, due: g.due, reused: g.reused, conn: g.conn}
}

// open reports whether c may continue writing, because the first write was made on it.
func (g *gate) open(c *gatedConn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state == written && g.conn == c
}

// heard records that data, or the end, came in on c, and reports whether it may be an answer. Anything before
// the write is not, and makes the connection unusable.
func (g *gate) heard(c *gatedConn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == waiting {
		c.dead.Store(true)
		return false
	}
	return true
}

// countedConn counts the bytes that the kernel accepted. It lies below TLS, whose own count would miss a record
// that was sent only in part.
type countedConn struct {
	net.Conn
	handed  atomic.Int64
	reading atomic.Bool   // a Read is in progress: TLS and net/http have used up what came before
	asked   chan struct{} // holds one element after a Read began
}

func newCountedConn(c net.Conn) *countedConn {
	return &countedConn{Conn: c, asked: make(chan struct{}, 1)}
}

// Read reads, and tells that it does.
func (c *countedConn) Read(p []byte) (int, error) {
	c.reading.Store(true)
	defer c.reading.Store(false)
	select {
	case c.asked <- struct{}{}:
	default:
	}
	return c.Conn.Read(p)
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
	wire *countedConn // below TLS

	gate   atomic.Pointer[gate]
	dead   atomic.Bool // closed by the peer, or unexpected data came in
	spoken atomic.Bool // the peer has answered something
	closed chan struct{}
	once   sync.Once
}

func newGatedConn(c net.Conn, wire *countedConn) *gatedConn {
	return &gatedConn{Conn: c, wire: wire, closed: make(chan struct{})}
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
	if n > 0 {
		c.spoken.Store(true)
	}
	g := c.gate.Load()
	if g == nil {
		c.dead.Store(true)
	}
	if (g == nil || !g.heard(c)) && n > 0 {
		return 0, errUnasked
	}
	return n, err
}

// unproven reports whether the peer may still be looking at our certificate, and so has read no request. In TLS 1.2 it
// has accepted it when the handshake is over; in TLS 1.3, at the latest when it answers.
func (c *gatedConn) unproven() bool {
	if c == nil {
		return false
	}
	secure, is := c.Conn.(*tls.Conn)
	return is && secure.ConnectionState().Version >= tls.VersionTLS13 && !c.spoken.Load()
}

// drained waits until all that came in has been used up, the connection is closed, or the call is done. net/http
// keeps a connection before it looks whether more than the answer has come in.
func (c *gatedConn) drained(done <-chan struct{}) {
	for !c.wire.reading.Load() {
		select {
		case <-c.wire.asked:
		case <-c.closed:
			return
		case <-done:
			return
		}
	}
}

// Close closes the connection and releases a call that waits on it for its slot.
func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
