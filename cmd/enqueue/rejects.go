package main

import (
	"bufio"
	"fmt"
	"io"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/pan"
)

// rejects writes the file of --rejects. A nil *rejects accepts every line and drops it.
type rejects struct {
	out    cli.Output
	w      *bufio.Writer
	header []byte // of a CSV file: written first, so that the rejects can be enqueued again
	begun  bool
	failed bool // a write failed, and the error was reported
}

// lost reports whether some rejects are missing from the file.
func (r *rejects) lost() bool { return r != nil && r.failed }

// openRejects checks that the file can be written, without changing it: a command that fails early keeps the
// last run's rejects.
func openRejects(path string, in *input) (*rejects, error) {
	if path == "" {
		return nil, nil
	}
	r := &rejects{out: cli.Output{Path: path, Flag: "--rejects", Input: in.file, InputIs: "the billing file", Holds: "rejects hold payloads"}}
	return r, r.out.Check()
}

// begin creates the file, once.
func (r *rejects) begin() error {
	if r.begun {
		return nil
	}
	r.begun = true
	err := r.out.Begin()
	r.w = bufio.NewWriter(r.out.File)
	if err != nil {
		return r.unwritten(err)
	}
	return nil
}

// add writes one line as it was read, followed by rest.
func (r *rejects) add(raw []byte, rest io.Reader) error {
	if r == nil {
		return nil
	}
	first := !r.begun
	if err := r.begin(); err != nil {
		return err
	}
	if first && len(r.header) > 0 {
		if err := r.line(pan.Mask(r.header), nil); err != nil {
			return err
		}
	}
	return r.line(raw, rest)
}

// line writes a line, and adds the line end that the last line of a file may lack.
func (r *rejects) line(raw []byte, rest io.Reader) error {
	last := lastByte{w: r.w}
	if _, err := last.Write(raw); err != nil {
		return r.unwritten(err)
	}
	if rest != nil {
		if err := pan.Copy(&last, rest); err != nil {
			return err
		}
	}
	if last.b != '\n' {
		if err := r.w.WriteByte('\n'); err != nil {
			return r.unwritten(err)
		}
	}
	return nil
}

// lastByte remembers the last byte written.
type lastByte struct {
	w io.Writer
	b byte
}

// Write implements io.Writer.
func (l *lastByte) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.b = p[len(p)-1]
	}
	return l.w.Write(p)
}

// close flushes the file. A run that completed and rejected nothing leaves an empty file.
func (r *rejects) close(wentThrough bool) error {
	if r == nil {
		return nil
	}
	if r.failed {
		if r.out.File != nil {
			_ = r.out.File.Close() // the write error was reported
		}
		return nil
	}
	var err error
	if wentThrough {
		err = r.begin()
	}
	if r.out.File == nil || err != nil {
		return err
	}
	if r.w != nil {
		if flushErr := r.w.Flush(); flushErr != nil {
			err = r.unwritten(flushErr)
		}
	}
	if closeErr := r.out.File.Close(); err == nil && closeErr != nil {
		err = r.unwritten(closeErr)
	}
	return err
}

func (r *rejects) unwritten(err error) error {
	r.failed = true
	return &job.Error{
		Code: job.CodeFailed, Message: "can't write --rejects", Err: err,
		Hint: fmt.Sprintf("make room or name another file, and run again: %s", safeAgain),
	}
}
