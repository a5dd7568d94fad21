package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// openDoor accepts all jobs and counts them.
type openDoor struct{ took atomic.Int64 }

// Admit implements Door.
func (d *openDoor) Admit(_ context.Context, _ string, jobs []job.Job, _ admission.Mode) ([]admission.Answer, error) {
	d.took.Add(int64(len(jobs)))
	answers := make([]admission.Answer, len(jobs))
	for i := range answers {
		answers[i] = admission.Answer{Outcome: job.Enqueued, Room: &job.Room{}}
	}
	return answers, nil
}

// rig is an API on a port.
type rig struct {
	t    *testing.T
	api  *API
	door *openDoor
	addr string
	on   net.Listener
}

// lasting is longer than any test.
const lasting = time.Hour

// patientTimes returns times that do not pass during a test.
func patientTimes() times { return times{lasting, lasting, lasting, lasting, lasting, lasting} }

// serve starts an API with these bounds.
func serve(t *testing.T, most int, bounds func(*API)) *rig {
	t.Helper()
	r := &rig{t: t, door: &openDoor{}}
	page := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			_, _ = io.WriteString(w, text)
		})
	}
	r.api = New(Config{Guard: NewGuard("s3cret"), Gateways: map[string]Gateway{"g": {MaxCost: 9}}, Door: r.door, Console: page("console"), Login: page("login"),
		Queues: page("queues"), Metrics: page("metrics"), Ready: func(context.Context) error { return nil }})
	r.api.times = patientTimes()
	if bounds != nil {
		bounds(r.api)
	}
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r.on, r.addr = Bound(ln, most, nil, nil), ln.Addr().String()
	srv := r.api.Server(slog.New(slog.DiscardHandler))
	srv.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			_ = c.(*conn).SetWriteBuffer(64 << 10) // so that who does not read soon fills it
		}
		moved(c, s)
	}
	go func() { _ = srv.Serve(r.on) }()
	t.Cleanup(func() { _ = srv.Close() })
	return r
}

// noise is how long anything may take on a busy machine.
const noise = 3 * time.Minute

// dial opens a connection and sends text. What has not come for three minutes never comes.
func (r *rig) dial(text string) *net.TCPConn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(noise))
	_, _ = io.WriteString(c, text)
	return c.(*net.TCPConn)
}

// head returns the head of a request with a body of a length. The length "" means chunks.
func head(what, length string, more ...string) string {
	lines := append([]string{what + " HTTP/1.1", "Host: localhost"}, more...)
	switch length {
	case "0":
	case "":
		lines = append(lines, "Transfer-Encoding: chunked")
	default:
		lines = append(lines, "Content-Length: "+length)
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

const (
	known  = "Authorization: Bearer s3cret"
	asOne  = "Content-Type: application/json"
	asMany = "Content-Type: application/x-ndjson"
)

// answerOf reads the head of an answer.
func answerOf(t *testing.T, c net.Conn) (*http.Response, *bufio.Reader) {
	t.Helper()
	in := bufio.NewReader(c)
	got, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	return got, in
}

// ended reads a connection to its end, and reports whether the other side closed it.
func ended(c net.Conn) bool {
	_, err := io.Copy(io.Discard, c)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// Whatever a client does not send or read, its connection is closed in the end.
func TestEveryWayHasAnEnd(t *testing.T) {
	t.Parallel()
	const soon = 100 * time.Millisecond
	r := serve(t, 1000, func(a *API) {
		a.times = times{head: soon, read: 2 * soon, write: 3 * soon, idle: soon, refuse: soon, unread: soon}
	})
	for _, begun := range []string{
		"", "GE", "GET / HTTP/1.1\r\nHost: localhost\r\n", head("GET /healthz", "0"), // silent, half a word, half a head, idle
		head("POST /v1/gateways/g/jobs", "200000"), head("POST /v1/gateways/g/jobs", ""), head("POST /gateways/g/pause", "9"),
		head("GET /login", "200000"), head("PUT /login", "9"), head("POST /login", "9"), head("OPTIONS *", "9"), head("GET /healthz", "9"),
		head("POST /v1/gateways/g/jobs", "9", "Sec-Fetch-Site: cross-site"), head("POST /v1/gateways/g/jobs", "9", "Expect: 100-continue"),
		head("GET /v1/none", "9", known), head("DELETE /v1/status", "9", known), head("GET /", "9", known), head("GET /queues/", "", known),
		head("POST /v1/gateways/none/jobs", "9", known, asOne), head("POST /v1/gateways/g/jobs", "9", known, asOne),
		head("POST /v1/gateways/g/jobs", "", known, asMany), head("POST /v1/gateways/g/jobs", "9", known, "Content-Type: text/plain"),
	} {
		t.Run(strings.ReplaceAll(begun, "\r\n", " "), func(t *testing.T) {
			t.Parallel()
			if !ended(r.dial(begun)) {
				t.Error("it is still open")
			}
		})
	}
	for _, path := range []string{"/login", "/v1/status", "/queues/", "/healthz", "/openapi.json"} {
		t.Run("unread "+path, func(t *testing.T) {
			t.Parallel()
			c := r.dial("")
			_ = c.SetReadBuffer(4 << 10)
			asked := strings.Repeat(head("GET "+path, "0"), 1000)
			var err error
			for err == nil {
				_, err = io.WriteString(c, asked)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("it is still open")
			}
		})
	}
}

// A refused request is answered at once, before its body has arrived, and the connection is closed.
func TestRefusalsWaitForNoBody(t *testing.T) {
	t.Parallel()
	r := serve(t, 1000, func(a *API) { a.times.refuse = 10 * time.Millisecond })
	for begun, want := range map[string]int{
		head("POST /v1/gateways/g/jobs", "200000"):                               401,
		head("POST /v1/gateways/g/jobs", ""):                                     401,
		head("POST /gateways/g/pause", "200000"):                                 401,
		head("GET /v1/status", "0"):                                              401,
		head("POST /v1/gateways/g/jobs", "9", "Sec-Fetch-Site: cross-site"):      403,
		head("POST /v1/none", "200000", known):                                   404,
		head("DELETE /v1/gateways/g/jobs/a", "200000", known):                    405,
		head("POST /v1/gateways/g/jobs", "200000", "Authorization: Bearer wron"): 401,
	} {
		c := r.dial(begun)
		got, in := answerOf(t, c)
		if got.StatusCode != want || !got.Close {
			t.Errorf("%q: %d, closing: %v", begun, got.StatusCode, got.Close)
		}
		if _, err := io.Copy(io.Discard, in); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: it is still open", begun)
		}
	}
	// A request for an unknown path does not close the connection.
	got, _ := answerOf(t, r.dial(head("GET /v1/none", "0", known)))
	if got.StatusCode != 404 || got.Close {
		t.Errorf("%d, closing: %v", got.StatusCode, got.Close)
	}
}

// With both chunks and a length, net/http ignores the length, and a proxy may use it. So the bytes after the body must not be read as a request.
func TestChunkedRequestsEndTheConnection(t *testing.T) {
	t.Parallel()
	r := serve(t, 1000, nil)
	inner := "0\r\n\r\n" + head("GET /metrics", "0", known)
	c := r.dial(head("POST /v1/gateways/g/jobs", fmt.Sprint(len(inner)), known, asOne, "Transfer-Encoding: chunked") + inner)
	got, in := answerOf(t, c)
	rest, err := io.ReadAll(in)
	if !got.Close || err != nil || strings.Contains(string(rest), "metrics") {
		t.Errorf("%d, closing: %v, %v, then %q", got.StatusCode, got.Close, err, rest)
	}
}

func TestNothingIsTakenForAnotherType(t *testing.T) {
	t.Parallel()
	r := serve(t, 1000, nil)
	for _, path := range []string{"/v1/none", "/metrics", "/healthz", "/openapi.json", "/login", "/", "/queues/"} {
		for _, token := range []string{known, "X: y"} {
			if got, _ := answerOf(t, r.dial(head("GET "+path, "0", token))); got.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %v", path, got.Header)
			}
		}
	}
}

func (r *rig) held() int {
	b := r.on.(*bounded)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open.Len()
}

// With any number of idle connections without a token, probes are answered, and clients with a token continue.
func TestStrangersMakeRoom(t *testing.T) {
	t.Parallel()
	const most = 20
	r := serve(t, most, nil)
	idle := r.dial(head("GET /metrics", "0", known))
	answerOf(t, idle)
	stream := r.dial(head("POST /v1/gateways/g/jobs", "", known, asMany))
	r.chunk(stream, lines(0, admission.ChunkJobs))
	_, told := answerOf(t, stream)
	for i := range 10 * most {
		r.dial([]string{"", "GET / HTT", head("GET /healthz", "0"), head("POST /login", "9"), head("GET /login", "99", known)}[i%4])
		if i%7 == 0 {
			if got, _ := answerOf(t, r.dial(head("GET /healthz", "0"))); got.StatusCode != 200 {
				t.Errorf("a probe is answered %d", got.StatusCode)
			}
		}
		if n := r.held(); n > most {
			t.Fatalf("%d connections are open", n)
		}
	}
	r.chunk(stream, lines(admission.ChunkJobs, admission.ChunkJobs))
	for seen := 0; seen < 2*admission.ChunkJobs; {
		text, err := told.ReadString('\n')
		if err != nil {
			t.Fatalf("the caller with a token was cut off: %v", err)
		}
		seen += strings.Count(text, `"status":202`)
	}
	_, _ = io.WriteString(idle, head("GET /metrics", "0", known))
	if got, _ := answerOf(t, idle); got.StatusCode != 200 {
		t.Errorf("who idles with a token is answered %d", got.StatusCode)
	}
}

// If clients with a token hold all connections, an idle one is closed for a new one. If all are busy, the new one is closed.
func TestKnownCallersMakeRoomOnlyWhenTheyIdle(t *testing.T) {
	t.Parallel()
	const most = 5
	r := serve(t, most, nil)
	var busy []*net.TCPConn
	for i := range most {
		if i == 1 {
			answerOf(t, r.dial(head("GET /metrics", "0", known)))
			continue
		}
		c := r.dial(head("POST /v1/gateways/g/jobs", "", known, asMany))
		r.chunk(c, lines(0, admission.ChunkJobs))
		answerOf(t, c)
		busy = append(busy, c)
	}
	c := r.dial(head("POST /v1/gateways/g/jobs", "", known, asMany))
	r.chunk(c, lines(0, admission.ChunkJobs))
	answerOf(t, c)
	if busy = append(busy, c); !ended(r.dial("")) {
		t.Error("there was room for one more")
	}
	for _, c := range busy {
		_ = c.SetReadDeadline(time.Now())
		if ended(c) {
			t.Error("one who was busy is cut off")
		}
	}
}

// chunk sends a piece of a body.
func (r *rig) chunk(c net.Conn, text string) {
	_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n", len(text), text)
}

func lines(from, n int) string {
	var b strings.Builder
	for i := from; i < from+n; i++ {
		fmt.Fprintf(&b, "{\"id\":\"j%d\"}\n", i)
	}
	return b.String()
}

// last reads an answer to many jobs. It returns how many were accepted, and the last line.
func last(t *testing.T, c net.Conn) (took int64, end problem) {
	t.Helper()
	got := bodyOf(t, c)
	for line := range strings.Lines(got) {
		end = problem{}
		if err := json.Unmarshal([]byte(line), &end); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if end.Status == http.StatusAccepted {
			took++
		}
	}
	return took, end
}

// bodyOf reads a whole answer.
func bodyOf(t *testing.T, c net.Conn) string {
	t.Helper()
	got, _ := answerOf(t, c)
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatalf("the answer is cut short: %v", err)
	}
	return string(text)
}

// A client sends jobs and does not read the answer. They are accepted up to a bound. The answer has all accepted jobs, and says where they end.
func TestAnAnswerThatNobodyReads(t *testing.T) {
	t.Parallel()
	r := serve(t, 1000, func(a *API) { a.spools.most, a.times.unread = 1<<20, 50*time.Millisecond })
	c := r.dial("")
	_ = c.SetReadBuffer(64 << 10) // with less, reading takes long
	_, _ = io.WriteString(c, head("POST /v1/gateways/g/jobs", "", known, asMany))
	sent := 0
	wide := strings.NewReplacer("}", `,"payload":{"x":"`+strings.Repeat("y", 1000)+`"}}`) // so that the kernel's buffers don't take all of the body
	for ; sent < 60_000; sent += admission.ChunkJobs {
		_ = c.SetDeadline(time.Now().Add(noise))
		r.chunk(c, wide.Replace(lines(sent, admission.ChunkJobs)))
		if n := r.api.spools.used.Load(); n > 1<<20 {
			t.Fatalf("%d bytes wait on disk", n)
		}
	}
	_, _ = io.WriteString(c, "0\r\n\r\n")
	took, end := last(t, c)
	if took == 0 || took != r.door.took.Load() || int64(end.Line) != took+1 || end.Code != codeSlow {
		t.Errorf("%d were taken in, %d told of %d, and at the end %+v", r.door.took.Load(), took, sent, end)
	}
	testkit.Eventually(t, noise, "the disk to be free again", func() bool { return r.api.spools.used.Load() == 0 && r.api.bodies.used.Load() == 0 })
}

// The memory for bodies in transfer is bounded. A request beyond the bound is told when to come again. All memory is free when the bodies have ended.
func TestBodiesUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	r := serve(t, 1000, func(a *API) { a.bodies.most = 3 << 20 })
	big := `{"id":"big","payload":{"x":"` + strings.Repeat("y", 900<<10)
	var waiting []*net.TCPConn
	for range 3 {
		before := r.api.bodies.used.Load()
		waiting = append(waiting, r.dial(head("POST /v1/gateways/g/jobs", "1000000", known, asOne)+big))
		testkit.Eventually(t, noise, "the body to be there", func() bool { return r.api.bodies.used.Load() == before+int64(len(big)) })
	}
	for _, c := range []string{head("POST /v1/gateways/g/jobs", fmt.Sprint(len(big)), known, asOne) + big, head("POST /v1/gateways/g/jobs", fmt.Sprint(len(big)), known, asMany) + big} {
		got, _ := answerOf(t, r.dial(c))
		if got.StatusCode != 503 || got.Header.Get("Retry-After") == "" {
			t.Errorf("%d %v", got.StatusCode, got.Header)
		}
	}
	if got, _ := answerOf(t, r.dial(head("POST /v1/gateways/g/jobs", "10", known, asOne)+`{"id":"a"}`)); got.StatusCode != 202 {
		t.Errorf("a small one beside them is answered %d", got.StatusCode)
	}
	for _, c := range waiting {
		_ = c.Close()
	}
	testkit.Eventually(t, noise, "the memory to be free again", func() bool { return r.api.bodies.used.Load() == 0 })
}

// There is no memory for the rest of many jobs. The answer has all accepted jobs, and says where they end.
func TestManyJobsThatThereIsNoMemoryFor(t *testing.T) {
	t.Parallel()
	r := serve(t, 1000, func(a *API) { a.bodies.most = manyLeast + 1<<20 })
	c := r.dial(head("POST /v1/gateways/g/jobs", "", known, asMany))
	r.chunk(c, lines(0, admission.ChunkJobs))
	testkit.Eventually(t, noise, "the first to be in", func() bool { return r.door.took.Load() == admission.ChunkJobs })
	other := r.dial(head("POST /v1/gateways/g/jobs", "1000000", known, asOne) + `{"id":"big","payload":{"x":"` + strings.Repeat("y", 900<<10))
	testkit.Eventually(t, noise, "the other's body to be there", func() bool { return r.api.bodies.used.Load() > manyLeast+900<<10 })
	r.chunk(c, `{"id":"long","payload":{"x":"`+strings.Repeat("y", 400<<10)+"\"}}\n")
	_, _ = io.WriteString(c, "0\r\n\r\n")
	if took, end := last(t, c); took != admission.ChunkJobs || end.Line != admission.ChunkJobs+1 || end.Code != codeUnavailable || end.RetryAfter == 0 {
		t.Errorf("%d were told, and at the end %+v", took, end)
	}
	_ = other.Close()
	testkit.Eventually(t, noise, "the memory to be free again", func() bool { return r.api.bodies.used.Load() == 0 })
}
