// Package cli is the user interface shared by both programs: streams, flags, exit codes, errors, tables, JSON,
// prompts and progress. It makes no decisions about jobs.
package cli

import (
	"io"
	"os"
	"strings"

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
