package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spillway/internal/job"
)

// Usage returns an error that says what was wrong with the request (exit 2) and what to do.
func Usage(hint, format string, args ...any) error {
	return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// PrintError writes "name: what is wrong" and, if there is one, "hint: what to do". Joined errors take one line
// each; a hint that several share is written once, after the last of them. For nil it writes nothing.
func PrintError(w io.Writer, name string, err error) {
	var lines, hints []string
	for _, e := range flatten(err) {
		first, rest, more := strings.Cut(printable(e.Error()), "\n")
		lines = append(lines, name+": "+first)
		if more {
			lines = append(lines, "  "+strings.ReplaceAll(rest, "\n", "\n  "))
		}
		if hint := hintOf(e); hint != "" && (len(hints) == 0 || hints[len(hints)-1] != hint) {
			hints = append(hints, hint)
		}
	}
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	for _, h := range hints {
		fmt.Fprintln(w, "hint: "+printable(h))
	}
}

// flatten returns the errors that err joins, or err alone.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	parts := joined.Unwrap()
	// fmt.Errorf with two %w also unwraps to a list, but its text says more than its parts do.
	if texts := joinedText(parts); err.Error() != texts {
		return []error{err}
	}
	var all []error
	for _, e := range parts {
		all = append(all, flatten(e)...)
	}
	return all
}

func joinedText(parts []error) string {
	texts := make([]string, len(parts))
	for i, e := range parts {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "\n")
}

// hintOf returns the outermost hint in err's chain.
func hintOf(err error) string {
	for err != nil {
		e, ok := errors.AsType[*job.Error](err)
		if !ok {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}

// printable replaces characters that could move a terminal's cursor or reverse text, except line ends.
func printable(s string) string {
	return strings.NewReplacer("\t", " ", joint, " ").Replace(plain(strings.TrimRight(s, "\n")))
}

// plain is printable, but also keeps tabs and joints.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && string(r) != joint && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// CodeEach gives each of the errors that err joins the code, unless it has one. Nil stays nil.
func CodeEach(code job.Code, hint string, err error) error {
	parts := flatten(err)
	for i, e := range parts {
		if !isCoded(e) {
			parts[i] = &job.Error{Code: code, Message: e.Error(), Hint: hint}
		}
	}
	return errors.Join(parts...)
}

// The exit codes of both programs.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInvalid     = 3
	ExitNotFound    = 4
	ExitUnavailable = 5
	ExitInterrupted = 130
)

// ExitCode returns the exit code for a command's error: 0 for nil, that of the outermost job.Error, 130 for a
// cancelled context, else 1. Of joined errors the first with a code decides.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	if _, coded := errors.AsType[*job.Error](err); !coded && errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	return exitCodeOf(job.CodeOf(err))
}

func exitCodeOf(code job.Code) int {
	switch code {
	case job.CodeUsage:
		return ExitUsage
	case job.CodeInvalid:
		return ExitInvalid
	case job.CodeNotFound:
		return ExitNotFound
	case job.CodeUnavailable:
		return ExitUnavailable
	case job.CodeInterrupted:
		return ExitInterrupted
	case job.CodeFailed:
		return ExitFailed
	}
	return ExitFailed
}

// exitMeanings is the help topic's table, in order.
var exitMeanings = []struct {
	code    int
	meaning string
}{
	{ExitDone, "done; jobs parked under --on-full park, and duplicates, are done"},
	{ExitFailed, "failed"},
	{ExitUsage, "asked wrongly: flag or configuration, with file, line and field"},
	{ExitInvalid, "finished, but some input was invalid, --on-full fail found no room, the batch has stopped itself (--canary), an act awaits the approval of a second person, or a report and the records differ (reconcile)"},
	{ExitNotFound, "no such job, batch or gateway"},
	{ExitUnavailable, "something it needs is away (Redis, for 30 s in enqueue): try again"},
	{ExitInterrupted, "interrupted"},
}

// ExitCodesHelp returns the text of the help topic "exit-codes".
func ExitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, m := range exitMeanings {
		fmt.Fprintf(&b, "  %3d  %s\n", m.code, m.meaning)
	}
	b.WriteString("\nEvery message on standard error says what is wrong, then what to do.")
	return b.String()
}

// mostAlike is how many lines with the same fault are listed: a million of them would hide all others.
const mostAlike = 100

// Faults limits the reports on unusable lines. The zero value has no reports.
type Faults struct {
	kinds map[string]*faultKind
	order []*faultKind
	last  *faultKind // usually the next one's, too
}

// faultKind is faults that differ only in names and numbers.
type faultKind struct {
	first string
	lines int64
}

// varying matches what differs between two texts of one fault.
var varying = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|[0-9]+`)

// Add reports whether to print the fault.
func (f *Faults) Add(why string) bool {
	k := f.last
	if k == nil || k.first != why {
		k = f.kind(why)
	}
	k.lines++
	f.last = k
	return k.lines <= mostAlike
}

func (f *Faults) kind(why string) *faultKind {
	name := varying.ReplaceAllString(why, "")
	if k := f.kinds[name]; k != nil {
		return k
	}
	if f.kinds == nil {
		f.kinds = map[string]*faultKind{}
	}
	k := &faultKind{first: why}
	f.kinds[name], f.order = k, append(f.order, k)
	return k
}

// More says how many faults were not printed, a line for each kind.
func (f *Faults) More() (all []string) {
	for _, k := range f.order {
		if n := k.lines - mostAlike; n > 0 {
			all = append(all, fmt.Sprintf("%s: and %s more like it", k.first, job.CountText(n)))
		}
	}
	return all
}

// unknownCommand returns the error for an unknown command, with the closest one.
func unknownCommand(parent *cobra.Command, word string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	text := fmt.Sprintf("unknown command %q", word)
	if parent.HasParent() {
		text += fmt.Sprintf(" for %q", parent.CommandPath())
	}
	return Usage(cmp.Or(elsewhere(parent, word), helpHint(parent)), "%s%s", text, job.DidYouMean(word, "", names))
}

// elsewhere says where else a word is a command; empty: nowhere known.
func elsewhere(parent *cobra.Command, word string) string {
	if !parent.HasParent() && parent.Name() == "dispatcher" && word == "enqueue" {
		return "enqueue is a program of its own beside dispatcher: enqueue -f FILE"
	}
	return ""
}

// flagError returns the error for an unknown flag, with the closest one. After an unknown command all flags are
// unknown: then the error is about the command.
func (p *program) flagError(cmd *cobra.Command, err error) error {
	unknown, is := errors.AsType[*pflag.NotExistError](err)
	if !is {
		return err
	}
	if _, rest, found := cmd.Root().Find(p.args); found == nil && p.groups[cmd] && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return unknownCommand(cmd, rest[0])
	}
	if unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return Usage(helpHint(cmd), "%s%s", err, job.DidYouMean(unknown.GetSpecifiedName(), "--", names))
}

func helpHint(cmd *cobra.Command) string { return fmt.Sprintf("see %q", cmd.CommandPath()+" --help") }
