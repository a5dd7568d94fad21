// Package cli is the user interface shared by both programs: streams, flags, exit codes, errors, tables, JSON,
// prompts and progress. It makes no decisions about jobs.
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Streams is where a command reads and writes: results go to Out, everything else to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// InTerminal, OutTerminal and ErrTerminal say whether these are terminals.
	InTerminal, OutTerminal, ErrTerminal bool
	// OutWidth and ErrWidth are the widths of those terminals in columns. 0 means unknown, or no terminal:
	// lines are not broken.
	OutWidth, ErrWidth int
}

// Standard returns the streams of this process.
func Standard() Streams {
	return Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal:  isTerminal(os.Stdin),
		OutTerminal: isTerminal(os.Stdout),
		ErrTerminal: isTerminal(os.Stderr),
		OutWidth:    columns(os.Stdout),
		ErrWidth:    columns(os.Stderr),
	}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// columns returns the width of a terminal; 0 for a file that is none, or if unknown.
func columns(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Say returns a writer for sentences to a person, on standard error. On a terminal of known width it breaks
// lines between words.
func (s Streams) Say() io.Writer { return &prose{s.Err, s.ErrWidth} }

// Tell returns a writer for results that are sentences, on standard output. On a terminal of known width it
// breaks lines between words.
func (s Streams) Tell() io.Writer { return &prose{s.Out, s.OutWidth} }

// Hang returns text after a head, for standard output. Continuation lines are indented to where the text began.
func (s Streams) Hang(head, text string) string {
	indent := cells(head)
	lines := []string{text}
	if s.OutWidth > 0 {
		lines = Wrap(text, s.OutWidth-indent, 0)
	}
	return head + strings.Join(lines, "\n"+strings.Repeat(" ", indent)) + "\n"
}

// prose breaks lines between words, and indents continuation lines by two spaces. Text in quotes stays on one
// line if it fits: it is a name, or a command to copy.
type prose struct {
	w     io.Writer
	width int // in columns; 0 breaks no line
}

// Write implements io.Writer. It neutralizes control characters, because a sentence may quote a server, a
// gateway or a file.
func (p *prose) Write(text []byte) (int, error) {
	lines := strings.Split(plain(string(text)), "\n")
	for i, line := range lines {
		if p.width > 0 {
			lines[i] = strings.Join(Wrap(line, p.width, 2), "\n")
		}
	}
	if _, err := io.WriteString(p.w, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Decision is whether a command that moves money or removes something may go ahead.
type Decision int

// The decisions.
const (
	DryRun   Decision = iota // show what would happen, change nothing
	Go                       // do it
	Declined                 // the person at the terminal said no
)

// Consent is the two flags of such a command.
type Consent struct {
	Yes    bool // --yes: do it without asking
	DryRun bool // --dry-run: never do it; wins over Yes
}

// Confirm decides: --dry-run never goes ahead, --yes does, a person at a terminal is asked, and off a terminal
// it is a dry run. The question ends without a question mark. The error is the context's, if it ends before the
// answer.
func Confirm(ctx context.Context, s Streams, c Consent, question string) (Decision, error) {
	switch {
	case c.DryRun:
		return DryRun, nil
	case c.Yes:
		return Go, nil
	case !s.InTerminal || !s.ErrTerminal:
		return DryRun, nil
	}
	fmt.Fprintf(s.Say(), "%s? [y/N] ", question)
	return readAnswer(ctx, s)
}

// readAnswer reads one line. After a cancelled context, the goroutine lives until its line comes, because
// reading from a terminal can't be interrupted; the program ends then anyway.
func readAnswer(ctx context.Context, s Streams) (Decision, error) {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(s.Err)
		return Declined, ctx.Err()
	case a := <-answer:
		if a == "y" || a == "yes" {
			return Go, nil
		}
		return Declined, nil
	}
}

// Progress is a bar on standard error, or nothing off a terminal and with -q.
type Progress struct{ bar *progressbar.ProgressBar }

// ProgressParams configure a bar.
type ProgressParams struct {
	What  string // what is done, as in "enqueueing"
	Total int64  // in the unit of Set; less than 1 means unknown: a spinner
	Bytes bool   // the unit is bytes, not jobs
	Quiet bool   // -q: no bar
}

// leastTitle is how much of What is shown on the narrowest terminal, in columns.
const leastTitle = 8

// NewProgress starts a bar.
func NewProgress(s Streams, p ProgressParams) *Progress {
	if !s.ErrTerminal || p.Quiet {
		return &Progress{}
	}
	total := p.Total
	if total < 1 {
		total = -1
	}
	bar, most := 20, maxCell
	if s.ErrWidth > 0 && s.ErrWidth < 120 { // count, rate and time need the rest
		bar, most = 10, max(s.ErrWidth-66, leastTitle)
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(s.Err),
		progressbar.OptionSetDescription(shorten(p.What, most)),
		progressbar.OptionShowBytes(p.Bytes),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(bar),
	}
	if !p.Bytes { // bytes show their rate anyway
		options = append(options, progressbar.OptionShowIts(), progressbar.OptionSetItsString("jobs"))
	}
	return &Progress{progressbar.NewOptions64(total, options...)}
}

// Set shows the progress, in the unit of Total. Errors of the terminal are ignored.
func (p *Progress) Set(done int64) {
	if p.bar != nil {
		_ = p.bar.Set64(done)
	}
}

// Clear removes the bar before something else is written; the next Set shows it again.
func (p *Progress) Clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// Close ends the bar and removes it from the screen.
func (p *Progress) Close() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
	}
}

// WhoAmI returns who acts, for the audit trail: user@host, with the user behind a sudo.
func WhoAmI() (string, error) {
	name := os.Getenv("SUDO_USER")
	if name == "" {
		u, err := user.Current()
		if err != nil {
			return "", errors.Join(errors.New("your user name is unknown, and it has to be recorded: set $SUDO_USER"), err)
		}
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name, nil // the name alone is enough
	}
	return name + "@" + host, nil
}
