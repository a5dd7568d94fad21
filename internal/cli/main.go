package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// SecondSignalExit is a command's annotation with the exit code if a second signal ends it at once. Default
// 130.
const SecondSignalExit = "second-signal-exit"

// Main runs a program and returns its exit code. Flag errors and unknown commands give 2. The first SIGINT or
// SIGTERM cancels the command's context: a command that then returns the context's error exits with 130, one
// that returns nil with 0. A second signal ends it at once, unless it comes within sameSignal: then it counts
// as the first one, sent twice. A panic becomes one line and exit 1.
//
//	signals ──first──→ cancel ctx ──→ command returns ─┐
//	        └─second───────────────────────────────────┴→ exit code
func Main(name string, root func(Streams) *cobra.Command, args []string, s Streams) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return execute(name, root(s), args, s, interrupts{signals, time.Now})
}

// sameSignal is how long after the first signal others count as the same: timeout(1), for example, sends one to
// its child and one to the child's group.
const sameSignal = 2 * time.Second

// interrupts are the signals that arrive while a command runs, and the clock that dates them.
type interrupts struct {
	signals <-chan os.Signal
	now     func() time.Time
}

func execute(name string, root *cobra.Command, args []string, s Streams, from interrupts) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := prepare(root, s)
	p.args = args
	root.SetArgs(args)

	done := make(chan error, 1)
	go func() { done <- p.run(ctx, root) }()
	for first := (time.Time{}); ; {
		select {
		case err := <-done:
			err = humane(err)
			PrintError(s.Say(), name, err)
			return ExitCode(err)
		case <-from.signals:
			switch now := from.now(); {
			case first.IsZero():
				first = now
				cancel()
			case now.Sub(first) >= sameSignal:
				return p.secondSignalExit(root, args)
			}
		}
	}
}

// program remembers whether a command has started: earlier errors are about its usage.
type program struct {
	begun  bool
	args   []string
	groups map[*cobra.Command]bool // commands that only have subcommands
}

// prepare sets up the command tree: streams, silence (Main prints errors once), and usage errors.
func prepare(root *cobra.Command, s Streams) *program {
	p := &program{groups: map[*cobra.Command]bool{}}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = Version()
	root.Flags().Bool("version", false, "what this program was built from")
	root.AddCommand(exitCodesTopic())
	root.SetFlagErrorFunc(p.flagError)
	root.InitDefaultCompletionCmd() // before the others are wrapped, so that an unknown shell is an error
	p.wrap(root)
	return p
}

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: ExitCodesHelp()}
}

func (p *program) wrap(cmd *cobra.Command) {
	cmd.Args = arguments(cmd.Args)
	switch {
	case cmd.RunE != nil:
		run := cmd.RunE
		cmd.RunE = func(c *cobra.Command, args []string) error { p.begun = true; return run(c, args) }
	case cmd.Run == nil && cmd.HasSubCommands():
		cmd.RunE, p.groups[cmd] = group, true
	}
	for _, c := range cmd.Commands() {
		p.wrap(c)
	}
}

// wanted returns how many arguments a command must have: those of its usage line, up to the first flag or
// optional argument.
func wanted(cmd *cobra.Command) int {
	words := strings.Fields(cmd.Use)[1:]
	for i, w := range words {
		if w[0] == '-' || w[0] == '[' {
			return i
		}
	}
	return len(words)
}

// arguments replaces cobra's messages about missing or superfluous arguments, which call every word a command.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	if check == nil {
		return nil
	}
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil || isCoded(err) {
			return err
		}
		what := "an argument is missing"
		if len(args) > 0 && len(args) >= wanted(cmd) {
			what = fmt.Sprintf("%q is too much", args[len(args)-1])
		}
		return Usage(fmt.Sprintf("write it like: %s; see %q", cmd.UseLine(), cmd.CommandPath()+" --help"), "%s", what)
	}
}

// group is run for a command that only has subcommands: cobra would answer an unknown one with the help and
// exit 0.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}

func (p *program) run(ctx context.Context, root *cobra.Command) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil || p.begun || isCoded(err) {
		return err
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	var word string
	if n, _ := fmt.Sscanf(first, "unknown command %q for", &word); n == 1 { // cobra's message about the first word
		return unknownCommand(root, word)
	}
	return &job.Error{Code: job.CodeUsage, Message: first, Hint: helpHint(cmd)}
}

func isCoded(err error) bool {
	_, ok := errors.AsType[*job.Error](err)
	return ok
}

// secondSignalExit returns the exit code that the running command has requested.
func (p *program) secondSignalExit(root *cobra.Command, args []string) int {
	cmd, _, err := root.Find(args)
	if err != nil {
		return ExitInterrupted
	}
	if code, err := strconv.Atoi(cmd.Annotations[SecondSignalExit]); err == nil {
		return code
	}
	return ExitInterrupted
}

// panicked says in one line that the program has a fault, and where. Deferred functions have run by then.
func panicked(v any) error {
	where := ""
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") && f.Function != "" {
			where = fmt.Sprintf(" at %s:%d", f.Function, f.Line)
			break
		}
		if !more {
			break
		}
	}
	text, _, _ := strings.Cut(fmt.Sprint(v), "\n")
	return &job.Error{
		Code: job.CodeFailed, Message: fmt.Sprintf("internal fault%s: %s", where, text),
		Hint: "this is a fault of the program, not of yours: please report this line and the command",
	}
}

// humane replaces texts of the context and the driver that say nothing to a person.
func humane(err error) error {
	if err != nil && !isCoded(err) && errors.Is(err, context.Canceled) {
		return &job.Error{Code: job.CodeInterrupted, Message: "interrupted"}
	}
	return redisdb.Coded(err)
}

// manPages is the output of "man -o json".
type manPages struct {
	Directory string   `json:"directory"`
	Pages     []string `json:"pages"`
}

// ManCommand returns "man [DIR]" for either program, which writes a page for each of its commands.
func ManCommand(s Streams, c *Common) *cobra.Command {
	return &cobra.Command{
		Use: "man [DIR]", Short: "Write man pages of all commands",
		Long: `Man writes a manual page for each command into a directory, which is created if missing (default: man1 in
the current directory). Existing files of these names are replaced.`,
		Example: "  dispatcher man\n  man -l man1/dispatcher-run.1\n  sudo dispatcher man /usr/local/share/man/man1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "man1"
			if len(args) > 0 {
				dir = args[0]
			}
			return writeMan(s, c, cmd.Root(), dir)
		},
	}
}

func writeMan(s Streams, c *Common, root *cobra.Command, dir string) error {
	before := root.DisableAutoGenTag
	root.DisableAutoGenTag = true // a line with the date would differ in each build
	defer func() { root.DisableAutoGenTag = before }()
	if shells, _, err := root.Find([]string{"completion"}); err == nil && shells != root {
		root.RemoveCommand(shells) // --help contains everything
		defer root.AddCommand(shells)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Usage("name a directory that can be written to", "can't make the directory: %v", err)
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Spillway", Manual: "Spillway"}, dir); err != nil {
		return Usage("name a directory that can be written to", "can't write man pages: %v", err)
	}
	pages := pagesOf(root)
	if c.JSON() {
		return WriteJSON(s.Out, manPages{filepath.ToSlash(dir), pages})
	}
	_, err := fmt.Fprintf(s.Tell(), "%d pages in %s\n", len(pages), dir)
	return err
}

// pagesOf returns the pages of a command and its subcommands, as cobra names them.
func pagesOf(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			names = append(names, pagesOf(sub)...)
		}
	}
	names = append(names, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
	slices.Sort(names)
	return names
}

// built is the version given to the linker (-X), for a build without the git directory, such as the image's.
// Empty means the version recorded by Go.
var built string

// Version returns what the program was built from, as recorded by Go: the module's version, the commit and its
// time, and the toolchain.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	parts := []string{cmp.Or(built, info.Main.Version)}
	if commit := set["vcs.revision"]; commit != "" {
		parts = append(parts, "commit "+commit[:min(12, len(commit))]+" of "+set["vcs.time"])
	}
	if set["vcs.modified"] == "true" {
		parts = append(parts, "with changes that are in no commit")
	}
	return strings.Join(append(parts, info.GoVersion), ", ")
}
