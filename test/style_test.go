package test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNoFileIsOverlong(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		limit := 400
		if f.test {
			limit = 700
		}
		if f.lines > limit {
			t.Errorf("%s has %d lines, over %d: does it hold one role?", f.path, f.lines, limit)
		}
	}
}

var nap = regexp.MustCompile(`\btime\.Sleep\(`)

// A sleep makes a test slow on a fast machine, and wrong on a slow one.
func TestTestsDoNotSleep(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if f.test && f.path != "test/style_test.go" && nap.MatchString(f.text) {
			t.Errorf("%s sleeps: wait for a condition (testkit.Eventually), or control the clock", f.path)
		}
	}
}

var (
	skip = regexp.MustCompile(`\b[a-z]+\.Skip\w*\(.*`)
	told = regexp.MustCompile(`\.Skipf?\(".+: (make [a-z-]+) runs it"`)
	// hidden is a test that ends early because of a flag or a variable of the environment, and counts as passed.
	hidden = regexp.MustCompile(`if [^\n{]*(?:\*[a-z]\w*|length|testing\.Short\(\)|os\.Getenv\([^\n{]*) == (?:0|""|false|nil)[^\n{]* \{\n(?:\s*\w+\.Logf?\([^\n]*\n)?\s*return\n`)
)

// A test that does not run says so, with the reason and the target that runs it, which CI calls.
func TestTestsThatDoNotRunSkipWithAReason(t *testing.T) {
	t.Parallel()
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range sources(t) {
		if !f.test || f.path == "test/style_test.go" {
			continue
		}
		for _, call := range skip.FindAllString(f.text, -1) {
			switch says := told.FindStringSubmatch(call); {
			case says == nil:
				t.Errorf(`%s: %s does not say "why: make target runs it"`, f.path, call)
			case !regexp.MustCompile(`(?m)^\s*step ` + says[1] + `\b`).Match(ci):
				t.Errorf("%s: %s: .ci/run has no %s", f.path, call, says[1])
			}
		}
		for _, found := range hidden.FindAllString(f.text, -1) {
			if f.path != "test/browser/rig_test.go" { // no test ends there: pictures are taken where they are asked for
				t.Errorf("%s ends early and counts as passed: t.Skip with the reason and the make target:\n%s", f.path, found)
			}
		}
	}
}

var skipsRaced = regexp.MustCompile(`testkit\.OneGoroutine\(|if testkit\.Race \{`)

// A test that is skipped under the race detector runs without it in make test: its package is one of UNRACED in the Makefile.
func TestTestsSkippedUnderTheRaceDetectorRunWithoutIt(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^UNRACED := (.+)$`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the Makefile has no UNRACED")
	}
	unraced := strings.Fields(string(list[1]))
	for _, f := range sources(t) {
		if f.test && f.path != "test/style_test.go" && skipsRaced.MatchString(f.text) && !slices.Contains(unraced, "./"+path.Dir(f.path)) {
			t.Errorf("%s has a test that is skipped under the race detector, and make test runs its package with nothing else: add it to UNRACED in the Makefile, or let the test run", f.path)
		}
	}
}

// docs/architecture.md has a table with one row a folder.
func TestArchitectureListsTheFolders(t *testing.T) {
	t.Parallel()
	listed := firstColumn(t, "../docs/architecture.md", regexp.MustCompile("(?m)^\\| `((?:internal|cmd)/[a-z]+)/` \\|"))
	onDisk := folders(t)
	for _, folder := range onDisk {
		if !slices.Contains(listed, folder) {
			t.Errorf("docs/architecture.md has no row \"| `%s/` | … |\": say in a line what the folder is for", folder)
		}
	}
	for _, folder := range listed {
		if !slices.Contains(onDisk, folder) {
			t.Errorf("docs/architecture.md lists %s/, which is not there", folder)
		}
	}
}

// docs/dependencies.md says of each module that we import why.
func TestEveryDependencyHasItsReason(t *testing.T) {
	t.Parallel()
	listed := firstColumn(t, "../docs/dependencies.md", regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|\n]{20,}\\|"))
	required := requirements(t)
	for _, m := range used(t, required) {
		if !slices.Contains(listed, m) {
			t.Errorf("docs/dependencies.md has no row \"| `%s` | why |\" of some words", m)
		}
	}
	for _, m := range listed {
		if !slices.Contains(required, m) {
			t.Errorf("docs/dependencies.md lists %s, which go.mod does not require", m)
		}
	}
}

func firstColumn(t *testing.T, file string, row *regexp.Regexp) []string {
	t.Helper()
	var out []string
	for _, m := range row.FindAllStringSubmatch(text(t, file), -1) {
		out = append(out, m[1])
	}
	if len(out) == 0 {
		t.Fatalf("%s has no table of the expected form", file)
	}
	return out
}

var requirement = regexp.MustCompile(`(?m)^(?:require )?\s*([\w.-]+\.[\w./-]+) v\S+`)

func requirements(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range requirement.FindAllStringSubmatch(text(t, "../go.mod"), -1) {
		out = append(out, m[1])
	}
	return out
}

// used returns the required modules that one of our files imports; go.mod's own "// indirect" is only right after a tidy. What bench, a module
// of its own, measures against is none of them, even where a library of ours brings it too.
func used(t *testing.T, required []string) []string {
	t.Helper()
	var out []string
	for _, f := range sources(t) {
		if f.folder == "bench" {
			continue
		}
		for _, i := range f.imports {
			if m := moduleOf(i, required); m != "" && !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return out
}

// moduleOf returns the module that a package is in: of those whose path it begins with, the longest.
func moduleOf(imported string, required []string) (found string) {
	for _, m := range required {
		if (imported == m || strings.HasPrefix(imported, m+"/")) && len(m) > len(found) {
			found = m
		}
	}
	return found
}

// A time that people read says its zone, so one place formats them (internal/job/moment.go). The files named here write times for programs.
func TestTimesForPeopleSayTheirZone(t *testing.T) {
	t.Parallel()
	forPrograms := []string{"internal/job/moment.go", "internal/cli/table.go", "internal/console/page.go", "internal/desk/filter.go", "internal/desk/job.go", "internal/demo/batch.go",
		"internal/gateway/sign.go", "internal/redisdb/keys.go", "internal/redisdb/script.go"}
	format := regexp.MustCompile(`\.Format\((time\.|"2006|"15)`)
	for _, f := range sources(t) {
		if !f.test && f.folder != "bench" && !slices.Contains(forPrograms, f.path) && format.MatchString(f.text) {
			t.Errorf("%s formats a time of its own: use job.Moment or job.Clock", f.path)
		}
	}
}
