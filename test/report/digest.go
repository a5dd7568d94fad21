package main

import (
	"bufio"
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// digest is the part of the output of "go test -v" that a report has.
type digest struct {
	passed, failed, skipped int
	figures                 []string  // what tests have logged that passed
	failures                []failure // word for word
	seeds                   []string
	end                     []string // the last lines, for a failure that is of no test
}

// failure is the output of a test that failed.
type failure struct {
	test  string
	lines []string
}

const (
	mostFigures = 60
	mostEnd     = 80
	mostSaid    = 400 // lines of a failure: an endless one would hide the others
)

var (
	turns  = regexp.MustCompile(`^=== (?:RUN|NAME|CONT|PAUSE)\s+(\S+)`)
	ends   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
	logged = regexp.MustCompile(`^\s+\w+_test\.go:\d+: (.*)`)
	seeds  = regexp.MustCompile(`(?i)\bseed[ =:]+(\d+)`)
	sums   = regexp.MustCompile(`^(?:FAIL|PASS|ok|exit status \d+|(?:FAIL|ok)\s+\S+\s+[\d.]+s)$`) // of a package
	broken = regexp.MustCompile(`^(?:panic:|FAIL\s+\S+ \[|fatal error:|WARNING: DATA RACE)`)
)

// digestOf reads the output of tests. Lines belong to the test that was named last.
func digestOf(output []byte) (d digest) {
	said, order, now := map[string][]string{}, []string{}, ""
	verdicts := map[string]string{}
	scan := bufio.NewScanner(bytes.NewReader(output))
	scan.Buffer(nil, len(output)+1)
	for scan.Scan() {
		line := scan.Text()
		if d.end = append(d.end, line); len(d.end) > mostEnd {
			d.end = d.end[1:]
		}
		for _, m := range seeds.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(d.seeds, m[1]) && len(d.seeds) < mostFigures {
				d.seeds = append(d.seeds, m[1])
			}
		}
		if m := turns.FindStringSubmatch(line); m != nil {
			now = m[1]
			continue
		}
		if m := ends.FindStringSubmatch(line); m != nil {
			now, verdicts[m[2]] = m[2], m[1]
			order = append(order, m[2])
			d.count(m[1])
			continue
		}
		if broken.MatchString(line) && verdicts[now] != "FAIL" {
			verdicts[now] = "FAIL"
			order = append(order, now)
		}
		if !sums.MatchString(line) {
			said[now] = append(said[now], line)
		}
	}
	for _, test := range order {
		switch verdicts[test] {
		case "FAIL":
			if !slices.ContainsFunc(d.failures, func(f failure) bool { return f.test == test }) {
				d.failures = append(d.failures, failure{test, bounded(said[test])})
			}
		case "PASS":
			d.figure(test, said[test])
		}
	}
	return d
}

func (d *digest) count(verdict string) {
	switch verdict {
	case "PASS":
		d.passed++
	case "FAIL":
		d.failed++
	default:
		d.skipped++
	}
}

// figure keeps what a test has logged.
func (d *digest) figure(test string, lines []string) {
	for _, line := range lines {
		if m := logged.FindStringSubmatch(line); m != nil && len(d.figures) < mostFigures {
			d.figures = append(d.figures, test+": "+m[1])
		}
	}
}

// bounded removes the middle of a long output.
func bounded(lines []string) []string {
	if len(lines) <= mostSaid {
		return lines
	}
	half := mostSaid / 2
	return slices.Concat(lines[:half], []string{"[… the middle is left out; the log has it]"}, lines[len(lines)-half:])
}

// fenced returns lines as a block of Markdown.
func fenced(lines []string) string {
	if len(lines) == 0 {
		lines = []string{"(it said nothing)"}
	}
	fence := "```"
	for strings.Contains(strings.Join(lines, "\n"), fence) {
		fence += "`"
	}
	return fence + "\n" + strings.Join(lines, "\n") + "\n" + fence + "\n"
}
