package testkit

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wire is one connection of a line. Each end and direction has a goroutine:
//
//	client ── collect ──▶ pieces ── deliver ──▶ server
//	client ◀── deliver ── pieces ◀── collect ── server
type wire struct {
	line           *Line
	client, server net.Conn
	torn           atomic.Bool // something was lost on the way
	over           chan struct{}
	once           sync.Once

	mu    sync.Mutex
	asked time.Time // zero while no question is open
}

// open reports whether a question is open.
func (w *wire) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.asked.IsZero()
}

// ask records that a question arrived, if none is open.
func (w *wire) ask(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked.IsZero() {
		w.asked = at
	}
}

// answered records that the open question is over: it was answered, or its client has gone.
func (w *wire) answered(gone bool) {
	w.mu.Lock()
	from := w.asked
	w.asked = time.Time{}
	w.mu.Unlock()
	if from.IsZero() || !w.line.writes {
		return
	}
	w.line.mu.Lock()
	defer w.line.mu.Unlock()
	w.line.past = append(w.line.past, Exchange{from, time.Now(), gone})
}

// piece is the result of one read, or the end of the stream.
type piece struct {
	data []byte
	at   time.Time
	err  error
}

const (
	pieceBytes  = 64 << 10
	piecesOnWay = 1024 // with more of them a sender has to wait, as for a slow reader
)

// carry returns when the connection is over and both ends are closed.
func (w *wire) carry() {
	var both sync.WaitGroup
	both.Go(func() { w.way(w.client, w.server, false) })
	both.Go(func() { w.way(w.server, w.client, true) })
	both.Wait()
}

// way carries one direction.
func (w *wire) way(from, to net.Conn, answers bool) {
	pieces := make(chan piece, piecesOnWay)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.collect(from, pieces, !answers)
		if !answers {
			w.answered(true)
		}
	}()
	for p := range pieces {
		if !w.deliver(to, p, answers) {
			break
		}
	}
	w.reset() // unless deliver has closed it gracefully
	for range pieces {
	}
	<-done
}

// collect reads until the end. Each piece has the moment of its arrival, by the stamp of the connection if it has stamps.
func (w *wire) collect(from net.Conn, pieces chan<- piece, questions bool) {
	defer close(pieces)
	read := stamping(from)
	for {
		buf := make([]byte, pieceBytes)
		if questions && w.line.writes && !w.open() {
			buf = buf[:1] // a stamp is that of the last byte that was read
		}
		n, at, err := read(buf)
		if n > 0 {
			if questions {
				w.ask(at)
			}
			pieces <- piece{data: buf[:n], at: at}
		}
		if err != nil {
			pieces <- piece{at: at, err: err}
			return
		}
	}
}

// stampedReader is a connection that returns when the bytes that it reads arrived.
type stampedReader interface {
	ReadStamped(p []byte) (n int, at time.Time, err error)
}

func stamping(c net.Conn) func([]byte) (int, time.Time, error) {
	if s, ok := c.(stampedReader); ok {
		return s.ReadStamped
	}
	return func(p []byte) (int, time.Time, error) {
		n, err := c.Read(p)
		return n, time.Now(), err
	}
}

// deliver passes one piece on when its time has come, with the disturbances of that moment. It returns false at the end.
func (w *wire) deliver(to net.Conn, p piece, answer bool) bool {
	now, _ := w.line.now()
	if !w.sleep(time.Until(p.at.Add(now.delay))) {
		return false
	}
	now, thawed := w.line.now()
	switch {
	case p.err != nil && now.frozen: // the end does not pass either
		select {
		case <-thawed:
		case <-w.over:
		case <-w.line.stop:
		}
		return false
	case p.err != nil:
		w.finish(errors.Is(p.err, io.EOF))
		return false
	case now.frozen:
		w.torn.Store(true)
		return true
	case w.torn.Load():
		return false
	case !answer && now.stuck.first(p.data):
		select {
		case <-now.stuck.release:
		case <-w.line.stop:
		}
	case answer && now.loseAnswers:
		w.line.lose()
		return false
	}
	if answer {
		w.answered(false) // before the client can ask again
	}
	return hand(to, p) == nil
}

func hand(to net.Conn, p piece) error {
	if s, ok := to.(*innerWriter); ok {
		return s.writeStamped(p.data, p.at)
	}
	_, err := to.Write(p.data)
	return err
}

func (w *wire) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.over:
		return false
	}
}

// reset ends the connection abruptly at both ends.
func (w *wire) reset() { w.finish(false) }

func (w *wire) finish(gently bool) {
	w.once.Do(func() {
		close(w.over)
		hangUp(w.client, !gently)
		hangUp(w.server, !gently)
	})
}
