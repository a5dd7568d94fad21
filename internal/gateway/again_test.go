package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/job"
)

// A call that is too late takes another slot on the connection that it has, and is not written before it. Its time-out counts from there.
func TestACallTakesAnotherSlotOnItsConnection(t *testing.T) {
	t.Parallel()
	const late = 300 * time.Millisecond
	w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
		for w.request(in) {
			<-time.After(50 * time.Millisecond)
			io.WriteString(c, okAnswer)
		}
	})
	var opened atomic.Int64
	g := client(t, Config{URL: w.url(), Timeout: late, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		opened.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}})
	for range 3 {
		c := call("j")
		var due time.Time
		c.TooLate = func(now time.Time) bool { return due.IsZero() || now.Before(due) }
		c.Again = func() (time.Time, bool) {
			due = time.Now().Add(late)
			return due, true
		}
		if res := g.Send(context.Background(), c); res.Status != 200 || res.Late || res.Wrote.Before(due) {
			t.Errorf("due %v: %+v", due, res)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections were opened for three calls, one after the other", n)
	}
}

// The call is given up if there is no other slot, and if it has ended before there was one.
func TestACallWithoutAnotherSlotIsNotSent(t *testing.T) {
	t.Parallel()
	w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
		for w.request(in) {
			io.WriteString(c, okAnswer)
		}
	})
	g := client(t, Config{URL: w.url()})
	none := call("j")
	none.TooLate = func(time.Time) bool { return true }
	none.Again = func() (time.Time, bool) { return time.Time{}, false }
	if res := g.Send(context.Background(), none); res.Stage != job.NotSent || !res.Late {
		t.Errorf("without a slot: %+v", res)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := none
	asked := 0
	ended.TooLate = func(time.Time) bool { asked++; return asked == 1 }
	ended.Again = func() (time.Time, bool) { cancel(); return time.Now(), true }
	if res := g.Send(ctx, ended); res.Stage != job.NotSent || !res.Wrote.IsZero() {
		t.Errorf("ended: %+v", res)
	}
	if n := w.requests.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}
