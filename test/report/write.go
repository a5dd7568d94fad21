package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is one report under way.
type report struct {
	options
	began   time.Time
	results []*result
}

// good reports whether each part has passed.
func (r *report) good() bool {
	return !slices.ContainsFunc(r.results, func(one *result) bool { return one.verdict != passed })
}

func (r *report) verdict() string {
	if r.good() {
		return "all of it passed"
	}
	var bad []string
	for _, one := range r.results {
		if one.verdict != passed {
			bad = append(bad, one.part.name+" "+one.verdict)
		}
	}
	return "NOT all of it passed: " + strings.Join(bad, ", ")
}

// write writes the report as it is now, in one step.
func (r *report) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte(r.text()), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Release report of %s\n\n%s. Written by `make release-report`; nothing in it was edited.\n\n| | |\n|---|---|\n", r.version, capital(r.verdict()))
	began, _ := r.began.UTC().Truncate(time.Second).MarshalText() // no clock shows the year 10000
	facts := slices.Concat([]fact{{"begun", string(began)}, {"form", r.form}}, r.facts)
	for _, f := range facts {
		fmt.Fprintf(&b, "| %s | %s |\n", f.name, cell(f.value))
	}
	b.WriteString("\n| part | verdict | tests | took | seeds | command |\n|---|---|---|---|---|---|\n")
	for _, one := range r.results {
		tests := fmt.Sprintf("%d passed, %d failed, %d skipped", one.output.passed, one.output.failed, one.output.skipped)
		if one.verdict == notRun {
			tests = ""
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s | `%s` |\n", one.part.name, one.part.name, one.verdict, tests, took(one.took), one.seeds(r.options), cell(one.command))
	}
	for _, one := range r.results {
		b.WriteString(one.text())
	}
	return b.String()
}

// seeds returns the part's own seed, and those that it printed.
func (r *result) seeds(o options) string {
	all := r.output.seeds
	if own := seedOf(o); r.part.seeded(o) && !slices.Contains(all, own) {
		all = slices.Concat([]string{own}, all)
	}
	return strings.Join(all, ", ")
}

func seedOf(o options) string { return strconv.FormatUint(o.seed, 10) }

// text returns the section of a part.
func (r *result) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n%s\n", r.part.name, capital(r.part.about), strings.TrimSuffix(r.verdict+": "+r.why, ": ")+".")
	if len(r.output.figures) > 0 {
		b.WriteString("\n### Figures\n\n" + fenced(r.output.figures))
	}
	if r.verdict == passed || r.verdict == notRun {
		return b.String()
	}
	for _, f := range r.output.failures {
		fmt.Fprintf(&b, "\n### %s failed\n\n%s", cmp.Or(f.test, "Something outside of a test"), fenced(f.lines))
	}
	if len(r.output.failures) == 0 {
		b.WriteString("\n### The end of its output\n\n" + fenced(r.output.end))
	}
	return b.String()
}

func took(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(time.Second).String()
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// cell returns a text for a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
}
