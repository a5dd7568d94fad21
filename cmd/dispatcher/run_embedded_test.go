package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/cli"
)

// The embedded Redis can't run the script of lanes: a file that has both is refused at the start, in words.
func TestLanesNeedARedisServer(t *testing.T) {
	t.Parallel()
	const gateway = "redis: embedded\ngateways:\n  g:\n    request: {url: \"http://127.0.0.1:9\", headers: {X: \"1\"}}\n    leak: {limits: [9/s]}\n"
	for _, more := range []string{"    lanes: {key: lane}\n", "    routes: {refund: {request: {url: \"http://127.0.0.1:9/refund\"}, limits: [5/s]}}\n"} {
		file := filepath.Join(t.TempDir(), "dispatcher.yaml")
		if err := os.WriteFile(file, []byte(gateway+more), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		code := cli.Main(name, newCommand, []string{"run", "-c", file, "--listen", ""}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if code != 2 || !strings.Contains(errs.String(), "gateway g has lanes or routes with limits, which the embedded Redis can't run") {
			t.Errorf("%s: exit code %d\n%s", more, code, errs.String())
		}
	}
}
