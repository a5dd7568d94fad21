package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/job"
)

// doubled is a gateway in memory that sends an extra answer, or a part of one, with its answer to the first call.
func doubled(extra string) func(context.Context, string, string) (net.Conn, error) {
	var first atomic.Bool
	first.Store(true)
	return answering(func(r *http.Request) string {
		key := r.Header.Get("Idempotency-Key")
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(key), key)
		if first.Swap(false) {
			answer += extra
		}
		return answer
	})
}

// net/http keeps a connection for the next call before it looks whether more than the answer has come in. What is left over there must not be taken
// for the answer to the next call.
func TestAnExtraAnswerIsNotTheNextCalls(t *testing.T) {
	t.Parallel()
	const extra = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nextra"
	for name, left := range map[string]string{"whole": extra, "its beginning": extra[:20]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := client(t, Config{URL: "http://gateway.example/v1", Dial: doubled(left)})
				next := make(chan job.Result, 1)
				var kept atomic.Bool
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{PutIdleConn: func(error) {
					kept.Store(true)
					go func() { next <- g.Send(context.Background(), call("next")) }()
					synctest.Wait()
				}})
				if res := g.Send(ctx, call("first")); string(res.Body) != "first" || !kept.Load() {
					t.Errorf("the first: %q, %v; kept: %v", res.Body, res.Err, kept.Load())
				}
				if res := <-next; string(res.Body) != "next" {
					t.Errorf("the next: stage %v, %q, %v", res.Stage, res.Body, res.Err)
				}
			})
		})
	}
}

// On a busy machine, the kernel may have an answer that nobody asked for, or the connection's end, and the reader has not run yet. Nothing is written
// on a kept connection then. On a new one, TLS sends tickets of its own accord.
func TestNothingIsWrittenOnAConnectionThatHasSpoken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		speak func(peer net.Conn)
		kept  bool
		want  error
	}{
		"an extra answer":              {func(peer net.Conn) { io.WriteString(peer, okAnswer) }, true, errDead},
		"the end":                      {func(peer net.Conn) { peer.Close() }, true, errDead},
		"a ticket on a new connection": {func(peer net.Conn) { io.WriteString(peer, "ticket") }, false, nil},
		"nothing":                      {nil, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := tcpPair(t)
			wire := newCountedConn(ours)
			wire.reading.Store(true) // as if the reader had not been scheduled yet
			conn := newGatedConn(wire, wire)
			g := &gate{ctx: t.Context()}
			g.gotConn(httptrace.GotConnInfo{Conn: conn, Reused: c.kept})
			if c.speak != nil {
				c.speak(theirs)
				for end := time.Now().Add(5 * time.Second); !pending(ours) && time.Now().Before(end); {
					runtime.Gosched()
				}
			}
			if _, err := conn.Write([]byte("POST")); err != c.want {
				t.Errorf("the write: %v, want %v", err, c.want)
			}
			if p := g.shut(); p.wrote != (c.want == nil) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// tcpPair returns the two ends of a connection.
func tcpPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if ours, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}
