package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/job"
)

// answering is a gateway in memory that answers each call with the text that answer returns.
func answering(answer func(r *http.Request) string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			in := bufio.NewReader(there)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				if _, err := io.WriteString(there, answer(r)); err != nil {
					return
				}
			}
		}()
		return here, nil
	}
}

// bodiless is a gateway in memory that answers without a body and counts its calls.
func bodiless(calls *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	return answering(func(*http.Request) string {
		calls.Add(1)
		return "HTTP/1.1 204 No Content\r\n\r\n"
	})
}

// net/http keeps a connection for the next call before it returns an answer without a body. What happens to the connection in between must affect
// neither the answered call nor the next one.
func TestAnAnsweredCallIsNotBrokenByTheNextOneOnItsConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		between  func(g *Client, end context.CancelFunc, next func(context.Context, job.Request)) // after the connection is kept, before the answer is handed over
		first    job.Stage
		next     job.Stage
		arrivals int64
	}{
		"the next one is too late": {
			between: func(_ *Client, _ context.CancelFunc, next func(context.Context, job.Request)) {
				late := call("next")
				late.TooLate = func(time.Time) bool { return true }
				next(context.Background(), late)
			},
			first: job.Answered, next: job.NotSent, arrivals: 1,
		},
		"the next one is broken off": {
			between: func(_ *Client, _ context.CancelFunc, next func(context.Context, job.Request)) {
				ctx, cancel := context.WithCancel(context.Background())
				waiting := call("next")
				waiting.Due = time.Now().Add(time.Hour)
				next(ctx, waiting)
				cancel()
			},
			first: job.Answered, next: job.NotSent, arrivals: 1,
		},
		"the first one is broken off": {
			between: func(_ *Client, end context.CancelFunc, next func(context.Context, job.Request)) {
				next(context.Background(), call("next"))
				end()
			},
			first: job.Sent, next: job.Answered, arrivals: 2,
		},
		"the client is closed": {
			between: func(g *Client, _ context.CancelFunc, next func(context.Context, job.Request)) {
				g.Close()
				next(context.Background(), call("next"))
			},
			first: job.Answered, next: job.Answered, arrivals: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var arrivals atomic.Int64
				g := client(t, Config{URL: "http://gateway.example/v1", Dial: bodiless(&arrivals)})
				nexts := make(chan job.Result, 1)
				next := func(ctx context.Context, call job.Request) {
					go func() { nexts <- g.Send(ctx, call) }()
					synctest.Wait()
				}
				ctx, end := context.WithCancel(t.Context())
				defer end()
				var kept atomic.Bool
				ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{PutIdleConn: func(err error) {
					if err != nil {
						t.Errorf("the connection was not kept: %v", err)
					}
					kept.Store(true)
					c.between(g, end, next)
					synctest.Wait()
				}})
				first := g.Send(ctx, call("first"))
				if first.Stage != c.first || first.Stage == job.Answered && (first.Status != http.StatusNoContent || first.Err != nil) {
					t.Errorf("the first: %+v, want stage %v", first, c.first)
				}
				if got := <-nexts; got.Stage != c.next || got.Stage == job.Answered && (got.Status != http.StatusNoContent || got.Err != nil) {
					t.Errorf("the next: %+v, want stage %v", got, c.next)
				}
				if n := arrivals.Load(); n != c.arrivals || !kept.Load() {
					t.Errorf("%d calls came, want %d; kept: %v", n, c.arrivals, kept.Load())
				}
			})
		})
	}
}
