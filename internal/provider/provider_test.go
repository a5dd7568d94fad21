package provider

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// rig is a provider behind a real listener.
type rig struct {
	*Provider
	t   *testing.T
	url string
}

func setup(t *testing.T, cfg Config) rig {
	t.Helper()
	p := New(cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
	return rig{p, t, "http://" + ln.Addr().String()}
}

// do makes one request; it may be called on any goroutine. A failure shows as status 0.
func (r rig) do(method, path, key, body string) (int, http.Header, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return 0, nil, ""
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.t.Error(err)
		return 0, nil, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

func (r rig) charge(key string) int {
	r.t.Helper()
	status, _, _ := r.do("POST", "/v1/charges", key, "{}")
	return status
}

// TestWindowsAgainstBruteForce gives calls, a little out of order, to the log and to a plain count of all windows.
func TestWindowsAgainstBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limits := []Limit{
			{N: rapid.IntRange(1, 5).Draw(t, "n"), Window: time.Duration(rapid.IntRange(1, 20).Draw(t, "w"))},
			{N: rapid.IntRange(1, 9).Draw(t, "n2"), Window: time.Duration(rapid.IntRange(1, 60).Draw(t, "w2"))},
		}
		countRefused := rapid.Bool().Draw(t, "countRefused")
		l := callLog{keep: maxCalls}
		var taken []int64
		now := int64(100)
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			now += int64(rapid.IntRange(0, 6).Draw(t, "step"))
			c := &call{at: now - int64(rapid.IntRange(0, 4).Draw(t, "late"))}
			l.arrive(c, limits, countRefused)
			with := append(slices.Clone(taken), c.at)
			over := false
			for _, limit := range limits {
				// Refused calls that count may overfill other windows: only windows with c matter.
				over = over || fullest(with, c.at, limit) > limit.N
			}
			if c.over != over {
				t.Fatalf("call at %d after %v under %v: over = %v, by brute force %v", c.at, taken, limits, c.over, over)
			}
			if !over || countRefused {
				taken = with
			}
		}
		for _, limit := range limits {
			want := 0
			for _, c := range l.calls {
				want = max(want, fullest(l.times(), c.at, limit))
			}
			if got := l.mostIn(limits)[limit]; got != want {
				t.Fatalf("most in a window of %v = %d, by brute force %d", limit, got, want)
			}
		}
	})
}

// fullest counts every window (e-W, e] that holds at.
func fullest(times []int64, at int64, limit Limit) int {
	best := 0
	for e := at; e < at+int64(limit.Window); e++ {
		n := 0
		for _, t := range times {
			if t <= e && t > e-int64(limit.Window) {
				n++
			}
		}
		best = max(best, n)
	}
	return best
}

func TestTheLogStaysBounded(t *testing.T) {
	t.Parallel()
	limits := []Limit{{N: 3, Window: 10}}
	l := callLog{keep: 10}
	for i := range int64(100) {
		at := i * 10
		if i < 4 {
			at = i // a burst that is dropped long before the end
		}
		l.arrive(&call{at: at}, limits, false)
		if len(l.calls) > 10 || len(l.taken) > 10 {
			t.Fatalf("after %d calls the log holds %d and %d", i+1, len(l.calls), len(l.taken))
		}
	}
	if got := l.mostIn(limits)[limits[0]]; got != 4 {
		t.Errorf("the most in a window is %d after the burst of 4 was dropped", got)
	}
}

func TestOverTheLimitIsToldWhenToComeAgain(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{Limits: []Limit{{N: 2, Window: time.Minute}}})
	if a, b := r.charge("a"), r.charge("b"); a != 200 || b != 200 {
		t.Fatalf("the first two calls got %d and %d", a, b)
	}
	status, header, body := r.do("POST", "/", "c", "{}")
	if status != 429 || header.Get("Retry-After") != "60" || !strings.Contains(body, "rate_limit") {
		t.Errorf("the third call got %d, Retry-After %q, %s", status, header.Get("Retry-After"), body)
	}
	s := r.Stats()
	if s.Calls != 3 || s.TooMany != 1 || s.Over != 1 || s.Charged != 2 || !slices.Equal(s.MaxInWindow, []int{3}) {
		t.Errorf("stats: %+v", s)
	}
	c := r.Config()
	c.NoHint = true
	r.Set(c)
	if _, header, _ := r.do("POST", "/", "c", "{}"); header.Get("Retry-After") != "" {
		t.Errorf("with NoHint a 429 carries Retry-After %q", header.Get("Retry-After"))
	}
}

func TestAKeyGetsItsFirstAnswerAgain(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{DeclineEvery: 2})
	_, _, first := r.do("POST", "/", "job-1", "{}")
	status, header, again := r.do("POST", "/", "job-1", "{}")
	if status != 200 || header.Get("Idempotent-Replayed") != "true" || first != again {
		t.Errorf("the same key got %d %q, then %q", status, first, again)
	}
	if got := []int{r.charge("job-2"), r.charge("job-2"), r.charge("job-2~2")}; !slices.Equal(got, []int{402, 402, 200}) {
		t.Errorf("a declined job, again, and with a new key: %v", got)
	}
	s := r.Stats()
	if s.Charged != 2 || s.ChargedTwice != 0 || s.Declined != 1 || s.Replayed != 2 || s.OK != 3 {
		t.Errorf("stats: %+v", s)
	}
	r.charge("job-1~2")
	if s := r.Stats(); s.ChargedTwice != 1 {
		t.Errorf("a second key of a charged job: charged_twice = %d", s.ChargedTwice)
	}
}

func TestAKeyThatIsRunningConflicts(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{Service: 3 * time.Second}) // on a busy machine a second may pass before the next call is there
	first := make(chan int)
	go func() { first <- r.charge("job") }()
	waitFor(t, func() bool { return r.Stats().Calls == 1 })
	if got := r.charge("job"); got != 409 {
		t.Errorf("the same key while the first call runs: %d", got)
	}
	if got := <-first; got != 200 {
		t.Errorf("the first call: %d", got)
	}
	if s := r.Stats(); s.Charged != 1 || s.Conflicts != 1 || s.MaxInFlight != 2 {
		t.Errorf("stats: %+v", s)
	}
}

func TestWithoutKeysEveryCallCharges(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{NoKeys: true})
	r.charge("a")
	r.charge("a")
	r.do("POST", "/pay/b", "", "{}")
	r.do("POST", "/pay/b", "", "{}")
	if s := r.Stats(); s.Charged != 4 || s.ChargedTwice != 2 || s.Replayed != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// TestAHungCallIsCharged hangs up on a call that gets no answer, and asks again with its key.
func TestAHungCallIsCharged(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{Hang: 1})
	ctx, hangUp := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", r.url, strings.NewReader("{}"))
	req.Header.Set("Idempotency-Key", "job")
	done := make(chan error)
	go func() {
		_, err := http.DefaultTransport.RoundTrip(req)
		done <- err
	}()
	waitFor(t, func() bool { return r.Stats().Hung == 1 })
	hangUp()
	if err := <-done; err == nil {
		t.Error("a hung call got an answer")
	}
	if got := r.charge("job"); got != 200 {
		t.Errorf("the same key afterwards: %d", got)
	}
	if s := r.Stats(); s.Charged != 1 || s.Replayed != 1 {
		t.Errorf("stats: %+v", s)
	}
}

func TestSettingsChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{})
	status, _, body := r.do("PATCH", "/settings", "", `{"limit":["100/s","1/10ms"],"service":"20ms","decline":"10%","down":true,"retry_after":"1500ms","keys":false}`)
	if status != 200 {
		t.Fatalf("PATCH /settings: %d %s", status, body)
	}
	want := `{"limit":["100/s","1/10ms"],"service":"20ms","decline":0.1,"decline_every":0,"fail_every":0,"fail":0,"hang":0,"down":true,"retry_after":"1.5s","no_hint":false,"count_refused":false,"lookup_lag":"0s","lookup_fail":0,"lookup_hang":0,"keys":false,` +
		`"save_500":false,"charge_500":false,"marks":true,"fates":[],"incident":null}`
	if got := strings.TrimSpace(body); got != want {
		t.Errorf("PATCH /settings answers\n%s, want\n%s", got, want)
	}
	if status, header, _ := r.do("POST", "/", "a", ""); status != 503 || header.Get("Retry-After") != "2" {
		t.Errorf("down: %d, Retry-After %q", status, header.Get("Retry-After"))
	}
	r.do("PUT", "/settings", "", `{"down":false,"fail":1,"limit":"5/s"}`)
	if got := r.charge("a"); got != 500 {
		t.Errorf("failing: %d", got)
	}
	for _, bad := range []string{`{"limits":"1/s"}`, `{"limit":"0/s"}`, `{"limit":7}`, `{"decline":"200%"}`, `{"service":20}`, `{"hang":-1}`, `[`} {
		if status, _, body := r.do("PATCH", "/settings", "", bad); status != 400 || body == "" {
			t.Errorf("PATCH /settings %s: %d %q", bad, status, body)
		}
	}
	if got := r.Config().Limits; !slices.Equal(got, []Limit{{N: 5, Window: time.Second}}) {
		t.Errorf("limits after that: %v", got)
	}
}

func TestStatsAndCallsOverHTTP(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{Limits: []Limit{{N: 2, Window: time.Minute}}})
	for _, key := range []string{"a", "b", "c"} {
		r.charge(key)
	}
	_, _, text := r.do("GET", "/stats", "", "")
	var s Stats
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Calls != 3 || s.Limits[0] != "2/m" || s.FirstAt == nil {
		t.Errorf("GET /stats: %v %s", err, text)
	}
	_, _, text = r.do("GET", "/calls", "", "")
	lines := bufio.NewScanner(strings.NewReader(text))
	var got []string
	last := int64(0)
	for lines.Scan() {
		var line CallLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.At < last {
			t.Errorf("GET /calls: %v %s", err, lines.Text())
		}
		last = line.At
		got = append(got, fmt.Sprint(line.Key, line.Status))
	}
	if want := []string{"a200", "b200", "c429"}; !slices.Equal(got, want) {
		t.Errorf("GET /calls: %v, want %v", got, want)
	}
	if status, _, _ := r.do("GET", "/reset", "", ""); status != 405 {
		t.Errorf("GET /reset: %d", status)
	}
	if status, _, _ := r.do("POST", "/reset", "", ""); status != 204 || r.Stats().Calls != 0 {
		t.Errorf("POST /reset: %d, calls %d", status, r.Stats().Calls)
	}
}

// counting is a listener whose connections count the bytes that are read.
type counting struct {
	net.Listener
	read *atomic.Int64
}

func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countingConn{c.(*tellingConn), l.read}, nil
}

type countingConn struct {
	*tellingConn
	count *atomic.Int64
}

func (c countingConn) ReadStamped(p []byte) (int, time.Time, error) {
	n, at, err := c.tellingConn.ReadStamped(p)
	c.count.Add(int64(n))
	return n, at, err
}

// TestStampsAreOfTheFirstByte sends each request in two halves and checks which one was stamped. The second half is sent when the first one was read: bytes that are
// read together have the stamp of the last one.
func TestStampsAreOfTheFirstByte(t *testing.T) {
	t.Parallel()
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, read := New(Config{}), &atomic.Int64{}
	served := make(chan error, 1)
	go func() { served <- r.Serve(t.Context(), counting{ln, read}) }()
	t.Cleanup(func() { <-served })
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers, sent := bufio.NewReader(conn), 0
	for i := range 3 { // on one connection: a stamp must not be that of the previous request
		before := time.Now()
		first, _ := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k%d\r\nContent-Length: 2\r\n", i)
		sent += first
		waitFor(t, func() bool { return read.Load() == int64(sent) })
		between := time.Now()
		second, _ := io.WriteString(conn, "\r\n{}")
		sent += second
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		at := time.UnixMicro(r.Calls()[i].At)
		if at.Before(before.Truncate(time.Microsecond)) || at.After(between) {
			t.Errorf("call %d: the first half was written and read between %v and %v, stamped %v", i, before, between, at)
		}
	}
}

func TestUtilisationLooksAtTheMiddle(t *testing.T) {
	t.Parallel()
	var times []int64
	for i := range int64(1001) {
		times = append(times, i*int64(10*time.Millisecond))
	}
	if got := utilisation(times, []Limit{{N: 1000, Window: time.Second}, {N: 100, Window: time.Second}}); got < 0.999 || got > 1.001 {
		t.Errorf("100 calls a second under 100/s: %v", got)
	}
}

func TestServeHTTPUnderRace(t *testing.T) {
	t.Parallel()
	p := New(Config{Limits: []Limit{{N: 50, Window: time.Minute}}, Decline: 0.1, Fail: 0.1, Seed: 7})
	srv := httptest.NewServer(p)
	defer srv.Close()
	r := rig{p, t, srv.URL}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 25 {
				r.charge(fmt.Sprintf("job-%d", (w*25+i)%60))
				_ = p.Stats()
			}
		})
	}
	wg.Wait()
	s := p.Stats()
	if s.TooMany != 50 || s.Over != 50 || s.ChargedTwice != 0 || s.OK+s.Declined+s.Failed+s.Conflicts+s.TooMany > s.Calls || s.Calls != 100 {
		t.Errorf("stats: %+v", s)
	}
}

func TestParseLimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Limit{"100/s": {N: 100, Window: time.Second}, "5000/m": {N: 5000, Window: time.Minute}, "300/10s": {N: 300, Window: 10 * time.Second}, "1/10ms": {N: 1, Window: 10 * time.Millisecond}, "9/d": {N: 9, Window: 24 * time.Hour}} {
		got, err := ParseLimit(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("ParseLimit(%q) = %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "100", "0/s", "-1/s", "1/", "1/0s", "x/s", "1/w"} {
		if _, err := ParseLimit(bad); err == nil {
			t.Errorf("ParseLimit(%q) has no error", bad)
		}
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("it did not come to pass within a minute")
		case <-time.After(time.Millisecond):
		}
	}
}

func BenchmarkArrive(b *testing.B) {
	l := callLog{keep: maxCalls}
	limits := []Limit{{N: 1000, Window: time.Second}, {N: 50000, Window: time.Minute}}
	at := int64(0)
	for b.Loop() {
		at += rand.Int64N(2_000_000)
		l.arrive(&call{at: at}, limits, false)
	}
}
