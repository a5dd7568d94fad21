package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/job"
)

// tunnel is an HTTP proxy that opens ways. It notes what it was asked and shown.
func tunnel(t *testing.T, asked *atomic.Pointer[http.Request]) *wire {
	t.Helper()
	return listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil || r.Method != http.MethodConnect {
			return
		}
		asked.Store(r)
		w.requests.Add(1)
		out, err := net.Dial("tcp", r.Host)
		if err != nil {
			io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
			return
		}
		defer out.Close()
		io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() {
			_, _ = io.Copy(out, in)
			out.Close()
		}()
		_, _ = io.Copy(c, out)
	})
}

func TestThroughAProxyToHTTPS(t *testing.T) {
	t.Parallel()
	var arrived atomic.Pointer[time.Time]
	var seen atomic.Pointer[http.Header]
	srv := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		now := time.Now()
		arrived.Store(&now)
		seen.Store(&r.Header)
	}))
	defer srv.Close()
	var asked atomic.Pointer[http.Request]
	proxy := tunnel(t, &asked)
	c := client(t, Config{URL: srv.URL + "/v1/x", TLS: srv.Client().Transport.(*http.Transport).TLSClientConfig,
		Proxy: "http://user:" + canary + "%40@" + proxy.addr})
	for range 3 { // again through the same tunnel
		due := time.Now().Add(150 * time.Millisecond)
		k := call("j")
		k.Due = due
		res := c.Send(context.Background(), k)
		if res.Status != http.StatusOK || res.Wrote.Before(due) || arrived.Load().Before(due) {
			t.Errorf("%+v: arrived %v, due %v", res, arrived.Load(), due)
		}
	}
	r := asked.Load()
	user, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
	if "https://"+r.Host != srv.URL || user != "user" || password != canary+"@" || proxy.requests.Load() != 1 {
		t.Errorf("the proxy was asked %d times, for %s, by %s with %s", proxy.requests.Load(), r.Host, user, password)
	}
	if seen.Load().Get("Proxy-Authorization") != "" {
		t.Error("the gateway was shown the proxy's password")
	}
}

// Plain HTTP goes through a proxy without a tunnel.
func TestThroughAProxyToHTTP(t *testing.T) {
	t.Parallel()
	type got struct{ url, auth, host string }
	calls := make(chan got, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls <- got{r.RequestURI, r.Header.Get("Proxy-Authorization"), r.Host}
	}))
	defer proxy.Close()
	c := client(t, Config{URL: "http://gateway.invalid/v1/x", Proxy: "http://user:" + canary + "@" + proxy.Listener.Addr().String()})
	due := time.Now().Add(100 * time.Millisecond)
	k := call("j")
	k.Due = due
	if res := c.Send(context.Background(), k); res.Status != http.StatusOK || res.Wrote.Before(due) {
		t.Fatalf("%+v", res)
	}
	if g := <-calls; g.url != "http://gateway.invalid/v1/x" || g.auth == "" || g.host != "gateway.invalid" {
		t.Errorf("%+v", g)
	}
}

// Nothing was sent when the proxy is the trouble, and its password is in no error.
func TestAProxyThatFails(t *testing.T) {
	t.Parallel()
	answering := func(text string) string {
		return listen(t, func(_ *wire, c net.Conn, in *bufio.Reader) {
			if _, err := http.ReadRequest(in); err == nil {
				io.WriteString(c, text)
			}
		}).addr
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	silent := listen(t, func(_ *wire, _ net.Conn, in *bufio.Reader) { _, _ = io.Copy(io.Discard, in) })
	for name, c := range map[string]struct{ addr, want string }{
		"password": {answering("HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\nno"), "does not let us in (407): check user and password"},
		"no way":   {answering("HTTP/1.1 502 Bad Gateway\r\n\r\n"), "opens no way to gateway.invalid:443: it answered 502"},
		"no proxy": {answering("220 smtp.example ready\r\n"), "opened no way to gateway.invalid:443"},
		"hangs up": {answering(""), "opened no way to gateway.invalid:443: it closed the connection"},
		"talks":    {answering("HTTP/1.1 200 OK\r\n\r\nwelcome"), "said more than it was asked for"},
		"away":     {closed.Addr().String(), "connecting to the proxy " + closed.Addr().String() + " failed: connection refused"},
		"silent":   {silent.addr, "gateway.invalid:443 in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 5 * time.Second
			if name == "silent" {
				timeout = 300 * time.Millisecond
			}
			res := client(t, Config{URL: "https://gateway.invalid/v1/x", Proxy: fmt.Sprintf("http://user:%s@%s", canary, c.addr), Timeout: timeout}).Send(context.Background(), call("j"))
			if res.Stage != job.NotSent {
				t.Errorf("%+v", res)
			}
			if name == "silent" && res.Err != nil && res.Err.Error() == "no connection to gateway.invalid:443 stood within 300ms" {
				return // the call's own end came first
			}
			checkErr(t, res.Err, c.want)
		})
	}
}

// However a proxy goes on without an end, little of it is read, and the call hears why it was not made.
func TestAProxyThatNeverEnds(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, said := range map[string]struct{ first, again string }{
		"status line": {"HTTP/1.1 200 ", strings.Repeat("x", 4096)},
		"lines":       {ok, "X-Filler: " + strings.Repeat("x", 80) + "\r\n"},
		"one line":    {ok + "X-Filler: ", strings.Repeat("x", 4096)},
		"folded":      {ok + "X-Filler: x\r\n", " " + strings.Repeat("x", 80) + "\r\n"},
		"refusal":     {"HTTP/1.1 407 No\r\n", "X-Filler: " + strings.Repeat("x", 80) + "\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			took := make(chan int, 1)
			proxy := listen(t, func(_ *wire, c net.Conn, in *bufio.Reader) {
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
				_, err := io.WriteString(c, said.first)
				n := 0
				for more := said.again; err == nil && n < 64<<20; n += len(more) {
					_, err = io.WriteString(c, more)
				}
				took <- n
			})
			res := client(t, Config{URL: "https://gateway.invalid/v1/x", Proxy: "http://user:" + canary + "@" + proxy.addr, Timeout: time.Minute}).Send(t.Context(), call("j"))
			if res.Stage != job.NotSent {
				t.Errorf("%+v", res)
			}
			checkErr(t, res.Err, "opened no way to gateway.invalid:443: its answer is longer than 64 KiB")
			if n := <-took; n > 16<<20 { // the kernel's buffers hold some of it
				t.Errorf("the proxy could send %d bytes", n)
			}
		})
	}
}

// A changed password of the proxy must not refuse a million jobs: what the proxy says is no answer of the gateway, without a tunnel too.
func TestAProxyWithoutATunnelThatRefuses(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	defer proxy.Close()
	addr := proxy.Listener.Addr().String()
	res := client(t, Config{URL: "http://gateway.invalid/v1/x", Proxy: "http://user:" + canary + "@" + addr}).Send(context.Background(), call("j"))
	if res.Stage != job.NotSent || res.Status != 0 || res.Wrote.IsZero() { // it was written: to the proxy
		t.Errorf("%+v", res)
	}
	checkErr(t, res.Err, "the proxy "+addr+" does not let us in (407): check user and password")
	direct := client(t, Config{URL: proxy.URL}).Send(context.Background(), call("j"))
	if direct.Stage != job.Answered || direct.Status != http.StatusProxyAuthRequired {
		t.Errorf("without a proxy it is the gateway's own word: %+v", direct)
	}
}

// The proxy of the environment is for other programs: a gateway's calls go where its configuration says.
func TestTheEnvironmentsProxyIsNotObeyed(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"https://x.example/", "http://x.example/"} {
		if c := client(t, Config{URL: url}); c.conns.transport.Proxy != nil || c.dialer.proxy != nil {
			t.Errorf("%s has a proxy", url)
		}
	}
}
