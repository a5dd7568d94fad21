package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/cli"
)

func TestEnqueueHasItsManPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out, errs strings.Builder
	code := cli.Main(name, newCommand, []string{"man", dir, "-o", "json"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if want := `{"directory":"` + filepath.ToSlash(dir) + `","pages":["enqueue-man.1","enqueue.1"]}` + "\n"; code != 0 || out.String() != want || errs.Len() > 0 {
		t.Fatalf("exit code %d, %s\n%s", code, out.String(), errs.String())
	}
	page, err := os.ReadFile(filepath.Join(dir, "enqueue.1"))
	if err != nil || !strings.Contains(string(page), "expect-sum") {
		t.Errorf("%v\n%.500s", err, page)
	}
}
