package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/job"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

func TestNothingIsWrittenBeforeTheSlot(t *testing.T) {
	t.Parallel()
	var early atomic.Int64
	w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			var due int64
			fmt.Sscan(r.Header.Get("Idempotency-Key"), &due)
			if time.Now().UnixNano() < due {
				early.Add(1)
			}
			io.Copy(io.Discard, r.Body)
			w.requests.Add(1)
			io.WriteString(c, okAnswer)
		}
	})
	g := client(t, Config{URL: w.url()})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			c := call("j")
			c.Due = time.Now().Add(time.Duration(i*7) * time.Millisecond)
			c.Key = fmt.Sprint(c.Due.UnixNano())
			res := g.Send(context.Background(), c)
			if res.Status != 200 || res.Wrote.Before(c.Due) {
				t.Errorf("due %v: %+v", c.Due, res)
			}
		})
	}
	wg.Wait()
	if early.Load() > 0 || w.requests.Load() != 40 {
		t.Errorf("%d of %d requests came before their slot", early.Load(), w.requests.Load())
	}
}

func TestTooLateIsNotSent(t *testing.T) {
	t.Parallel()
	w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
		for w.request(in) {
			io.WriteString(c, okAnswer)
		}
	})
	g := client(t, Config{URL: w.url()})
	var asked time.Time
	late := call("j")
	late.Due = time.Now().Add(20 * time.Millisecond)
	late.TooLate = func(now time.Time) bool { asked = now; return true }
	res := g.Send(context.Background(), late)
	if res.Stage != job.NotSent || !res.Late || res.Err != ErrTooLate || !res.Wrote.IsZero() || w.requests.Load() != 0 {
		t.Errorf("%+v, %d requests", res, w.requests.Load())
	}
	if asked.Before(late.Due) {
		t.Error("it was asked before the slot")
	}
	inTime := call("j")
	inTime.TooLate = func(time.Time) bool { return false }
	if res := g.Send(context.Background(), inTime); res.Status != 200 || res.Late {
		t.Errorf("in time: %+v", res)
	}
}

// The gateway ends a kept connection while TooLate is asked. Nothing was written on it, and the call is made on another connection.
func TestAConnectionEndsWhileItIsAskedWhetherItIsTooLate(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(net.Conn){
		"closed": func(net.Conn) {},
		"reset":  func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) },
		"408": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{})
			w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
				if !w.request(in) {
					return
				}
				io.WriteString(c, okAnswer)
				if w.requests.Load() == 1 {
					<-asked
					end(c)
					c.Close()
				}
			})
			g := client(t, Config{URL: w.url()})
			if res := g.Send(context.Background(), call("a")); res.Status != 200 {
				t.Fatalf("%+v", res)
			}
			b := call("b")
			b.Due = time.Now().Add(5 * time.Millisecond)
			first := sync.OnceFunc(func() { close(asked); <-time.After(50 * time.Millisecond) })
			b.TooLate = func(time.Time) bool { first(); return false }
			if res := g.Send(context.Background(), b); res.Stage != job.Answered || res.Status != 200 || w.requests.Load() != 2 {
				t.Errorf("%+v, the gateway saw %d requests", res, w.requests.Load())
			}
		})
	}
}

func TestTheWriteIsToldAtOnce(t *testing.T) {
	t.Parallel()
	told := make(chan time.Time, 3)
	w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
		for w.request(in) {
			select {
			case at := <-told: // before the answer
				told <- at
			case <-time.After(time.Minute):
				t.Error("the write was not reported while the call was in flight")
			}
			io.WriteString(c, okAnswer)
		}
	})
	g := client(t, Config{URL: w.url()})
	c := call("j")
	c.Wrote = func(at time.Time) { told <- at }
	res := g.Send(context.Background(), c)
	if at := <-told; !at.Equal(res.Wrote) || res.Status != 200 {
		t.Errorf("told %v, the result says %v", at, res.Wrote)
	}
	c.TooLate = func(time.Time) bool { return true }
	if res := g.Send(context.Background(), c); res.Stage != job.NotSent || len(told) > 0 {
		t.Errorf("%+v: a call that was not sent was told as written %d times", res, len(told))
	}
}

// The gateway ends a kept connection in many ways, at any moment. However it ends, the requests on the wire are
// those that Send reports, and each call is written at most once.
func TestADeadKeptConnection(t *testing.T) {
	t.Parallel()
	closeIt := func(c net.Conn) { c.Close() }
	reset := func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() }
	halfClose := func(c net.Conn) { c.(*net.TCPConn).CloseWrite() }
	say408 := func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		c.Close()
	}
	for name, end := range map[string]func(net.Conn){"close": closeIt, "reset": reset, "half-close": halfClose, "408": say408} {
		for _, method := range []string{"POST", "GET"} {
			for _, pause := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
				t.Run(fmt.Sprint(name, "/", method, "/", pause), func(t *testing.T) {
					t.Parallel()
					countEndings(t, method, pause, end)
				})
			}
		}
	}
}

func countEndings(t *testing.T, method string, pause time.Duration, end func(net.Conn)) {
	w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
		if !w.request(in) {
			return
		}
		io.WriteString(c, okAnswer)
		<-time.After(pause)
		end(c)
		for w.request(in) { // what comes all the same is counted
		}
	})
	g := client(t, Config{URL: w.url(), Method: method})
	sent := int64(0)
	for i := range 30 {
		c := call(fmt.Sprint("j", i))
		c.Due = time.Now().Add(time.Duration(i%4) * 2 * time.Millisecond)
		res := g.Send(context.Background(), c)
		switch {
		case res.Stage == job.Answered && res.Status == 200, res.Stage == job.Sent:
			sent++
		case res.Stage == job.Answered && res.Status == 408:
			sent++ // it crossed with our request: the outcome table takes it for unknown
		case res.Stage == job.NotSent && res.Err != nil:
		default:
			t.Errorf("%+v", res)
		}
		if res.Err != nil {
			checkErr(t, res.Err, "")
		}
	}
	if got := w.requests.Load(); got > sent {
		t.Errorf("%d requests on the wire, %d calls own up to one", got, sent)
	}
	if sent < 10 {
		t.Errorf("only %d of 30 calls went out", sent)
	}
}

// The connection dies while a call waits for its slot. The call takes another connection and is made once.
func TestTheConnectionDiesWhileACallWaits(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"silently": "", "with a 408": "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", "with an answer to nothing": okAnswer} {
		for _, method := range []string{"POST", "GET"} {
			t.Run(name+"/"+method, func(t *testing.T) {
				t.Parallel()
				die := make(chan bool)
				w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
					for w.request(in) {
						io.WriteString(c, okAnswer)
						if w.conns.Load() == 1 {
							<-die
							io.WriteString(c, last)
							return
						}
					}
				})
				g := client(t, Config{URL: w.url(), Method: method})
				if res := g.Send(context.Background(), call("a")); res.Status != 200 {
					t.Fatalf("%+v", res)
				}
				b := call("b")
				b.Due = time.Now().Add(4 * time.Second) // far enough from the end that a busy machine keeps them apart
				time.AfterFunc(30*time.Millisecond, func() { close(die) })
				res := g.Send(context.Background(), b)
				if res.Stage != job.Answered || res.Status != 200 || res.Wrote.Before(b.Due) || w.requests.Load() != 2 || w.conns.Load() != 2 {
					t.Errorf("%+v, %d requests on %d connections", res, w.requests.Load(), w.conns.Load())
				}
			})
		}
	}
}

// TestTheGateStopsAResend plays the part of net/http, which writes the same call a second time on another connection.
func TestTheGateStopsAResend(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	go io.Copy(io.Discard, theirs)
	ctx, cancel := context.WithCancelCause(context.Background())
	g := &gate{ctx: ctx, cancel: cancel}
	fresh := func() *gatedConn {
		counted := newCountedConn(ours)
		return newGatedConn(counted, counted)
	}
	first, second := fresh(), fresh()
	if _, err := first.Write([]byte("x")); err != errNoGate {
		t.Errorf("a write without a call: %v", err)
	}
	g.gotConn(httptrace.GotConnInfo{Conn: first})
	for range 2 { // one request takes several writes
		if n, err := first.Write([]byte("x")); n != 1 || err != nil {
			t.Fatalf("a write of the call: %d %v", n, err)
		}
	}
	g.gotConn(httptrace.GotConnInfo{Conn: second})
	if _, err := second.Write([]byte("x")); err != errNoGate {
		t.Errorf("a second write of the call: %v", err)
	}
	if context.Cause(ctx) != errResend {
		t.Errorf("net/http is not told: %v", context.Cause(ctx))
	}
	if p := g.shut(); !p.wrote || p.at.IsZero() {
		t.Errorf("%+v", p)
	}
	if _, err := first.Write([]byte("x")); err != errNoGate {
		t.Errorf("a write after the call: %v", err)
	}
}

// Before the write, net/http may choose another connection. The gate then arms that one.
func TestTheGateArmsAnotherConnectionBeforeTheWrite(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	theirs.Close()
	live, peer := net.Pipe()
	go io.Copy(io.Discard, peer)
	g := &gate{ctx: context.Background()}
	wrap := func(c net.Conn) *gatedConn {
		counted := newCountedConn(c)
		return newGatedConn(counted, counted)
	}
	dead, good := wrap(ours), wrap(live)
	g.gotConn(httptrace.GotConnInfo{Conn: dead})
	if n, err := dead.Write([]byte("x")); n != 0 || err == nil {
		t.Errorf("a write to a dead connection: %d %v", n, err)
	}
	g.gotConn(httptrace.GotConnInfo{Conn: good})
	if n, err := good.Write([]byte("x")); n != 1 || err != nil {
		t.Errorf("the write on another: %d %v", n, err)
	}
	if _, err := dead.Write([]byte("x")); err != errNoGate {
		t.Errorf("a write on the first one afterwards: %v", err)
	}
}

// After a call was too late, net/http may try again on another connection, when TooLate may say no. The call is still not made, and its slot is given back.
func TestWhatWasTooLateStaysUncalled(t *testing.T) {
	t.Parallel()
	live, peer := net.Pipe()
	go io.Copy(io.Discard, peer)
	asked := 0
	g := &gate{ctx: context.Background(), tooLate: func(time.Time) bool { asked++; return asked == 1 }}
	for range 2 {
		counted := newCountedConn(live)
		c := newGatedConn(counted, counted)
		g.gotConn(httptrace.GotConnInfo{Conn: c})
		if n, err := c.Write([]byte("x")); n != 0 || err != ErrTooLate {
			t.Errorf("asked %d times, it wrote %d bytes: %v", asked, n, err)
		}
	}
	if p := g.shut(); !p.late || p.wrote {
		t.Errorf("%+v", p)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
		for w.request(in) {
			<-time.After(10 * time.Millisecond)
			io.WriteString(c, okAnswer)
		}
	})
	g := client(t, Config{URL: w.url(), MaxConns: 20})
	for range 5 {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { g.Send(context.Background(), call("j")) })
		}
		wg.Wait()
	}
	if got := w.conns.Load(); got > 40 {
		t.Errorf("100 calls, 20 at once, took %d connections", got)
	}
}

// The time-out of a call counts from its slot, and not from when it is prepared.
func TestTheTimeoutCountsFromTheSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := client(t, Config{URL: "http://gateway.example/v1", Timeout: 2 * time.Second, Dial: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				if r, err := http.ReadRequest(bufio.NewReader(there)); err == nil {
					io.Copy(io.Discard, r.Body)
					<-time.After(1900 * time.Millisecond)
					io.WriteString(there, okAnswer)
				}
			}()
			return here, nil
		}})
		c := call("j")
		c.Due = time.Now().Add(1900 * time.Millisecond)
		if res := g.Send(context.Background(), c); res.Status != 200 || !strings.Contains(string(res.Body), "{}") {
			t.Errorf("%+v", res)
		}
	})
}
