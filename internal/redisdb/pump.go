package redisdb

import (
	"net"
	"os"
	"sync"
	"time"
)

// pump is a connection whose writes don't wait for the other side's reads, like a socket's. A net.Pipe has no buffer:
// in a long pipeline, the server blocks on writing replies that are not read yet, and stops reading, while the client
// still writes and does not read. Here the data waits in memory, however much it is: both sides are in one process.
type pump struct {
	net.Conn
	over chan struct{} // closed when the goroutine has ended

	mu       sync.Mutex
	more     *sync.Cond
	waiting  []byte
	deadline time.Time // of writes
	err      error     // why writing has failed
}

func newPump(conn net.Conn) *pump {
	p := &pump{Conn: conn, over: make(chan struct{})}
	p.more = sync.NewCond(&p.mu)
	go p.run()
	return p
}

// run passes on what was written, in order, until the connection ends.
func (p *pump) run() {
	defer close(p.over)
	for {
		next, ok := p.next()
		if !ok {
			return
		}
		if _, err := p.Conn.Write(next); err != nil {
			p.fail(err)
			return
		}
	}
}

func (p *pump) next() (written []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) == 0 && p.err == nil {
		p.more.Wait()
	}
	written, p.waiting = p.waiting, nil
	return written, p.err == nil
}

func (p *pump) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.waiting = nil
	p.more.Signal()
}

// Write buffers b and returns. An error of the connection is returned by the next write, as with a socket.
func (p *pump) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return 0, p.err
	case !p.deadline.IsZero() && !time.Now().Before(p.deadline):
		return 0, os.ErrDeadlineExceeded
	}
	p.waiting = append(p.waiting, b...)
	p.more.Signal()
	return len(b), nil
}

// Close ends the connection and drops what was not passed on yet.
func (p *pump) Close() error {
	p.fail(net.ErrClosed)
	err := p.Conn.Close()
	<-p.over
	return err
}

// SetDeadline sets the deadlines of reads and writes.
func (p *pump) SetDeadline(t time.Time) error {
	if err := p.SetWriteDeadline(t); err != nil {
		return err
	}
	return p.Conn.SetReadDeadline(t)
}

// SetWriteDeadline bounds buffering, not passing on, which continues after a write has returned.
func (p *pump) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	return nil
}
