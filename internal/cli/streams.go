// Package cli is what both programs share towards a person: streams, flags, exit codes, errors, tables, JSON,
// prompts and progress. It decides nothing about jobs.
package cli

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Streams is where a command reads and writes: results to Out, everything else to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// InTerminal, OutTerminal and ErrTerminal tell whether a person sits at the other end.
	InTerminal, OutTerminal, ErrTerminal bool
	// OutWidth and ErrWidth are the columns of those terminals. 0 means unknown, or no terminal: lines are as long as what is in them.
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

// columns returns how wide a terminal is; 0 for a file that is none, or whose terminal does not say.
func columns(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Say returns where sentences for a person go: standard error. On a terminal of known width its lines break between words.
func (s Streams) Say() io.Writer { return &prose{s.Err, s.ErrWidth} }

// Tell returns where results go that are sentences: standard output. On a terminal of known width its lines break between words.
func (s Streams) Tell() io.Writer { return &prose{s.Out, s.OutWidth} }

// Hang returns text behind a head, for standard output. What continues the line begins where the text began.
func (s Streams) Hang(head, text string) string {
	indent := cells(head)
	lines := []string{text}
	if s.OutWidth > 0 {
		lines = Wrap(text, s.OutWidth-indent, 0)
	}
	return head + strings.Join(lines, "\n"+strings.Repeat(" ", indent)) + "\n"
}

// prose breaks lines between words, and begins what continues a line with two spaces. What is in quotes stays on one line where that has
// room: it is a name, or a command to copy.
type prose struct {
	w     io.Writer
	width int // in columns; 0 breaks no line
}

// Write implements io.Writer. A sentence may hold the words of a server, a gateway or a file: none of them steers the terminal.
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
