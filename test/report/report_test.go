package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// fake is a battery whose parts are shell commands that print what tests print.
func fake() []part {
	long := "echo long; false"
	return []part{
		{"good", "what passes", `printf '=== RUN   TestA\n    a_test.go:3: 120 calls, seed 77\n--- PASS: TestA (0.1s)\nok\n'`, long},
		{"bad", "what fails", `printf '=== RUN   TestB\n=== RUN   TestC\n    c_test.go:9: fine\n--- PASS: TestC (0.1s)\n=== NAME  TestB\n    b_test.go:4: 3 jobs are lost | and \x60one\x60\n--- FAIL: TestB (0.2s)\nFAIL\n'; exit 1`, long},
		{"crashes", "what ends without a word", `echo "a line of the build"; echo "b.go:1: undefined: x" >&2; exit 2`, long},
		{"empty", "what runs nothing", `echo "testing: warning: no tests to run"; echo ok`, long},
		{"hides", "what fails and ends well", `printf '=== RUN   TestD\n--- FAIL: TestD (0s)\n' | cat`, long},
		{"seeded", "what is drawn", `printf -- '--- PASS: TestE (0s)\n--- SKIP: TestF (0s)\n'; echo {seed}`, long},
	}
}

// tick is a clock that advances by a minute each time it is read.
func tick() func() time.Time {
	now := time.Date(2026, 11, 26, 20, 0, 0, 0, time.UTC)
	return func() time.Time { now = now.Add(time.Minute); return now }
}

func made(t *testing.T, ctx context.Context, parts []part) (code int, text, progress string) {
	t.Helper()
	dir := t.TempDir()
	var said bytes.Buffer
	o := options{version: "v1.2.3", form: short, seed: 4242, dir: dir, logs: filepath.Join(dir, "logs"), parts: parts, facts: []fact{{"machine", "2 | processors"}}, now: tick()}
	code = release(ctx, o, &said)
	page, err := os.ReadFile(filepath.Join(dir, "v1.2.3.md"))
	if err != nil {
		t.Fatal(err)
	}
	return code, string(page), said.String()
}

// TestAFailureIsInTheReportAndStopsNothing checks that each part runs, and that the report has failures as they were printed.
func TestAFailureIsInTheReportAndStopsNothing(t *testing.T) {
	t.Parallel()
	code, text, progress := made(t, t.Context(), fake())
	if code != 1 || !strings.Contains(progress, "== 6 of 6, seeded: ") {
		t.Errorf("exit code %d\n%s", code, progress)
	}
	for _, want := range []string{
		"# Release report of v1.2.3\n\nNOT all of it passed: bad FAILED, crashes FAILED, empty NOTHING RAN, hides FAILED. ",
		"| begun | 2026-11-26T20:01:00Z |\n| form | short |\n| machine | 2 \\| processors |\n",
		"| [good](#good) | passed | 1 passed, 0 failed, 0 skipped | 1m0s | 77 | `printf ",
		"| [bad](#bad) | FAILED | 1 passed, 1 failed, 0 skipped | 1m0s |  | `",
		"| [seeded](#seeded) | passed | 1 passed, 0 failed, 1 skipped | 1m0s | 4242 | `",
		"## good\n\nWhat passes.\n\npassed.\n\n### Figures\n\n```\nTestA: 120 calls, seed 77\n```\n",
		"## bad\n\nWhat fails.\n\nFAILED: exit status 1.\n",
		"### TestB failed\n\n```\n    b_test.go:4: 3 jobs are lost | and `one`\n```\n",
		"## crashes\n\nWhat ends without a word.\n\nFAILED: exit status 2.\n\n### The end of its output\n\n```\na line of the build\nb.go:1: undefined: x\n```\n",
		"## hides\n\nWhat fails and ends well.\n\nFAILED: it ended well, and its output has failures.\n\n### TestD failed\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if code, text, _ := made(t, t.Context(), fake()[:1]); code != 0 || !strings.Contains(text, "\nAll of it passed. ") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// TestAReportThatIsEndedSaysSo checks that the running part is marked as cut short, and the rest as not run.
func TestAReportThatIsEndedSaysSo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	began := filepath.Join(t.TempDir(), "began")
	go func() {
		testkit.Within(time.Minute, 5*time.Millisecond, func() bool { _, err := os.Stat(began); return err == nil })
		cancel()
	}()
	parts := []part{{"endless", "what does not end", "touch " + began + "; sleep 600 & wait", ""}, fake()[0]}
	code, text, _ := made(t, ctx, parts)
	if code != 1 || !strings.Contains(text, "| [endless](#endless) | CUT SHORT |") || !strings.Contains(text, "| [good](#good) | not run |  |  |") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// TestPartsAreChosen checks that parts are selected by name and keep their order. A wrong name is an error before anything runs.
func TestPartsAreChosen(t *testing.T) {
	t.Parallel()
	got, err := choose(fake(), "crashes, good")
	if err != nil || strings.Join(names(got), " ") != "good crashes" {
		t.Errorf("%v, %v", names(got), err)
	}
	if got, err := choose(fake(), " "); err != nil || len(got) != len(fake()) {
		t.Errorf("%v, %v", names(got), err)
	}
	for _, args := range [][]string{{"-parts", "good"}, {"-form", "brief"}, {"-nonsense"}} {
		var said bytes.Buffer
		if code := start(t.Context(), append(args, "-dir", t.TempDir()), &said); code != 2 || said.Len() == 0 {
			t.Errorf("%v: exit code %d, %s", args, code, said.String())
		}
	}
}

// TestTheBattery checks that each part has a command of each form, and a row on the page.
func TestTheBattery(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/verify.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range battery() {
		if p.short == "" || p.long == "" || p.about == "" || !strings.Contains(string(page), "\n| `"+p.name+"` | ") {
			t.Errorf("%s: %+v, or docs/verify.md has no row", p.name, p)
		}
	}
	for _, f := range machine(t.Context()) {
		if f.name == "" || f.value == "" {
			t.Errorf("%+v", f)
		}
	}
}

// TestWhatIsEndlessIsBounded checks that a failure with very many lines does not hide the others.
func TestWhatIsEndlessIsBounded(t *testing.T) {
	t.Parallel()
	d := digestOf([]byte("=== RUN   TestX\n" + strings.Repeat("    x_test.go:1: again\n", 10_000) + "```\npanic: boom\ngoroutine 1 [running]:\n"))
	if len(d.failures) != 1 || d.failures[0].test != "TestX" || len(d.failures[0].lines) != mostSaid+1 {
		t.Fatalf("%d failures", len(d.failures))
	}
	if text := fenced(d.failures[0].lines); !regexp.MustCompile("(?s)^````\n.*panic: boom\ngoroutine 1.*\n````\n$").MatchString(text) {
		t.Error(text[len(text)-200:])
	}
}
