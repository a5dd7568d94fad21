package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/doctor"
	"spillway/internal/testkit"
)

// examine runs dispatcher doctor with a configuration of one gateway.
func examine(t *testing.T, terminal bool, redis, request string, args ...string) ran {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dispatcher.yaml")
	text := fmt.Sprintf("redis: %s\ngateways:\n  pay:\n    request: {url: %q, headers: {Authorization: \"Bearer ${DOCTOR_KEY}\"}}\n    answers: stripe\n    leak: {limits: [100/s]}\n", redis, request)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, OutTerminal: terminal}
	code := cli.Main(name, newCommand, append([]string{"doctor", "-c", file}, args...), s)
	return ran{out.String(), errs.String(), code}
}

// The tests of doctor are not parallel: the secret of the gateway is in the environment.
func TestDoctor(t *testing.T) {
	t.Setenv("DOCTOR_KEY", "hunter2")
	gateway := httptest.NewServer(nil)
	t.Cleanup(gateway.Close)
	well := testkit.Server(t, "--appendonly", "yes", "--maxmemory", "200mb")
	bad := testkit.Server(t, "--maxmemory-policy", "allkeys-lru")
	gone := fmt.Sprintf("redis://127.0.0.1:%d/0", testkit.FreePort(t))
	for name, c := range map[string]struct {
		redis, url string
		code       int
		out, err   string
	}{
		"sound":    {well.URL(), gateway.URL, 0, "ok\treach\tpay\t", ""},
		"warnings": {well.URL(), gateway.URL + "/?token=hunter2", 0, "warn\turl\tpay\t", ""},
		"dead":     {well.URL(), fmt.Sprintf("http://127.0.0.1:%d", testkit.FreePort(t)), 1, "fail\treach\tpay\t", "dispatcher: 1 check failed\nhint: "},
		"evicting": {bad.URL(), gateway.URL, 1, "fail\teviction\t\tRedis may delete jobs", "dispatcher: 2 checks failed\nhint: "},
		"away":     {gone, gateway.URL, 5, "ok\treach\tpay\t", "dispatcher: Redis is away"},
	} {
		got := examine(t, false, c.redis, c.url)
		if got.code != c.code || !strings.Contains("\n"+got.out, "\n"+c.out) || !strings.HasPrefix(got.err, c.err) || (c.err == "") != (got.err == "") {
			t.Errorf("%s: exit code %d, want %d, and %q:\n%s%s", name, got.code, c.code, c.out, got.out, got.err)
		}
		if strings.Contains(got.out+got.err, "hunter2") {
			t.Errorf("%s: a secret is shown:\n%s", name, got.out)
		}
	}
	got := examine(t, true, bad.URL(), gateway.URL)
	if !strings.Contains(got.out, "\nfail  eviction                  Redis may delete jobs") || !strings.Contains(got.out, "\n                                → set maxmemory-policy") ||
		!regexp.MustCompile(`\n2 failures, (1 warning|[23] warnings), `).MatchString(got.out) { // a busy machine adds warnings of latency and clock
		t.Errorf("on a terminal:\n%s", got.out)
	}
}

func TestDoctorAsJSON(t *testing.T) {
	t.Setenv("DOCTOR_KEY", "") // empty is as good as unset
	os.Unsetenv("DOCTOR_KEY")
	gateway := httptest.NewServer(nil)
	t.Cleanup(gateway.Close)
	got := examine(t, true, testkit.Server(t, "--appendonly", "yes").URL(), gateway.URL, "-o", "json")
	var d doctor.Report
	if err := json.Unmarshal([]byte(got.out), &d); err != nil || got.code != 1 {
		t.Fatalf("exit code %d, %v:\n%s", got.code, err, got.out)
	}
	warned := slices.DeleteFunc(slices.Clone(d.Checks), func(c doctor.Check) bool { // a busy machine adds warnings of latency and clock
		return c.Level != doctor.Warn || c.Name == "latency" || c.Name == "clock"
	})
	if d.OK || d.Failed != 1 || len(warned) != 1 || len(d.Checks) < 10 || !strings.Contains(d.Checks[0].Message, "${DOCTOR_KEY} is not set") || d.Checks[0].Level != "fail" {
		t.Errorf("%+v", d)
	}
	if got := examine(t, false, "redis://127.0.0.1:1/0", gateway.URL, "-g", "nobody"); got.code != 4 {
		t.Errorf("exit code %d:\n%s", got.code, got.err)
	}
	if got := examine(t, false, "nonsense", gateway.URL); got.code != 2 {
		t.Errorf("exit code %d:\n%s", got.code, got.err)
	}
}

// A check quotes what people and gateways have said. In the report it controls no terminal, and reverses no text.
func TestAReportControlsNoTerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &program{Streams: cli.Streams{Out: &out}}
	if err := p.writeReport(doctor.Report{Checks: []doctor.Check{{Level: doctor.Warn, Message: "a\x1b[2Jb\u202ec\u009b1m\nd", Hint: "\u2066e"}}}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\u202e\u009b\u2066") || strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "b c") {
		t.Errorf("%q", out.String())
	}
}
