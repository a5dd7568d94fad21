package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"spillway/internal/job"
)

// doubled is a gateway in memory that sends an extra answer, or a part of one, with its answer to the first call.
func doubled(extra string) func(context.Context, string, string) (net.Conn, error) {
	var first atomic.Bool
	first.Store(true)
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
				key := r.Header.Get("Idempotency-Key")
				answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(key), key)
				if first.Swap(false) {
					answer += extra
				}
				if _, err := io.WriteString(there, answer); err != nil {
					return
				}
			}
		}()
		return here, nil
	}
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
