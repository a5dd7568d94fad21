// Command report runs the battery of a release, part by part, and writes docs/reports/VERSION.md: what ran where, with which seeds, the results, and
// the full output of every failure. A part that fails stops no other one. The exit code is 1 if any failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what a report is made with.
type options struct {
	version string
	form    string // short or long
	seed    uint64
	dir     string // where the report goes
	logs    string // where the output of each part goes, whole
	parts   []part
	facts   []fact // of the machine
	now     func() time.Time
}

// Forms of a part.
const (
	short = "short"
	long  = "long"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := start(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// start reads the flags and makes the report.
func start(ctx context.Context, args []string, progress io.Writer) int {
	o := options{now: time.Now}
	f := flag.NewFlagSet("report", flag.ContinueOnError)
	f.SetOutput(progress)
	f.StringVar(&o.version, "version", "", "name of the report (default: the git tag and commit)")
	f.StringVar(&o.form, "form", short, "short (minutes a part) or long (hours)")
	f.Uint64Var(&o.seed, "seed", 0, "seed of what draws its faults; 0: another one each time")
	f.StringVar(&o.dir, "dir", "docs/reports", "directory of the report")
	f.StringVar(&o.logs, "logs", "dist/report", "directory of the output of each part")
	only := f.String("parts", "", "only these, with commas between: "+strings.Join(names(battery()), ", ")+" (default: all)")
	if f.Parse(args) != nil {
		return 2
	}
	if o.form != short && o.form != long {
		fmt.Fprintf(progress, "report: %q is no form: write REPORT=short or REPORT=long\n", o.form)
		return 2
	}
	chosen, err := choose(battery(), *only)
	if err != nil {
		fmt.Fprintf(progress, "report: %v\n", err)
		return 2
	}
	o.parts, o.facts = chosen, machine(ctx)
	if o.version == "" {
		o.version = ask(ctx, "git", "describe", "--tags", "--always", "--dirty")
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000_000) + 1
	}
	return release(ctx, o, progress)
}

// choose returns the parts of these names, or all, in their own order.
func choose(all []part, only string) (chosen []part, err error) {
	if strings.TrimSpace(only) == "" {
		return all, nil
	}
	wanted := strings.FieldsFunc(only, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range wanted {
		if !slices.Contains(names(all), name) {
			return nil, fmt.Errorf("there is no part %q; there are %s", name, strings.Join(names(all), ", "))
		}
	}
	for _, p := range all {
		if slices.Contains(wanted, p.name) {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

func names(parts []part) (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

// release runs the parts, and writes the report after each of them, so that a run that is killed leaves its results so far. It returns the exit code.
func release(ctx context.Context, o options, progress io.Writer) int {
	r := &report{options: o, began: o.now()}
	for _, p := range o.parts {
		r.results = append(r.results, &result{part: p, command: p.command(o), verdict: notRun})
	}
	path := filepath.Join(o.dir, o.version+".md")
	if err := r.write(path); err != nil {
		fmt.Fprintf(progress, "report: %v\n", err)
		return 1
	}
	for i, one := range r.results {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(progress, "== %d of %d, %s: %s\n", i+1, len(r.results), one.part.name, one.command)
		one.run(ctx, o)
		fmt.Fprintf(progress, "   %s after %s\n", one.verdict, one.took.Round(time.Second))
		if err := r.write(path); err != nil {
			fmt.Fprintf(progress, "report: %v\n", err)
			return 1
		}
	}
	fmt.Fprintf(progress, "%s is in %s\n", r.verdict(), path)
	if r.good() {
		return 0
	}
	return 1
}
