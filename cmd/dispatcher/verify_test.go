package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/verify"
)

// judging runs "dispatcher verify" with files of its own.
type judging struct {
	t   *testing.T
	dir string
}

func (j judging) file(name, text string) string {
	j.t.Helper()
	path := filepath.Join(j.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
	return path
}

func (j judging) run(terminal bool, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = cli.Main(name, newCommand, append([]string{"verify"}, args...), cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e, OutTerminal: terminal})
	return code, strings.ReplaceAll(o.String(), j.dir+"/", ""), strings.ReplaceAll(e.String(), j.dir+"/", "")
}

const judgedBooks = `{"id":"a","gateway":"g","state":"done","amount":490,"currency":"EUR","status":200,"called_at":"2026-11-26T20:00:00Z"}
{"id":"b","gateway":"g","state":"parked","reason":"refused","amount":7,"currency":"EUR","status":402,"called_at":"2026-11-26T20:00:00Z"}
`

const judgedCalls = `{"at":1795723200000000,"key":"a","status":200,"charged":true,"amount":490,"currency":"EUR"}
{"at":1795723200500000,"key":"b","status":402,"charged":false}
`

// Verify reports what it finds, and its exit code says whether that is a violation.
func TestVerifySaysWhatItFinds(t *testing.T) {
	t.Parallel()
	j := judging{t, t.TempDir()}
	log, books := j.file("calls", judgedCalls), j.file("books", judgedBooks)
	twice := j.file("twice", judgedCalls+strings.Replace(judgedCalls, "200000000", "200400000", 1))
	bad := j.file("bad", judgedCalls+"nonsense\n")
	for _, c := range []struct {
		name string
		args []string
		code int
		out  []string
		err  []string
	}{
		{"nothing", []string{"--provider-log", log, "--books", books, "--limit", "2/s"}, 0,
			[]string{"g\t2\t1\t2\t0\t0\t1\t0\n", "2/s\t2\t2\t2026-11-26T20:00:00Z\t\t0\n", "g\tdone\tEUR\t1\t490\t490\n"}, nil},
		{"no limit", []string{"--provider-log", log, "--books", books}, 0, nil, []string{"no limit was given"}},
		{"a window", []string{"--provider-log", "g=" + log, "--books", books, "--limit", "1/s"}, 1,
			[]string{"window\tg\t\t2 calls within 1s from 2026-11-26T20:00:00Z, 1 over 1/s\tcalls:1, calls:2\n"}, []string{"do not fit: 1 violation"}},
		{"twice", []string{"--provider-log", twice, "--books", books, "--limit", "9/s"}, 1,
			[]string{"charged_twice\tg\ta\tthe provider charged it 2 times\ttwice:1, twice:3\n", "490 too much"}, []string{"2 violations", "docs/verify.md"}},
		{"bounded", []string{"--provider-log", j.file("none", ""), "--books", books, "--most", "0", "--limit", "9/s"}, 1, []string{"lost: and 1 more like it\n"}, nil},
		{"a bad line", []string{"--provider-log", bad, "--books", books, "--limit", "9/s"}, 3, []string{"unreadable\t\t\tit is no line of JSON", "bad:3"}, []string{"1 line could not be used"}},
		{"no log", []string{"--books", books}, 2, nil, []string{"there is no log of the provider"}},
		{"no books", []string{"--provider-log", log}, 2, nil, []string{"there are no books"}},
		{"no file", []string{"--provider-log", log, "--books", books + "x"}, 2, nil, []string{"can't read booksx"}},
		{"a limit that is none", []string{"--provider-log", log, "--books", books, "--limit", "9/x"}, 2, nil, []string{`"9/x" is not a limit`}},
		{"a slack that is none", []string{"--provider-log", log, "--books", books, "--order-slack", "often"}, 2, nil, []string{"write a time like 10s, or none"}},
		{"less than none", []string{"--provider-log", log, "--books", books, "--most", "-1"}, 2, nil, []string{"--most -1 is below 0"}},
		{"a log of another", []string{"--provider-log", "h=" + log, "--books", books}, 2, nil, []string{"jobs of g, and there is no log", "--provider-log g=FILE"}},
	} {
		code, out, errs := j.run(false, c.args...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s%s", c.name, code, c.code, out, errs)
		}
		for _, want := range c.out {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", c.name, want, out)
			}
		}
		for _, want := range c.err {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: %q is not in\n%s", c.name, want, errs)
			}
		}
	}
	if _, out, _ := j.run(true, "--provider-log", log, "--books", books, "--limit", "2/s"); !strings.Contains(out, "FULLEST WINDOW") || !strings.Contains(out, "IN THE BOOKS") {
		t.Error(out)
	}
	_, out, _ := j.run(false, "--provider-log", twice, "--books", books, "-o", "json", "--limit", "2/s", "-q")
	var r verify.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.OK || r.Counts[verify.ChargedTwice] != 1 || r.Money[0].Charged.Int64() != 980 || r.Limits[0].Most != 4 || strings.Count(out, "\n") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
