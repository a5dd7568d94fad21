package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"spillway/internal/cli"
	"spillway/internal/job"
)

// rejects is the file of --rejects. The nil *rejects takes everything and keeps nothing.
type rejects struct {
	path   string
	f      *os.File // nil until the first reject, where the file is a regular one
	w      *bufio.Writer
	header []byte // of a CSV file: goes first, so that the file can be enqueued
	begun  bool
	failed bool // it could not be written, and that was said
}

// lost says that the rejects are not all in the file.
func (r *rejects) lost() bool { return r != nil && r.failed }

// openRejects looks whether the file can be written, and leaves it alone: a command that fails early leaves the last run's rejects.
// A device or a pipe is opened at once.
func openRejects(path string, in *input) (*rejects, error) {
	if path == "" {
		return nil, nil
	}
	const hint = "name a file that can be written"
	info, err := os.Stat(path)
	if err == nil && in.file != nil && info.Mode().IsRegular() {
		if theirs, err := in.file.Stat(); err == nil && os.SameFile(info, theirs) {
			return nil, cli.Usage("name another file", "--rejects would write over the billing file itself")
		}
	}
	if err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, cli.Usage(hint, "can't write --rejects: %v", err)
		}
		return &rejects{path: path, f: f, w: bufio.NewWriter(f)}, nil
	}
	if link, err := os.Lstat(path); err == nil && link.Mode()&fs.ModeSymlink != 0 {
		return nil, cli.Usage("name the file that the link leads to", "can't write --rejects: %s is a symbolic link, and rejects hold payloads: they go where they are told to, and nowhere else", path)
	}
	if err := writable(path); err != nil {
		return nil, cli.Usage(hint, "can't write --rejects: %v", err)
	}
	return &rejects{path: path}, nil
}

// writable says why a regular file can't be written or replaced, or nil.
func writable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f, err = hiddenBeside(path); err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// hiddenBeside makes an empty file in the folder of another one, which nobody else may read.
func hiddenBeside(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
}

// begin puts an empty file in the place of the last run's. It is a new one: who may read the old one, or has it open, sees nothing of
// what is rejected now, and another name of it keeps what it had.
func (r *rejects) begin() error {
	if r.begun {
		return nil
	}
	r.begun = true
	if r.f != nil {
		return nil
	}
	f, err := hiddenBeside(r.path)
	if err != nil {
		return r.unwritten(err)
	}
	r.f, r.w = f, bufio.NewWriter(f)
	if err := os.Rename(f.Name(), r.path); err != nil {
		return r.unwritten(errors.Join(err, os.Remove(f.Name())))
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
		if r.f != nil {
			_ = r.f.Close() // what became of it was said
		}
		return nil
	}
	var err error
	if wentThrough {
		err = r.begin()
	}
	if r.f == nil || err != nil {
		return err
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
