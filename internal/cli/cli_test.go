package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

type fixture struct {
	Streams
	out, err bytes.Buffer
}

func setup() *fixture {
	f := &fixture{}
	f.Streams = Streams{In: strings.NewReader(""), Out: &f.out, Err: &f.err}
	return f
}

func TestEveryCodeHasItsExitCodeAndTheHelpKnowsIt(t *testing.T) {
	t.Parallel()
	want := map[job.Code]int{
		job.CodeFailed: 1, job.CodeUsage: 2, job.CodeInvalid: 3, job.CodeNotFound: 4, job.CodeUnavailable: 5, job.CodeInterrupted: 130,
	}
	used := map[int]bool{0: true}
	for _, code := range job.Codes() {
		got := ExitCode(fmt.Errorf("while busy: %w", &job.Error{Code: code}))
		if want[code] == 0 || got != want[code] {
			t.Errorf("%s: exit %d, want %d", code, got, want[code])
		}
		if used[got] {
			t.Errorf("exit %d stands for two codes", got)
		}
		used[got] = true
	}
	help := ExitCodesHelp()
	for code := range used {
		if !strings.Contains(help, fmt.Sprintf("\n  %3d  ", code)) {
			t.Errorf("the help does not know exit code %d", code)
		}
	}
	if got := strings.Count(help, "\n   ") + strings.Count(help, "\n  1"); got != len(used) {
		t.Errorf("the help has %d codes, the program %d", got, len(used))
	}
}

func TestExitCodesOfOtherErrors(t *testing.T) {
	t.Parallel()
	invalid := &job.Error{Code: job.CodeInvalid}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{context.Canceled, 130},
		{context.DeadlineExceeded, 1},
		{errors.Join(errors.New("x"), invalid), 3},
		{&job.Error{Code: job.CodeUnavailable, Err: context.Canceled}, 5},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestPrintError(t *testing.T) {
	t.Parallel()
	hinted := &job.Error{Message: "no job j", Hint: "list them with \"dispatcher dlq list\""}
	cases := []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("it broke"), "x: it broke\n"},
		{hinted, "x: no job j\nhint: list them with \"dispatcher dlq list\"\n"},
		{fmt.Errorf("looking: %w", hinted), "x: looking: no job j\nhint: list them with \"dispatcher dlq list\"\n"},
		{errors.Join(errors.New("a"), errors.Join(errors.New("b"), hinted)), "x: a\nx: b\nx: no job j\nhint: list them with \"dispatcher dlq list\"\n"},
		{errors.Join(hinted, hinted), "x: no job j\nx: no job j\nhint: list them with \"dispatcher dlq list\"\n"},
		{&job.Error{Message: "outer", Err: &job.Error{Message: "inner", Hint: "do it"}}, "x: outer: inner\nhint: do it\n"},
		{&job.Error{Message: "two", Err: errors.Join(errors.New("a"), errors.New("b"))}, "x: two: a\n  b\n"},
		{fmt.Errorf("%w after %w", errors.New("a"), errors.New("b")), "x: a after b\n"},
		{errors.New("evil \x1b[2J\rtext"), "x: evil  [2J text\n"},
		{CodeEach(job.CodeUsage, "mend it", errors.Join(errors.New("a"), errors.New("b"))), "x: a\nx: b\nhint: mend it\n"},
	}
	for _, c := range cases {
		var b bytes.Buffer
		PrintError(&b, "x", c.err)
		if b.String() != c.want {
			t.Errorf("got %q, want %q", b.String(), c.want)
		}
	}
	if err := CodeEach(job.CodeUsage, "", nil); err != nil {
		t.Errorf("nil became %v", err)
	}
	if code := job.CodeOf(CodeEach(job.CodeUsage, "", errors.Join(errors.New("a")))); code != job.CodeUsage {
		t.Errorf("code %s", code)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	rows := func(terminal bool) string {
		f := setup()
		f.OutTerminal = terminal
		table := NewTable(f.Streams, now, "ID", "WHEN", "TOOK", "ERROR")
		table.Row("ä", now.Add(-90*time.Second), 1234567*time.Microsecond, strings.Repeat("x", 70))
		table.Row("job-2", time.Time{}, 20*time.Millisecond, "a\tb\nc")
		table.Row("j", now.Add(26*time.Hour), time.Duration(0), nil)
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		return f.out.String()
	}
	wantTerminal := "ID     WHEN       TOOK  ERROR\n" +
		"ä      1m30s ago  1.2s  " + strings.Repeat("x", 59) + "…\n" +
		"job-2  -          20ms  a b c\n" +
		"j      in 1d2h    0s    -\n"
	if got := rows(true); got != wantTerminal {
		t.Errorf("terminal:\n%s\nwant:\n%s", got, wantTerminal)
	}
	wantPipe := "ä\t2026-11-01T11:58:30Z\t1.234567s\t" + strings.Repeat("x", 70) + "\n" +
		"job-2\t\t20ms\ta b c\n" +
		"j\t2026-11-02T14:00:00Z\t0s\t\n"
	if got := rows(false); got != wantPipe {
		t.Errorf("pipe:\n%s\nwant:\n%s", got, wantPipe)
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		48 * time.Hour: "2d", 90 * time.Minute: "1h30m", -time.Hour: "-1h", 59 * time.Second: "59s", 1500 * time.Microsecond: "1ms", math.MinInt64: "-106751d23h",
	} {
		if got := Short(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := Relative(time.Unix(0, 0), time.Unix(0, 5e8)); got != "now" {
		t.Error(got)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriteJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := WriteJSON(&b, map[string]any{"a": "<&>", "n": 1}); err != nil || b.String() != "{\"a\":\"<&>\",\"n\":1}\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	if err := WriteJSON(brokenWriter{}, 1); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		consent  Consent
		terminal bool
		answer   string
		want     Decision
		asked    string
	}{
		{"yes", Consent{Yes: true}, false, "", Go, ""},
		{"dry run wins", Consent{Yes: true, DryRun: true}, true, "y\n", DryRun, ""},
		{"off a terminal", Consent{}, false, "y\n", DryRun, ""},
		{"y", Consent{}, true, "y\n", Go, "Replay 3 jobs? [y/N] "},
		{"YES", Consent{}, true, " YES \n", Go, "Replay 3 jobs? [y/N] "},
		{"enter", Consent{}, true, "\n", Declined, "Replay 3 jobs? [y/N] "},
		{"end", Consent{}, true, "", Declined, "Replay 3 jobs? [y/N] "},
	}
	for _, c := range cases {
		f := setup()
		f.In, f.InTerminal, f.ErrTerminal = strings.NewReader(c.answer), c.terminal, c.terminal
		got, err := Confirm(t.Context(), f.Streams, c.consent, "Replay 3 jobs")
		if err != nil || got != c.want || f.err.String() != c.asked || f.out.Len() > 0 {
			t.Errorf("%s: %v, %v, asked %q", c.name, got, err, f.err.String())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := setup()
	silent, _ := io.Pipe()
	f.In, f.InTerminal, f.ErrTerminal = silent, true, true
	if got, err := Confirm(ctx, f.Streams, Consent{}, "Really"); got != Declined || !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, %v", got, err)
	}
}

func TestProgressIsForTerminalsAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ terminal, quiet, seen bool }{{false, false, false}, {true, true, false}, {true, false, true}} {
		f := setup()
		f.ErrTerminal = c.terminal
		p := NewProgress(f.Streams, ProgressParams{What: "enqueueing", Total: 10, Quiet: c.quiet})
		p.Set(5)
		p.Set(10)
		p.Clear()
		p.Close()
		if (f.err.Len() > 0) != c.seen || f.out.Len() > 0 {
			t.Errorf("%+v: wrote %q", c, f.err.String())
		}
	}
}

// A bar is not wider than its terminal: otherwise each step would leave a line.
func TestProgressStaysOnItsTerminal(t *testing.T) {
	t.Parallel()
	f := setup()
	f.ErrTerminal, f.ErrWidth = true, 80
	p := NewProgress(f.Streams, ProgressParams{What: "cancel " + strings.Repeat("the-renewals-of-november ", 4), Total: 1_000_000})
	defer p.Close()
	done := int64(0)
	testkit.Eventually(t, 10*time.Second, "a bar with rate and ETA", func() bool {
		done = min(done+50_000, 999_999)
		p.Set(done)
		return strings.Contains(f.err.String(), "99% |")
	})
	for line := range strings.SplitSeq(f.err.String(), "\r") {
		if cells(line) > 80 {
			t.Errorf("%d columns: %q", cells(line), line)
		}
	}
}

var rateAndETA = regexp.MustCompile(`\((\d+)/1000, \d+ jobs/\w+\) \[[\dhms]+:[\dhms]+\]`)

func TestProgressShowsRateAndETA(t *testing.T) {
	t.Parallel()
	f := setup()
	f.ErrTerminal = true
	p := NewProgress(f.Streams, ProgressParams{What: "replay", Total: 1000})
	defer p.Close()
	done := int64(0)
	testkit.Eventually(t, 10*time.Second, "a bar with rate and ETA", func() bool {
		done = min(done+1, 999)
		p.Set(done)
		return rateAndETA.MatchString(f.err.String())
	})
}

// tree returns a program for the tests of Main.
func tree(f *fixture, run func(*cobra.Command, []string) error) *cobra.Command {
	var common Common
	var mode string
	root := &cobra.Command{Use: "x", Short: "try"}
	common.AddTo(root)
	do := &cobra.Command{Use: "do", Args: cobra.NoArgs, RunE: run, Annotations: map[string]string{SecondSignalExit: "0"}}
	Choice(do, &mode, "mode", "how", "", "fast", "slow")
	group := &cobra.Command{Use: "dlq"}
	group.AddCommand(&cobra.Command{Use: "list", Args: cobra.NoArgs, RunE: run})
	needs := &cobra.Command{Use: "needs", RunE: run}
	needs.Flags().String("why", "", "")
	_ = needs.MarkFlagRequired("why")
	root.AddCommand(do, group, needs)
	return root
}

func TestMainTurnsErrorsIntoExitCodes(t *testing.T) {
	t.Parallel()
	cases := []struct {
		args []string
		run  func(*cobra.Command, []string) error
		code int
		err  string
	}{
		{[]string{"do"}, nil, 0, ""},
		{[]string{"do", "--bogus"}, nil, 2, "x: unknown flag: --bogus\nhint: see \"x do --help\"\n"},
		{[]string{"do", "-o", "xml"}, nil, 2, "x: invalid argument \"xml\" for \"-o, --output\" flag: must be one of text, json\nhint: see \"x do --help\"\n"},
		{[]string{"do", "--mode", ""}, nil, 2, "x: invalid argument \"\" for \"--mode\" flag: must be one of fast, slow\nhint: see \"x do --help\"\n"},
		{[]string{"do", "more"}, nil, 2, "x: \"more\" is too much\nhint: write it like: x do [flags]; see \"x do --help\"\n"},
		{[]string{"completion", "bsh"}, nil, 2, "x: \"bsh\" is too much\nhint: write it like: x completion [flags]; see \"x completion --help\"\n"},
		{[]string{"bogus"}, nil, 2, "x: unknown command \"bogus\"\nhint: see \"x --help\"\n"},
		{[]string{"od", "-g", "y"}, nil, 2, "x: unknown command \"od\"; did you mean do?\nhint: see \"x --help\"\n"},
		{[]string{"dlq", "lsit"}, nil, 2, "x: unknown command \"lsit\" for \"x dlq\"; did you mean list?\nhint: see \"x dlq --help\"\n"},
		{[]string{"dlq", "lst", "--limit", "3"}, nil, 2, "x: unknown command \"lst\" for \"x dlq\"; did you mean list?\nhint: see \"x dlq --help\"\n"},
		{[]string{"do", "--moed", "fast"}, nil, 2, "x: unknown flag: --moed; did you mean --mode?\nhint: see \"x do --help\"\n"},
		{[]string{"dlq", "list", "--confg", "y"}, nil, 2, "x: unknown flag: --confg; did you mean --config?\nhint: see \"x dlq list --help\"\n"},
		{[]string{"dlq", "bogus"}, nil, 2, "x: unknown command \"bogus\" for \"x dlq\"\nhint: see \"x dlq --help\"\n"},
		{[]string{"needs"}, nil, 2, "x: required flag(s) \"why\" not set\nhint: see \"x needs --help\"\n"},
		{[]string{"do"}, func(*cobra.Command, []string) error { return errors.New("it broke") }, 1, "x: it broke\n"},
		{[]string{"do"}, func(*cobra.Command, []string) error { return Usage("try c", "%s and b", "a") }, 2, "x: a and b\nhint: try c\n"},
		{[]string{"do"}, func(*cobra.Command, []string) error { return context.Canceled }, 130, "x: interrupted\n"},
	}
	for _, c := range cases {
		f := setup()
		run := c.run
		if run == nil {
			run = func(*cobra.Command, []string) error { return nil }
		}
		code := execute("x", tree(f, run), c.args, f.Streams, interrupts{})
		if code != c.code || f.err.String() != c.err || f.out.Len() > 0 {
			t.Errorf("%v: exit %d, stderr %q, stdout %q", c.args, code, f.err.String(), f.out.String())
		}
	}
}

func TestMainShowsHelpOnStandardOutput(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"do", "-h"}, {"dlq"}, {"help", "exit-codes"}, {}} {
		f := setup()
		code := execute("x", tree(f, func(*cobra.Command, []string) error { return nil }), args, f.Streams, interrupts{})
		if code != 0 || f.out.Len() == 0 || f.err.Len() > 0 {
			t.Errorf("%v: exit %d, stderr %q", args, code, f.err.String())
		}
	}
	f := setup()
	if code := execute("x", tree(f, nil), []string{"--version"}, f.Streams, interrupts{}); code != 0 || !strings.Contains(f.out.String(), runtime.Version()) {
		t.Errorf("--version: exit %d, stdout %q", code, f.out.String())
	}
	f = setup()
	execute("x", tree(f, nil), []string{"help", "exit-codes"}, f.Streams, interrupts{})
	if !strings.Contains(f.out.String(), ExitCodesHelp()) {
		t.Errorf("the topic says %q", f.out.String())
	}
}

// unmade returns a nil map: writing to it panics.
func unmade() map[string]int { return nil }

func TestPanicBecomesOneLine(t *testing.T) {
	t.Parallel()
	f := setup()
	code := execute("x", tree(f, func(*cobra.Command, []string) error { unmade()["a"] = 1; return nil }), []string{"do"}, f.Streams, interrupts{})
	lines := strings.Split(strings.TrimSpace(f.err.String()), "\n")
	if code != 1 || len(lines) != 2 || !strings.Contains(lines[0], "internal fault at spillway/internal/cli.TestPanicBecomesOneLine") ||
		!strings.HasSuffix(lines[0], "assignment to entry in nil map") || strings.Contains(f.err.String(), "goroutine") {
		t.Errorf("exit %d: %s", code, f.err.String())
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	never := make(chan struct{})
	waits := func(c *cobra.Command, _ []string) error { close(begun); <-c.Context().Done(); return c.Context().Err() }
	drains := func(c *cobra.Command, _ []string) error { close(begun); <-c.Context().Done(); return nil }
	hangs := func(*cobra.Command, []string) error { close(begun); <-never; return nil }
	for _, c := range []struct {
		name    string
		args    []string
		run     func(*cobra.Command, []string) error
		code    int
		signals []time.Duration // when they come
	}{
		{"returns the context's error", []string{"do"}, waits, 130, []time.Duration{0}},
		{"drains", []string{"do"}, drains, 0, []time.Duration{0}},
		{"second signal, with an exit code of its own", []string{"do"}, hangs, 0, []time.Duration{0, sameSignal}},
		{"second signal", []string{"dlq", "list"}, hangs, 130, []time.Duration{0, sameSignal}},
		{"second signal after the same one twice", []string{"dlq", "list"}, hangs, 130, []time.Duration{0, 0, sameSignal - 1, sameSignal}},
	} {
		f := setup()
		begun = make(chan struct{})
		signals := make(chan os.Signal)
		at, began := 0, time.Now()
		now := func() time.Time { at++; return began.Add(c.signals[at-1]) }
		go func() {
			<-begun
			for range c.signals {
				signals <- syscall.SIGTERM
			}
		}()
		if code := execute("x", tree(f, c.run), c.args, f.Streams, interrupts{signals, now}); code != c.code {
			t.Errorf("%s: exit %d, want %d", c.name, code, c.code)
		}
	}
}

// timeout(1) signals its child, and then the child's group. The second signal must not end a command that is draining.
func TestASignalSentTwiceIsOne(t *testing.T) {
	t.Parallel()
	f, signals, heard := setup(), make(chan os.Signal), make(chan struct{})
	run := func(c *cobra.Command, _ []string) error {
		go func() {
			signals <- syscall.SIGTERM
			signals <- syscall.SIGTERM
			close(heard)
		}()
		<-c.Context().Done()
		<-heard
		return errors.New("drained")
	}
	began := time.Now()
	if code := execute("x", tree(f, run), []string{"do"}, f.Streams, interrupts{signals, func() time.Time { return began }}); code != 1 {
		t.Errorf("exit %d: the second one cut it off", code)
	}
}

func TestCommonFlags(t *testing.T) {
	t.Setenv("DISPATCHER_CONFIG", "/etc/other.yaml")
	var c Common
	cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
	c.AddTo(cmd)
	cmd.SetArgs([]string{"-o", "json", "-q", "--redis", "redis://h/1"})
	if err := cmd.Execute(); err != nil || !c.JSON() || !c.Quiet || c.Config != "/etc/other.yaml" || c.Redis != "redis://h/1" {
		t.Errorf("%+v, %v", c, err)
	}
}

// Ids and references come from others. In the output they control no terminal, change no direction of text, and are no formulas in a spreadsheet.
func TestWordsOfOthersAreHarmless(t *testing.T) {
	t.Parallel()
	const nasty = "a\u009b31mb\u202ec\u2066d\x7fe\U000e0001f\tg\x1b[0m"
	f := setup()
	if err := WriteJSON(f.Streams.Out, map[string]string{"x": nasty, "y": "é 漢 😀"}); err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSuffix(f.out.String(), "\n")
	var back map[string]string
	if err := json.Unmarshal([]byte(text), &back); err != nil || back["x"] != nasty || !strings.Contains(text, "é 漢 😀") {
		t.Errorf("%q is read as %q (%v)", text, back, err)
	}
	unprintable := func(r rune) bool { return r != '\t' && !unicode.IsPrint(r) }
	if strings.ContainsFunc(text, unprintable) {
		t.Errorf("JSON has %q", text)
	}
	for _, terminal := range []bool{true, false} {
		f := setup()
		f.OutTerminal = terminal
		table := NewTable(f.Streams, time.Now(), "A")
		table.Row(nasty)
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(f.out.String()) {
			if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), unprintable) {
				t.Errorf("a table has %q", line)
			}
		}
	}
	f = setup()
	table := NewTable(f.Streams, time.Now())
	type word string
	table.Row(`=HYPERLINK("http://x","y")`, "@SUM(1)*cmd|'calc'!A0", "+cmd|/C", "-2+3", "\t=1", "\r-1", word("=1"), "a=b", "", -5, -1.5, -time.Second, Whole("-7"))
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, want := f.out.String(), `'=HYPERLINK("http://x","y")`+"\t'@SUM(1)*cmd|'calc'!A0\t'+cmd|/C\t'-2+3\t' =1\t' -1\t'=1\ta=b\t\t-5\t-1.5\t-1s\t-7\n"; got != want {
		t.Errorf("a pipe gets %q, want %q", got, want)
	}
}

func TestAPasswordInTheCommandLineIsWarnedOf(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"": false, "redis://h:1/0": false, "redis://user@h:1/0": false, "redis://user:@h:1/0": false, "redis-socket:///a:b@c": false,
		"redis://:secret@h:1/0": true, "rediss://u:secret@h/0": true, "redis-cluster://u:s@cret@h,h2": true,
	} {
		f := setup()
		c := Common{Redis: url}
		c.WarnOfRedis(f.Streams)
		if got := f.err.String(); (got != "") != want || strings.Contains(got, "secret") {
			t.Errorf("%s: %q", url, got)
		}
		said := f.err.Len()
		c.Quiet = true
		if c.WarnOfRedis(f.Streams); f.err.Len() != said {
			t.Errorf("%s: -q is not quiet", url)
		}
	}
}

// Remarks, names and paths from a server control no terminal in sentences either.
func TestNoSentenceSteersTheTerminal(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 20} {
		var out, errs strings.Builder
		s := Streams{Out: &out, Err: &errs, OutWidth: width, ErrWidth: width}
		const nasty = "a\x1b]0;owned\x07b \u009b2J\u202ec\r\x7fd\te\n"
		fmt.Fprint(s.Say(), nasty)
		fmt.Fprint(s.Tell(), nasty)
		for _, got := range []string{out.String(), errs.String()} {
			if strings.ContainsAny(got, "\x1b\x07\u009b\u202e\r\x7f") || !strings.HasPrefix(got, "a ]0;owned b") || !strings.HasSuffix(got, "e\n") {
				t.Errorf("width %d: %q", width, got)
			}
		}
	}
}
