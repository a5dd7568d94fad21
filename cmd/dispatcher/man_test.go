package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
)

// Each command that --help shows has a man page, and no other command has one. A page has the text of --help, and man can read it.
func TestEachCommandHasAManPage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "share", "man1")
	var out, errs strings.Builder
	if code := cli.Main(name, newCommand, []string{"man", dir}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	pages := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		pages++
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil || !strings.Contains(string(page), cmd.Short) {
			t.Errorf("%s: %v\n%.300s", cmd.CommandPath(), err, page)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newCommand(cli.Streams{}))
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != pages || !strings.Contains(out.String(), "pages in "+dir) {
		t.Errorf("%d files for %d commands, %v; %s", len(files), pages, err, out.String())
	}
	if _, err := exec.LookPath("man"); err == nil {
		page := exec.Command("man", "-l", "--warnings", filepath.Join(dir, "dispatcher-dlq-list.1"))
		page.Env = append(os.Environ(), "MANPAGER=cat", "MANWIDTH=100")
		if shown, err := page.CombinedOutput(); err != nil || !strings.Contains(string(shown), "--reason") {
			t.Errorf("man: %v\n%s", err, shown)
		}
	}
	if code := cli.Main(name, newCommand, []string{"man", filepath.Join(dir, "dispatcher.1")}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 2 || !strings.Contains(errs.String(), "hint: ") {
		t.Errorf("pages in a file: exit code %d, %s", code, errs.String())
	}
}
