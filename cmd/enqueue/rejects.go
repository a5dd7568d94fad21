package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"spillway/internal/cli"
	"spillway/internal/job"
)

// rejects is the file of --rejects. The nil *rejects takes everything and keeps nothing.
type rejects struct {
	f      *os.File
	w      *bufio.Writer
	header []byte // of a CSV file: goes first, so that the file can be enqueued
	begun  bool
	failed bool // it could not be written, and that was said
}

// lost says that the rejects are not all in the file.
func (r *rejects) lost() bool { return r != nil && r.failed }

// openRejects opens the file without emptying it yet: a command that fails early leaves the last run's rejects alone.
func openRejects(path string, in *input) (*rejects, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, cli.Usage("name a file that can be written", "can't write --rejects: %v", err)
	}
	mine, err := f.Stat()
	if err == nil && in.file != nil {
		if theirs, err := in.file.Stat(); err == nil && os.SameFile(mine, theirs) && mine.Mode().IsRegular() {
			_ = f.Close()
			return nil, cli.Usage("name another file", "--rejects would write over the billing file itself")
		}
	}
	return &rejects{f: f, w: bufio.NewWriter(f)}, nil
}

// begin empties the file.
func (r *rejects) begin() error {
	if r.begun {
		return nil
	}
	r.begun = true
	info, err := r.f.Stat()
	if err == nil && info.Mode().IsRegular() {
		err = r.f.Truncate(0)
	}
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
		if err := r.line(r.header, nil); err != nil {
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
		if _, err := io.Copy(&last, rest); err != nil {
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
		_ = r.f.Close() // what became of it was said
		return nil
	}
	var err error
	if wentThrough {
		err = r.begin()
	}
	if flushErr := r.w.Flush(); err == nil && flushErr != nil {
		err = r.unwritten(flushErr)
	}
	if closeErr := r.f.Close(); err == nil && closeErr != nil {
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
