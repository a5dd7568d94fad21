package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// playing is a "dispatcher provider" that runs in this process.
type playing struct {
	t     *testing.T
	url   string
	stop  context.CancelFunc
	ended chan error
	out   bytes.Buffer // to be read when it has ended
}

var answersOn = regexp.MustCompile(`http://[^;]+`)

// play starts the command on a free port and waits until it says where it answers.
func play(t *testing.T, args ...string) *playing {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	p := &playing{t: t, stop: stop, ended: make(chan error, 1)}
	said, says := io.Pipe()
	cmd := newCommand(cli.Streams{In: strings.NewReader(""), Out: &p.out, Err: says})
	cmd.SetArgs(append([]string{"provider", "--listen", "127.0.0.1:0"}, args...))
	go func() { p.ended <- cmd.ExecuteContext(ctx); _ = says.Close() }()
	line := make([]byte, 500)
	n, err := said.Read(line)
	if err != nil {
		t.Fatalf("it said nothing: %v", <-p.ended)
	}
	p.url = answersOn.FindString(string(line[:n]))
	go func() { _, _ = io.Copy(io.Discard, said) }()
	t.Cleanup(stop)
	return p
}

// charge makes one call and returns the status.
func (p *playing) charge(key string) int {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/v1/charges", strings.NewReader("{}"))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	return p.do(r)
}

func (p *playing) do(r *http.Request) int {
	p.t.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode
}

// end stops it and returns what it wrote.
func (p *playing) end() string {
	p.t.Helper()
	p.stop()
	select {
	case err := <-p.ended:
		if err != nil {
			p.t.Errorf("stopped, it ended with %v", err)
		}
	case <-time.After(time.Minute):
		p.t.Fatal("it does not stop")
	}
	return p.out.String()
}

func TestProviderKeepsItsLimitAndWritesItsStats(t *testing.T) {
	t.Parallel()
	p := play(t, "--limit", "3/h", "--limit", "100/d", "--service", "0s", "-o", "json")
	for n, want := range []int{200, 200, 200, 429} {
		if got := p.charge(fmt.Sprintf("job-%d", n)); got != want {
			t.Errorf("call %d: %d, want %d", n+1, got, want)
		}
	}
	var s provider.Stats
	if err := json.Unmarshal([]byte(p.end()), &s); err != nil {
		t.Fatal(err)
	}
	if s.Calls != 4 || s.Charged != 3 || s.TooMany != 1 || len(s.Limits) != 2 || s.Limits[0] != "3/h" || s.MaxInWindow[0] != 4 {
		t.Errorf("stats %+v", s)
	}
}

func TestProviderStatsAsText(t *testing.T) {
	t.Parallel()
	p := play(t, "--service", "0s", "--decline-every", "2", "--limit", "100/h")
	p.charge("job-1")
	p.charge("job-2")
	out := p.end()
	for _, want := range []string{"calls\t2\n", "charged\t1\n", "declined (402)\t1\n", "too many (429)\t0\n", "worst window of 100/h\t2\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

func TestProviderMakesTheTroubleItIsToldTo(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]int{"--decline 100%": 402, "--fail 1.0": 500, "--down": 503, "--limit none": 200,
		"--fate id=job-9,status=404 --fate share=100%,status=403": 403, "--incident status=429,retry_after=1s": 429} {
		p := play(t, append(strings.Fields(flags), "--service", "0s")...)
		if got := p.charge("job-1"); got != want {
			t.Errorf("%s: answered %d, want %d", flags, got, want)
		}
		p.end()
	}
}

func TestProviderWithoutKeysChargesTwice(t *testing.T) {
	t.Parallel()
	p := play(t, "--no-keys", "--service", "0s", "-o", "json")
	p.charge("job-1")
	p.charge("job-1")
	if out := p.end(); !strings.Contains(out, `"charged":2,"charged_twice":1`) {
		t.Errorf("stats %s", out)
	}
}

func TestProviderRepeatsASaved500(t *testing.T) {
	t.Parallel()
	p := play(t, "--save-500", "--charge-500", "--no-marks", "--fail", "100%", "--service", "0s")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, p.url+"/settings", strings.NewReader(`{"fail":0}`))
	if err != nil {
		t.Fatal(err)
	}
	first, changed, again := p.charge("job-1"), p.do(r), p.charge("job-1")
	if first != 500 || changed != 200 || again != 500 {
		t.Errorf("answered %d, then %d to the change, then %d", first, changed, again)
	}
	out := p.end()
	for _, want := range []string{"failed (500)\t2\n", "charged\t1\n", "answered again\t1\n", "to jobs never called before\t1\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

func TestProviderChangesWhileItRuns(t *testing.T) {
	t.Parallel()
	p := play(t, "--down")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.url+"/settings", strings.NewReader(`{"down":false,"service":"0s"}`))
	if err != nil {
		t.Fatal(err)
	}
	before, changed, after := p.charge("job-1"), p.do(r), p.charge("job-1")
	if before != 503 || changed != 200 || after != 200 {
		t.Errorf("answered %d, then %d to the change, then %d", before, changed, after)
	}
	p.end()
}

func TestProviderAskedWrongly(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ args, says string }{
		{"--limit 100/x", `"100/x" is not a limit`},
		{"--limit 0/s", `"0/s" is not a limit`},
		{"--decline 110%", `"110%" is not a share`},
		{"--hang many", `"many" is not a share`},
		{"--service fast", "invalid"},
		{"--fate status=500", "write id=inv-00003 or share=5%"},
		{"--fate id=job-1,status=500,when=always", "write id, share, status"},
		{"--incident id=job-1,status=500", "jobs have fates"},
		{"--service -1s", "can't be negative"},
		{"--decline-every -1", "can't be negative"},
		{"--listen nowhere", "hint: write host:port"},
		{"--listen " + taken.Addr().String(), "is taken"},
		{"stripe", `"stripe" is too much`},
	} {
		var out, errOut bytes.Buffer
		s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut}
		code := cli.Main(name, newCommand, append([]string{"provider"}, strings.Fields(c.args)...), s)
		if code != cli.ExitUsage || !strings.Contains(errOut.String(), c.says) || out.Len() > 0 {
			t.Errorf("provider %s: exit %d, said %q, want %d and %q", c.args, code, errOut.String(), cli.ExitUsage, c.says)
		}
	}
}

func TestDemoAskedWrongly(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut}
	code := cli.Main(name, newCommand, []string{"demo", "--redis", "redis://127.0.0.1:6379/0"}, s)
	if code != cli.ExitUsage || !strings.Contains(errOut.String(), "brings its own Redis") || out.Len() > 0 {
		t.Errorf("exit %d, said %q", code, errOut.String())
	}
}
