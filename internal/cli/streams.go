// Package cli is what both programs share towards a person: streams, flags, exit codes, errors, tables, JSON,
// prompts and progress. It decides nothing about jobs.
package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Streams is where a command reads and writes: results to Out, everything else to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// InTerminal, OutTerminal and ErrTerminal tell whether a person sits at the other end.
	InTerminal, OutTerminal, ErrTerminal bool
}

// Standard returns the streams of this process.
func Standard() Streams {
	return Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal:  isTerminal(os.Stdin),
		OutTerminal: isTerminal(os.Stdout),
		ErrTerminal: isTerminal(os.Stderr),
	}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
