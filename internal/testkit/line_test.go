package testkit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// echo is a server that answers every line with itself.
func echo(t *testing.T) (addr string, heard *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	heard = &atomic.Int64{}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					text, err := r.ReadString('\n')
					if err != nil {
						return
					}
					heard.Add(1)
					_, _ = io.WriteString(c, text)
				}
			}()
		}
	}()
	return ln.Addr().String(), heard
}

type caller struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func call(t *testing.T, l *testkit.Line) *caller {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &caller{t, c, bufio.NewReader(c)}
}

// ask sends a line and returns how long its answer took, or the error.
func (c *caller) ask(within time.Duration) (time.Duration, error) {
	c.t.Helper()
	begun := time.Now()
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return 0, err
	}
	_ = c.SetReadDeadline(begun.Add(within))
	text, err := c.r.ReadString('\n')
	if err == nil && text != "hello\n" {
		c.t.Errorf("heard %q", text)
	}
	return time.Since(begun), err
}

// patience bounds a hang.
const patience = time.Minute

func TestALineDelaysBothWays(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	l := testkit.LineTo(t, addr)
	c := call(t, l)
	quick := func() bool {
		took, err := c.ask(patience)
		return err == nil && took < 120*time.Millisecond
	}
	testkit.Eventually(t, patience, "an answer over the undisturbed line", quick)
	l.Delay(60 * time.Millisecond)
	if took, err := c.ask(patience); err != nil || took < 120*time.Millisecond {
		t.Errorf("60 ms each way: the answer came after %v, %v", took, err)
	}
	l.Heal()
	testkit.Eventually(t, patience, "an answer without the delay", quick)
}

func TestACutLineTakesNewConnections(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	l := testkit.LineTo(t, addr)
	c := call(t, l)
	if _, err := c.ask(patience); err != nil {
		t.Fatal(err)
	}
	l.Cut()
	if _, err := c.ask(patience); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after the cut: %v", err)
	}
	if _, err := call(t, l).ask(patience); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestAFrozenLineStandsAndLosesWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	addr, heard := echo(t)
	l := testkit.LineTo(t, addr)
	silent, torn := call(t, l), call(t, l)
	for _, c := range []*caller{silent, torn} {
		if _, err := c.ask(patience); err != nil {
			t.Fatal(err)
		}
	}
	l.Freeze()
	fresh := call(t, l)
	for _, c := range []*caller{torn, fresh} {
		if _, err := c.ask(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("frozen: %v, want silence", err)
		}
	}
	testkit.Eventually(t, patience, "both questions to be lost", func() bool { return l.Torn() == 2 })
	l.Thaw()
	if _, err := torn.ask(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that lost something goes on after the thaw: %v", err)
	}
	if n := heard.Load(); n != 2 {
		t.Errorf("the server heard %d lines, want the two before the frost", n)
	}
	if _, err := silent.ask(patience); err != nil {
		t.Errorf("a connection that lost nothing: %v", err)
	}
}

func TestALineLosesAnswersAfterTheQuestionsCameThrough(t *testing.T) {
	t.Parallel()
	addr, heard := echo(t)
	l := testkit.LineTo(t, addr)
	l.LoseAnswers(true)
	c := call(t, l)
	if _, err := c.ask(patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the answer is lost: %v, want a reset", err)
	}
	if heard.Load() != 1 || l.Lost() != 1 {
		t.Errorf("the server heard %d questions and %d answers were lost, want 1 of each", heard.Load(), l.Lost())
	}
}

func TestALineRefusesAndAdmits(t *testing.T) {
	t.Parallel()
	addr, _ := echo(t)
	l := testkit.LineTo(t, addr)
	c := call(t, l)
	if _, err := c.ask(patience); err != nil {
		t.Fatal(err)
	}
	l.Refuse()
	if _, err := c.ask(patience); err == nil {
		t.Error("the old connection goes on")
	}
	if _, err := net.Dial("tcp", l.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	l.Admit()
	if _, err := call(t, l).ask(patience); err != nil {
		t.Errorf("admitted: %v", err)
	}
}

// The delay of the line does not change stamps: the provider counts a call at its arrival at the line.
func TestAnInnerLineKeepsTheStampsOfItsClientsEnd(t *testing.T) {
	t.Parallel()
	l, ln := testkit.InnerLine(t, provider.Listen)
	p := provider.New(provider.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-served })
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	l.Delay(100 * time.Millisecond)
	for range 3 { // on one connection
		before := time.Now()
		resp, err := client.Post("http://"+l.Addr()+"/charge", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		took, calls := time.Since(before), p.Calls()
		if took < 200*time.Millisecond {
			t.Errorf("its answer came after %v", took)
		}
		// It was stamped before it went through the line, both ways.
		if at := time.UnixMicro(calls[len(calls)-1].At).Sub(before); at < -time.Millisecond || at > took-195*time.Millisecond {
			t.Errorf("a call is stamped %v after it was sent and answered %v after it, through a line of 100 ms", at, took)
		}
	}
	for _, x := range l.Exchanges() {
		if took := x.To.Sub(x.From); took < 190*time.Millisecond || took > patience {
			t.Errorf("an exchange of %v, through a line of 100 ms each way", took)
		}
	}
	if n := len(l.Exchanges()); n != 3 {
		t.Errorf("%d exchanges, want 3", n)
	}
}
