package testkit

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Line is the network between clients and one server. Tests can disturb it. It starts undisturbed. Its own work adds
// a fraction of a millisecond to each direction.
type Line struct {
	t      testing.TB
	addr   string
	listen func(addr string) (net.Listener, error)
	reach  func() (net.Conn, error)
	writes bool // it records exchanges
	stop   chan struct{}
	work   sync.WaitGroup

	mu      sync.Mutex
	door    net.Listener // nil while clients are refused
	weather weather
	thawed  chan struct{} // closes when the line thaws; nil unless it is frozen
	wires   map[*wire]bool
	past    []Exchange
	lost    int
}

// Exchange is the time from the arrival of a question at the clients' end until its answer left there, or its client was gone.
// Each connection has one question at a time, as in HTTP/1.1.
type Exchange struct {
	From, To time.Time
	// Gone says that there was no answer because the client had gone. On a busy machine that was some time before To, which is when the line noticed.
	Gone bool
}

// weather is what disturbs every byte.
type weather struct {
	delay       time.Duration
	frozen      bool
	loseAnswers bool
	stuck       *stuck
}

// stuck is a question that is held back.
type stuck struct {
	is      func(question []byte) bool
	met     chan struct{} // closes when such a question came
	once    sync.Once
	release chan struct{}
}

// LineParams say where a line comes from and where it goes.
type LineParams struct {
	// Listen opens the clients' end, again on the same address after Refuse. Nil listens on TCP.
	Listen func(addr string) (net.Listener, error)
	// Reach opens a connection to the server for each client.
	Reach func() (net.Conn, error)
	// Exchanges makes the line record its exchanges.
	Exchanges bool
}

// NewLine returns a line that ends with the test. Its address is on the loopback interface and stays the same.
func NewLine(t testing.TB, p LineParams) *Line {
	t.Helper()
	if p.Listen == nil {
		p.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	port := FreePort(t)
	l := &Line{t: t, addr: (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String(), listen: p.Listen, reach: p.Reach, writes: p.Exchanges,
		stop: make(chan struct{}), wires: map[*wire]bool{}}
	l.Admit()
	t.Cleanup(l.end)
	return l
}

// LineTo returns a line to a TCP address.
func LineTo(t testing.TB, server string) *Line {
	t.Helper()
	return NewLine(t, LineParams{Reach: func() (net.Conn, error) { return net.DialTimeout("tcp", server, 10*time.Second) }})
}

// Addr returns host:port for clients.
func (l *Line) Addr() string { return l.addr }

// Delay delays every byte, in each direction. Zero ends it.
func (l *Line) Delay(d time.Duration) { l.change(func(w *weather) { w.delay = d }) }

// LoseAnswers lets questions through, and resets each connection at the first byte of an answer. False ends it.
func (l *Line) LoseAnswers(on bool) { l.change(func(w *weather) { w.loseAnswers = on }) }

// Lost returns how many answers LoseAnswers has lost so far.
func (l *Line) Lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Freeze makes every connection half open: it stays, new ones are accepted, and no byte and no end of a connection passes in either direction.
func (l *Line) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather.frozen = true
	if l.thawed == nil {
		l.thawed = make(chan struct{})
	}
}

// Thaw ends Freeze. Bytes that were sent meanwhile are lost, and the connections that lost some are reset.
func (l *Line) Thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather.frozen = false
	if l.thawed != nil {
		close(l.thawed)
		l.thawed = nil
	}
	for w := range l.wires {
		if w.torn.Load() {
			w.reset()
		}
	}
}

// first reports whether this is the question to hold back.
func (s *stuck) first(question []byte) (is bool) {
	if s != nil && s.is(question) {
		s.once.Do(func() {
			close(s.met)
			is = true
		})
	}
	return is
}

// Stick holds back the first question for which is returns true, whatever becomes of its client, and lets all others pass. The channel met closes when there
// is one. release passes it on, with everything behind it, and ends Stick.
func (l *Line) Stick(is func(question []byte) bool) (met <-chan struct{}, release func()) {
	s := &stuck{is: is, met: make(chan struct{}), release: make(chan struct{})}
	l.change(func(w *weather) { w.stuck = s })
	return s.met, sync.OnceFunc(func() {
		l.change(func(w *weather) { w.stuck = nil })
		close(s.release)
	})
}

// Cut resets every open connection. New ones work.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.wires {
		w.reset()
	}
}

// Refuse resets every connection and refuses new ones, until Admit.
func (l *Line) Refuse() {
	l.mu.Lock()
	if l.door != nil {
		_ = l.door.Close()
		l.door = nil
	}
	l.mu.Unlock()
	l.Cut()
}

// Admit ends Refuse.
func (l *Line) Admit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.door != nil {
		return
	}
	var door net.Listener
	var err error
	// A process that is being started has copies of our sockets for a moment, also of one that was just closed.
	if !Within(patience, often, func() bool { door, err = l.listen(l.addr); return err == nil }) {
		l.t.Errorf("a line can't listen on %s: %v", l.addr, err)
		return
	}
	l.door = door
	l.work.Go(func() { l.accept(door) })
}

// Heal ends every disturbance.
func (l *Line) Heal() {
	l.Thaw()
	l.change(func(w *weather) { *w = weather{} })
	l.Admit()
}

// Exchanges returns those that are over, if the line records them.
func (l *Line) Exchanges() []Exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.past)
}

func (l *Line) change(f func(*weather)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.weather)
}

func (l *Line) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost++
}

func (l *Line) now() (weather, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.weather, l.thawed
}

func (l *Line) end() {
	close(l.stop)
	l.Refuse()
	l.work.Wait()
}

func (l *Line) accept(door net.Listener) {
	for {
		client, err := door.Accept()
		if err != nil {
			return // refused
		}
		l.work.Go(func() { l.connect(client) })
	}
}

// connect reaches the server for a client and carries bytes until one of them ends.
func (l *Line) connect(client net.Conn) {
	server, err := l.reach()
	if err != nil {
		hangUp(client, true)
		return
	}
	w := &wire{line: l, client: client, server: server, over: make(chan struct{})}
	l.mu.Lock()
	if l.door == nil { // refused meanwhile
		l.mu.Unlock()
		w.reset()
		return
	}
	l.wires[w] = true
	l.mu.Unlock()
	w.carry()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.wires, w)
}

// hangUp closes a connection, abruptly if it is TCP and hard.
func hangUp(c net.Conn, hard bool) {
	beneath := c
	if n, ok := c.(interface{ NetConn() net.Conn }); ok {
		beneath = n.NetConn()
	}
	if tcp, ok := beneath.(*net.TCPConn); ok && hard {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

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
