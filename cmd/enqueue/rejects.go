package main

import (
	"bufio"
	"fmt"
	"io"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/pan"
)

// rejects is the file of --rejects. The nil *rejects takes everything and keeps nothing.
type rejects struct {
	out    cli.Output
	w      *bufio.Writer
	header []byte // of a CSV file: goes first, so that the file can be enqueued
	begun  bool
	failed bool // it could not be written, and that was said
}

// lost says that the rejects are not all in the file.
func (r *rejects) lost() bool { return r != nil && r.failed }

// openRejects looks whether the file can be written, and leaves it alone: a command that fails early leaves the last run's rejects.
func openRejects(path string, in *input) (*rejects, error) {
	if path == "" {
		return nil, nil
	}
	r := &rejects{out: cli.Output{Path: path, Flag: "--rejects", Input: in.file, InputIs: "the billing file", Holds: "rejects hold payloads"}}
	return r, r.out.Check()
}

// begin makes the file, once.
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

// add writes one line as it was read, and the rest of it.
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

// line writes a line and its line end, where the last line of a file had none.
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

// close writes what is left. A run that went through and rejected nothing leaves an empty file.
func (r *rejects) close(wentThrough bool) error {
	if r == nil {
		return nil
	}
	if r.failed {
		if r.out.File != nil {
			_ = r.out.File.Close() // what became of it was said
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
