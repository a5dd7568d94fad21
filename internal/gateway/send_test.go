package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

const canary = "sk_live_canary"

// wire is a gateway made of a raw listener: a script decides what happens on each connection.
type wire struct {
	addr     string
	requests atomic.Int64 // whole requests that came in
	conns    atomic.Int64
}

// listen serves each connection with serve until the test ends.
func listen(t *testing.T, serve func(w *wire, c net.Conn, in *bufio.Reader)) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: ln.Addr().String()}
	var wg sync.WaitGroup
	var open sync.Map
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.conns.Add(1)
			open.Store(c, true)
			wg.Go(func() {
				defer c.Close()
				serve(w, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		open.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return w
}

// request reads one request and counts it; false when the connection is over.
func (w *wire) request(in *bufio.Reader) bool {
	r, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return false
	}
	w.requests.Add(1)
	return true
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

func client(t *testing.T, cfg Config) *Client {
	t.Helper()
	if !cfg.Key.Any() {
		cfg.Key.Name = "Idempotency-Key"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// url puts a secret into the query, where errors love to quote it.
func (w *wire) url() string { return "http://" + w.addr + "/v1/charges?key=" + canary }

func call(id string) job.Request {
	return job.Request{Job: job.Job{ID: id, Payload: []byte(`{"card":"` + canary + `"}`)}, Key: id}
}

// checkErr asserts a sentence with want in it and no secret.
func checkErr(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("no error, want %q", want)
	case !strings.Contains(err.Error(), want):
		t.Errorf("error %q lacks %q", err, want)
	case strings.Contains(fmt.Sprintf("%v %+v", err, err), canary), strings.Contains(err.Error(), "/v1/"):
		t.Errorf("error %q holds a secret or a URL", err)
	}
}

func TestAnAnswer(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("X-Test", "yes")
		w.WriteHeader(402)
		io.WriteString(w, `{"error":1}`)
	}))
	defer srv.Close()
	c := client(t, Config{URL: srv.URL + "/pay/{id}?m={payload.m.n}", Headers: map[string]string{"authorization": "Bearer x", "Host": "pay.example"}})
	before := time.Now()
	res := c.Send(context.Background(), job.Request{Job: job.Job{ID: "a/b ?", Payload: []byte(`{"m":{"n":1.50}}`)}, Key: "a~2"})
	if res.Stage != job.Answered || res.Status != 402 || string(res.Body) != `{"error":1}` || res.Header["X-Test"][0] != "yes" || res.Err != nil || res.Late {
		t.Errorf("result: %+v", res)
	}
	if res.Wrote.Before(before) || res.Took <= 0 || res.Wrote.Add(res.Took).After(time.Now()) {
		t.Errorf("wrote %v, took %v", res.Wrote, res.Took)
	}
	if got.Method != "POST" || got.RequestURI != "/pay/a%2Fb%20%3F?m=1.50" || got.Host != "pay.example" || string(body) != `{"m":{"n":1.50}}` || got.Proto != "HTTP/1.1" {
		t.Errorf("request: %s %s host %s %s %s", got.Method, got.RequestURI, got.Host, body, got.Proto)
	}
	for name, want := range map[string]string{"Idempotency-Key": "a~2", "Authorization": "Bearer x", "Content-Type": "application/json", "Accept-Encoding": "identity", "Content-Length": "16"} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
}

func TestMethodsAndBodies(t *testing.T) {
	t.Parallel()
	var seen atomic.Pointer[http.Request]
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		r.Header.Set("Body", string(b))
		seen.Store(r)
	}))
	defer srv.Close()
	for _, c := range []struct{ method, encoding, payload, body, length, kind string }{
		{"GET", "", `{"a":1}`, "", "", ""},
		{"DELETE", "form", `{"a":1}`, "", "", ""},
		{"PUT", "", "", "{}", "2", "application/json"},
		{"POST", "form", `{"a":null}`, "", "0", "application/x-www-form-urlencoded"},
		{"PATCH", "form", `{"b":true,"a":[1,{"x y":"ü&"}]}`, "b=true&a[0]=1&a[1][x+y]=%C3%BC%26", "33", "application/x-www-form-urlencoded"},
	} {
		res := client(t, Config{URL: srv.URL, Method: c.method, Encoding: c.encoding}).Send(context.Background(), job.Request{Job: job.Job{ID: "j", Payload: []byte(c.payload)}, Key: "j"})
		r := seen.Load()
		if res.Status != 200 || r.Method != c.method || r.Header.Get("Body") != c.body || r.Header.Get("Content-Length") != c.length || r.Header.Get("Content-Type") != c.kind || len(r.TransferEncoding) > 0 {
			t.Errorf("%+v: status %d, %s, headers %v, transfer encoding %v", c, res.Status, r.Method, r.Header, r.TransferEncoding)
		}
	}
}

func TestABigBodyArrivesWhole(t *testing.T) {
	t.Parallel()
	var length atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		length.Store(n)
	}))
	defer srv.Close()
	payload := []byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)
	res := client(t, Config{URL: srv.URL}).Send(context.Background(), job.Request{Job: job.Job{ID: "j", Payload: payload}, Key: "j"})
	if res.Status != 200 || length.Load() != int64(len(payload)) {
		t.Errorf("status %d, %v: %d of %d bytes arrived", res.Status, res.Err, length.Load(), len(payload))
	}
}

func TestATLSServer(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = quiet()
	var conns atomic.Int64
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.StartTLS()
	defer srv.Close()
	trusted := client(t, Config{URL: srv.URL, TLS: srv.Client().Transport.(*http.Transport).TLSClientConfig})
	for range 3 { // again on the kept connection
		due := time.Now().Add(20 * time.Millisecond)
		res := trusted.Send(context.Background(), job.Request{Job: job.Job{ID: "j"}, Key: "j", Due: due})
		if res.Status != 200 || string(res.Body) != "HTTP/1.1" || res.Wrote.Before(due) {
			t.Errorf("result: %+v, due %v", res, due)
		}
	}
	if got := conns.Load(); got != 1 {
		t.Errorf("three calls in turn took %d connections", got)
	}
	res := client(t, Config{URL: srv.URL}).Send(context.Background(), call("j"))
	if res.Stage != job.NotSent {
		t.Errorf("an untrusted certificate: %+v", res)
	}
	checkErr(t, res.Err, "unknown authority")
	old := client(t, Config{URL: srv.URL, TLS: &tls.Config{ServerName: "other.example", RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}})
	checkErr(t, old.Send(context.Background(), call("j")).Err, "for another host")
}

// In TLS 1.3 the handshake is over for a client before the server has looked at its certificate, so the request may be on the way
// when the server refuses that. A server reads no request before it has accepted the certificate.
func TestACallToAServerThatRefusesTheCertificateIsNotSent(t *testing.T) {
	t.Parallel()
	ours := testkit.NewAuthority(t)
	cert, key := ours.Issue("client", time.Hour)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	srv.Config.ErrorLog = quiet()
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	refuse := make(chan error)
	srv.TLS.VerifyConnection = func(tls.ConnectionState) error { return <-refuse }
	srv.StartTLS()
	defer srv.Close()
	trust := srv.Client().Transport.(*http.Transport).TLSClientConfig
	c := client(t, Config{URL: srv.URL, TLS: &tls.Config{RootCAs: trust.RootCAs, Certificates: []tls.Certificate{pair}}})
	once := call("j")
	once.Wrote = func(time.Time) { refuse <- errors.New("revoked") } // the alert comes after the write
	res := c.Send(context.Background(), once)
	if res.Stage != job.NotSent || res.Wrote.IsZero() || asked.Load() > 0 {
		t.Errorf("%+v, and the server was asked %d times", res, asked.Load())
	}
	checkErr(t, res.Err, "refuses our certificate")
}

// Where the server has accepted our certificate, it may have read the request: no alert means that nothing was sent.
func TestAServerMayRefuseTheCertificateOnlyBeforeItAnswers(t *testing.T) {
	t.Parallel()
	for version, fresh := range map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true} {
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		srv.TLS = &tls.Config{MaxVersion: version}
		srv.StartTLS()
		defer srv.Close()
		d := newDialer(srv.Listener.Addr().String(), true, time.Minute, srv.Client().Transport.(*http.Transport).TLSClientConfig)
		conn, err := d.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c := conn.(*gatedConn)
		if c.unproven() != fresh {
			t.Errorf("%s: a new connection is unproven: %t", tls.VersionName(version), !fresh)
		}
		if _, err := fmt.Fprint(c.Conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		c.gate.Store(&gate{state: written, conn: c})
		if n, err := c.Read(make([]byte, 1)); n == 0 || err != nil || c.unproven() {
			t.Errorf("%s: the server has answered, and a connection is unproven: %d, %v", tls.VersionName(version), n, err)
		}
	}
}

func TestAnswersOfAllShapes(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, `{"zipped":true}`)
	z.Close()
	for _, c := range []struct {
		name, answer string
		status       int
		body         string // beginning
		length       int
		err          string
		kept         bool // the connection is used again
	}{
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 200, "{}", 2, "", true},
		{"no body", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", 0, "", true},
		{"redirect", "HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", 307, "", 0, "", true},
		{"long by one", "HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n" + strings.Repeat("x", 65537), 200, "xxx", 65536, "longer than 64 KiB", true},
		{"full", "HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + strings.Repeat("x", 65536), 200, "xxx", 65536, "", true},
		{"huge", "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + strings.Repeat("x", 200000), 200, "xxx", 65536, "longer than 64 KiB", false},
		{"gzip unasked", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + fmt.Sprint(zipped.Len()) + "\r\n\r\n" + zipped.String(), 200, `{"zipped":true}`, 15, "", true},
		{"gzip in name only", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 200, "{}", 2, "is not", true},
		{"coded unasked", "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}", 200, "{}", 2, "neither identity nor gzip", true},
		{"coded twice", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: 2\r\n\r\n{}", 200, "{}", 2, "neither identity nor gzip", true},
		{"not coded", "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", 200, "{}", 2, "", true},
		{"gzip by its old name", "HTTP/1.1 200 OK\r\nContent-Encoding: x-gzip\r\nContent-Length: " + fmt.Sprint(zipped.Len()) + "\r\n\r\n" + zipped.String(), 200, `{"zipped":true}`, 15, "", true},
		{"early hints first", "HTTP/1.1 103 Early Hints\r\n\r\n" + okAnswer, 200, "{}", 2, "", true},
		{"switching protocols", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 101, "", 0, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := listen(t, func(w *wire, conn net.Conn, in *bufio.Reader) {
				for w.request(in) {
					io.WriteString(conn, c.answer)
				}
			})
			g := client(t, Config{URL: w.url()})
			for i := range int64(2) {
				res := g.Send(context.Background(), call("j"))
				if res.Stage != job.Answered || res.Status != c.status || len(res.Body) != c.length || !strings.HasPrefix(string(res.Body), c.body) {
					t.Fatalf("%s %d, %d bytes %.20q, %v", res.Stage, res.Status, len(res.Body), res.Body, res.Err)
				}
				if c.err != "" || res.Err != nil {
					checkErr(t, res.Err, c.err)
				}
				if w.requests.Load() != i+1 {
					t.Errorf("%d requests after %d calls", w.requests.Load(), i+1)
				}
			}
			if kept := w.conns.Load() == 1; kept != c.kept {
				t.Errorf("two calls took %d connections", w.conns.Load())
			}
		})
	}
}

// TestNoAnswer: everything that can go wrong after the write leaves exactly one request on the wire and says sent.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		serve func(c net.Conn)
		err   string
	}{
		{"closes", func(c net.Conn) { c.Close() }, "broke after the request was written: the gateway closed it"},
		{"resets", func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() }, "broke after the request was written: connection reset by peer"},
		{"half an answer's head", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nX-Test: 1\r\n"); c.Close() }, "broke after the request was written: the gateway closed it"},
		{"not HTTP", func(c net.Conn) { io.WriteString(c, "SSH-2.0 "+canary+"\r\n\r\n") }, "is not HTTP"},
		{"a bad header", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\n"+canary+"\r\n\r\n") }, "is not HTTP"},
		{"endless headers", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 300<<10)+"\r\n\r\n")
		}, "headers are too long"},
		{"silence", func(c net.Conn) { io.Copy(io.Discard, c) }, "no answer came within 2s"},
	} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			t.Run(c.name+"/"+method, func(t *testing.T) {
				t.Parallel()
				w := listen(t, func(w *wire, conn net.Conn, in *bufio.Reader) {
					if w.request(in) {
						c.serve(conn)
					}
				})
				timeout := time.Minute
				if c.name == "silence" {
					timeout = 2 * time.Second
				}
				res := client(t, Config{URL: w.url(), Method: method, Timeout: timeout}).Send(context.Background(), call("j"))
				if res.Stage != job.Sent || res.Status != 0 || res.Wrote.IsZero() || w.requests.Load() != 1 {
					t.Errorf("%+v, %d requests", res, w.requests.Load())
				}
				checkErr(t, res.Err, c.err)
			})
		}
	}
}

func TestASlowDripEndsWithTheTimeout(t *testing.T) {
	t.Parallel()
	w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) {
		if !w.request(in) {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
		for {
			<-time.After(20 * time.Millisecond)
			if _, err := io.WriteString(c, "x"); err != nil {
				return
			}
		}
	})
	start := time.Now()
	res := client(t, Config{URL: w.url(), Timeout: 3 * time.Second}).Send(context.Background(), call("j"))
	if res.Stage != job.Answered || res.Status != 200 || len(res.Body) == 0 || time.Since(start) > 30*time.Second {
		t.Errorf("%+v after %v", res, time.Since(start))
	}
	checkErr(t, res.Err, "did not end within 3s")
}

func TestNothingListens(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	res := client(t, Config{URL: "http://" + addr + "/v1/?key=" + canary}).Send(context.Background(), call("j"))
	if res.Stage != job.NotSent || !res.Wrote.IsZero() {
		t.Errorf("%+v", res)
	}
	checkErr(t, res.Err, "connecting to "+addr+" failed: connection refused")
	res = client(t, Config{URL: "http://no.such.host.invalid/v1/"}).Send(context.Background(), call("j"))
	if res.Stage != job.NotSent {
		t.Errorf("%+v", res)
	}
	checkErr(t, res.Err, "looking up no.such.host.invalid failed")
}

// TestTheHandshakeNeverEnds: a time-out before the connection stands is not an unknown outcome.
func TestTheHandshakeNeverEnds(t *testing.T) {
	t.Parallel()
	w := listen(t, func(_ *wire, c net.Conn, _ *bufio.Reader) { io.Copy(io.Discard, c) })
	g := client(t, Config{URL: "https://" + w.addr + "/v1/?key=" + canary, Timeout: 150 * time.Millisecond})
	res := g.Send(context.Background(), call("j"))
	if res.Stage != job.NotSent {
		t.Errorf("%+v", res)
	}
	checkErr(t, res.Err, "within 150ms")
	if !errors.Is(res.Err, context.DeadlineExceeded) {
		t.Errorf("%v is not a time-out", res.Err)
	}
}

func TestACallIsBrokenOff(t *testing.T) {
	t.Parallel()
	w := listen(t, func(w *wire, c net.Conn, in *bufio.Reader) { w.request(in); io.Copy(io.Discard, c) })
	g := client(t, Config{URL: w.url()})
	ctx, cancel := context.WithCancel(context.Background())
	waiting := call("a")
	waiting.Due = time.Now().Add(time.Hour)
	time.AfterFunc(30*time.Millisecond, cancel)
	res := g.Send(ctx, waiting)
	if res.Stage != job.NotSent || w.requests.Load() != 0 {
		t.Errorf("before the slot: %+v", res)
	}
	checkErr(t, res.Err, "broken off")
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		for w.requests.Load() == 0 {
			<-time.After(time.Millisecond)
		}
		cancel()
	}()
	res = g.Send(ctx, call("b"))
	if res.Stage != job.Sent || !errors.Is(res.Err, context.Canceled) {
		t.Errorf("after the write: %+v", res)
	}
}
