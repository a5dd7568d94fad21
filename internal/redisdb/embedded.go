package redisdb

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// embed starts a Redis within the process, connected by pipes, so that it needs no port that others on the machine
// could use.
func embed(at *target, opt Options) *DB {
	server := miniredis.NewMiniRedis()
	o := universal(at, opt)
	o.Dialer = func(context.Context, string, string) (net.Conn, error) {
		conn, err := server.Dial()
		if err != nil {
			return nil, err
		}
		return newPump(conn), nil
	}
	client := redis.NewClient(o.Simple())
	client.AddHook(marking{})
	stop := make(chan struct{})
	aged := make(chan struct{})
	go func() {
		defer close(aged)
		age(server, stop)
	}()
	return &DB{Client: client, Embedded: true, at: at, close: sync.OnceValue(func() error {
		close(stop)
		<-aged
		err := client.Close()
		server.Close()
		return err
	})}
}

// ageEvery is how late a key of the embedded Redis may expire.
const ageEvery = 250 * time.Millisecond

// age expires keys as time passes, which miniredis leaves to its user. Each step visits all keys and blocks other
// commands. With many keys, steps become rarer, so that they never take more than one fiftieth of the time.
func age(server *miniredis.Miniredis, stop <-chan struct{}) {
	last := time.Now()
	timer := time.NewTimer(ageEvery)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		now := time.Now()
		server.FastForward(now.Sub(last))
		last = now
		timer.Reset(max(ageEvery, 50*time.Since(now)))
	}
}

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
