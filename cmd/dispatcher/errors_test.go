package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/testkit"
)

// An error of Redis says what to do. An error of the local disk is not reported as one of Redis.
func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/c.yaml"
	text := "redis: " + testkit.Redis(t) + "\ngateways: {" + testkit.Gateway(t) + ": {request: {url: \"http://127.0.0.1:1/\"}, leak: {limits: [1/s]}}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, c := range []struct {
		args []string
		full bool
		code int
		says []string
	}{
		{[]string{"status", "--redis", "localhost:6379"}, false, cli.ExitUsage, []string{"hint: "}},
		{[]string{"status", "--redis", strings.Replace(testkit.Redis(t), "redis://", "redis-cluster://", 1)}, false, cli.ExitUsage, []string{"is not a cluster", "hint: write redis://"}},
		{[]string{"status", "--redis", "redis://127.0.0.1:1/0"}, false, cli.ExitUnavailable, []string{"is away", "hint: "}},
		{[]string{"status", "-o", "json"}, true, cli.ExitFailed, []string{"no space left on device"}},
	} {
		var errs bytes.Buffer
		s := cli.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &errs}
		if c.full {
			s.Out = full
		}
		code := cli.Main(name, newCommand, append(c.args, "-c", file), s)
		for _, says := range c.says {
			if code != c.code || !strings.Contains(errs.String(), says) || strings.Contains(errs.String(), "Redis can't do this now") {
				t.Errorf("%v: exit code %d, want %d, and %q in:\n%s", c.args, code, c.code, says, &errs)
			}
		}
	}
}
