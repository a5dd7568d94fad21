package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/testkit"
)

const roomForAll = "admission: {limits: [100000/s], burst: 1000000}\n    replay: manual"

// Most clients read nothing until they have sent everything. The buffers of this one hold only a few lines of the answer.
func TestAPITakesManyFromAClientThatOnlySends(t *testing.T) {
	t.Parallel()
	const n = 10_000
	a := newAPIRig(t, "", roomForAll)
	var text strings.Builder
	for i := 1; i <= n; i++ {
		if i%5_000 == 0 {
			fmt.Fprintf(&text, "{\"id\":\"inv-%d\",\"payload\":{]}\n", i)
			continue
		}
		fmt.Fprintf(&text, "{\"id\":\"inv-%d\",\"payload\":{\"amount\":%d,\"currency\":\"EUR\"}}\n", i, i)
	}
	for round, status := range []int{202, 200} {
		lines := a.lines(a.sendThenRead(text.String(), status))
		if len(lines) != n {
			t.Fatalf("round %d: %d lines for %d", round, len(lines), n)
		}
		for i, l := range lines {
			want := told{Line: i + 1, ID: fmt.Sprintf("inv-%d", i+1), Status: status}
			if (i+1)%5_000 == 0 {
				want = told{Line: i + 1, Status: 400}
			}
			if l.Line != want.Line || l.ID != want.ID || l.Status != want.Status {
				t.Fatalf("round %d: %+v, want %+v", round, l, want)
			}
		}
	}
	if got := a.ask("GET", "/v1/status", "", nil); !strings.Contains(got.body, `"queued":9998`) {
		t.Error(got.body)
	}
}

func (a *apiRig) sendThenRead(text string, status int) string {
	a.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(128 << 10)
	_ = conn.(*net.TCPConn).SetWriteBuffer(64 << 10)
	_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		a.jobs(""), apiToken, asNDJSONType, len(text), text)
	if err != nil {
		a.t.Fatalf("sending: %v", err)
	}
	back, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	body, err := io.ReadAll(back.Body)
	if err != nil || back.StatusCode != status {
		a.t.Fatalf("%d, want %d: %v", back.StatusCode, status, err)
	}
	return string(body)
}

// The first lines are answered before the last ones are sent.
func TestAPIAnswersWhileTheBodyIsStillSent(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", roomForAll)
	body, answers := a.stream()
	a.sendJobs(body, 0, 500)
	for i := range 500 {
		if l := a.told(next(t, answers)); l.Line != i+1 || l.Status != 202 {
			t.Fatalf("%+v", l)
		}
	}
	a.sendJobs(body, 500, 1)
	_ = body.Close()
	if l := a.told(next(t, answers)); l.Line != 501 || l.Status != 202 {
		t.Errorf("%+v", l)
	}
	if answers.Scan() {
		t.Errorf("one more: %s", answers.Text())
	}
}

// stream starts a POST of many jobs. It returns a writer for the body, and a scanner of the answer's lines.
func (a *apiRig) stream() (*io.PipeWriter, *bufio.Scanner) {
	a.t.Helper()
	read, write := io.Pipe()
	r, err := http.NewRequestWithContext(a.t.Context(), "POST", a.url+a.jobs(""), read)
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiToken)
	r.Header.Set("Content-Type", asNDJSONType)
	out, in := io.Pipe()
	go func() {
		back, err := http.DefaultClient.Do(r)
		if err == nil {
			_, err = io.Copy(in, back.Body)
			_ = back.Body.Close()
		}
		_ = in.CloseWithError(err)
	}()
	a.t.Cleanup(func() { _ = write.Close(); _ = out.Close() })
	return write, bufio.NewScanner(out)
}

func (a *apiRig) sendJobs(to io.Writer, from, n int) {
	a.t.Helper()
	var text strings.Builder
	for i := from; i < from+n; i++ {
		fmt.Fprintf(&text, "{\"id\":\"s-%d\"}\n", i)
	}
	if _, err := io.WriteString(to, text.String()); err != nil {
		a.t.Fatal(err)
	}
}

func next(t *testing.T, s *bufio.Scanner) string {
	t.Helper()
	if !s.Scan() {
		t.Fatalf("no line came: %v", s.Err())
	}
	return s.Text()
}

func TestAPISaysThatRedisIsAway(t *testing.T) {
	t.Parallel()
	server := testkit.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	a := newAPIRig(t, server.URL(), roomForAll)
	a.post(`{"id":"before","payload":{"x":1}}`, "")
	body, answers := a.stream()
	a.sendJobs(body, 0, 500)
	for range 500 {
		next(t, answers)
	}
	server.Kill()
	a.sendJobs(body, 500, 700)
	_ = body.Close()
	for i := 500; i < 1200; i++ {
		if l := a.told(next(t, answers)); l.Line != i+1 || l.Status != 503 || l.Retry != 2 || l.ID != fmt.Sprintf("s-%d", i) {
			t.Fatalf("%+v", l)
		}
	}
	for _, got := range []answer{a.post(`{"id":"b"}`, ""), a.bulk("{\"id\":\"b\"}\n"), a.ask("GET", a.jobs("/before"), "", nil),
		a.ask("GET", "/v1/status", "", nil), a.ask("GET", "/readyz", "", nil)} {
		if got.code != 503 || got.header.Get("Retry-After") == "" || a.told(got.body).Code != "unavailable" || strings.Contains(got.body, server.Addr()) {
			t.Errorf("%d %v %s", got.code, got.header, got.body)
		}
	}
	server.Restart()
	testkit.Eventually(t, 10*time.Second, "readiness", func() bool { return a.ask("GET", "/readyz", "", nil).code == 200 })
	for id, want := range map[string]int{"before": 409, "s-0": 200, "s-1199": 202, "b": 202} {
		if got := a.post(fmt.Sprintf(`{"id":%q}`, id), ""); got.code != want {
			t.Errorf("%s: %d %s, want %d", id, got.code, got.body, want)
		}
	}
}

// With a Redis that takes no writes, no job can be accepted: /readyz says no, and why. It says yes again when Redis takes writes.
func TestReadyzTellsOfARedisThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	server := testkit.Server(t)
	a := newAPIRig(t, server.URL(), roomForAll)
	for setting, want := range map[string]string{"maxmemory 1": "it is full", "min-replicas-to-write 1": "too few of its replicas"} {
		key, value, _ := strings.Cut(setting, " ")
		set := func(value string) {
			if err := server.Client().ConfigSet(t.Context(), key, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set(value)
		got := a.ask("GET", "/readyz", "", nil)
		if got.code != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(a.told(got.body).Detail, want) || strings.Contains(got.body, server.Addr()) {
			t.Errorf("%s: %d %s", setting, got.code, got.body)
		}
		if got := a.ask("GET", "/healthz", "", nil); got.code != 200 {
			t.Errorf("%s: it lives no more: %d", setting, got.code)
		}
		set("0")
		if got := a.ask("GET", "/readyz", "", nil); got.code != 200 {
			t.Errorf("after %s: %d %s", setting, got.code, got.body)
		}
	}
	if n := server.Client().DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("asking left %d keys", n)
	}
}

// If many callers send the same job at once, one of them is told that it was accepted, and the others that it is a duplicate.
func TestAPITakesAJobOnceFromACrowd(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", roomForAll)
	const callers, jobs = 40, 10
	var mu sync.Mutex
	codes := map[string]map[int]int{}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for j := range jobs {
				id := fmt.Sprintf("j%d", (c+j)%jobs)
				got := a.post(fmt.Sprintf(`{"id":%q,"payload":{"amount":1}}`, id), "")
				mu.Lock()
				if codes[id] == nil {
					codes[id] = map[int]int{}
				}
				codes[id][got.code]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for id, n := range codes {
		if n[202] != 1 || n[200] != callers-1 {
			t.Errorf("%s: %v", id, n)
		}
	}
	if got := a.ask("GET", "/v1/status", "", nil); len(codes) != jobs || !strings.Contains(got.body, `"queued":10,`) {
		t.Error(got.body)
	}
}

func TestAPITakesNothingInWhenItStops(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", roomForAll)
	body, answers := a.stream()
	a.sendJobs(body, 0, 500)
	for range 500 {
		next(t, answers)
	}
	a.api.Stopping()
	a.sendJobs(body, 500, 1)
	_ = body.Close()
	if l := a.told(next(t, answers)); l.Status != 503 || l.Code != "stopping" {
		t.Errorf("%+v", l)
	}
	for _, got := range []answer{a.post(`{"id":"b"}`, ""), a.bulk("{\"id\":\"b\"}\n"), a.ask("GET", "/readyz", "", nil)} {
		if got.code != 503 || got.header.Get("Retry-After") == "" || a.told(got.body).Code != "stopping" {
			t.Errorf("%d %v %s", got.code, got.header, got.body)
		}
	}
	for _, path := range []string{"/healthz", "/v1/status", a.jobs("/s-1")} {
		if got := a.ask("GET", path, "", nil); got.code != 200 {
			t.Errorf("%s: %d", path, got.code)
		}
	}
}

// Whatever is sent, neither the log nor an answer contains a part of a payload, or the token.
func TestAPIKeepsPayloadsToItself(t *testing.T) {
	t.Parallel()
	const canary = "4242424242424241" // no card number: it would be refused
	server := testkit.Server(t)
	a := newAPIRig(t, server.URL(), roomForThree)
	send := func(lines ...string) {
		for _, line := range lines {
			a.post(line, "")
			a.bulk(line + "\n" + line + "\n")
		}
		a.ask("GET", a.jobs("/a"), "", nil)
		a.ask("GET", "/v1/status", "", nil)
	}
	good := `{"id":"a","payload":{"card":"` + canary + `"}}`
	send(good,
		`{"id":"a","payload":{"card":"`+canary+`","more":1}}`,
		`{"id":"b","payload":{"card":"`+canary+`","card":"`+canary+`"}}`,
		`{"id":"c","payload":"`+canary+`"}`,
		`{"id":"d","payload":{"card":`+canary+`x}}`,
		`{"id":"e","payload":{"card":"`+canary,
		`{"id":"f","cost":9,"payload":{"card":"`+canary+`"}}`,
		`{"id":"g","cost":3,"payload":{"card":"`+canary+`"}}`)
	server.Kill()
	send(good)
	for what, text := range map[string]string{"the log": a.log.String(), "an answer": a.all.String()} {
		for _, secret := range []string{canary, apiToken} {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %s:\n%s", what, secret, text)
			}
		}
	}
}
