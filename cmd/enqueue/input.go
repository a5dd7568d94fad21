package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/pan"
	"spillway/internal/postgres"
	"spillway/internal/producer"
)

// input is the source of jobs. It counts the bytes read, for the progress bar.
type input struct {
	path  string
	r     io.Reader
	unit  string   // what one entry is called in messages; empty: line
	close func()   // nil: only file needs closing
	file  *os.File // nil if standard input is not a file
	start int64    // offset in file at which the jobs begin
	read  atomic.Int64
}

// openInput opens the file, or standard input for "-".
func openInput(s cli.Streams, path string) (*input, error) {
	in := &input{path: path, r: s.In}
	if path == "-" {
		in.path = "standard input"
		in.file, _ = s.In.(*os.File)
		return in, nil
	}
	f, err := cli.OpenFile(path, "-f")
	if err != nil {
		return nil, err
	}
	in.r, in.file = f, f
	return in, nil
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	n, err := in.r.Read(p)
	in.read.Add(int64(n))
	return n, err
}

// Close closes the file and anything else that was opened.
func (in *input) Close() {
	if in.file != nil {
		_ = in.file.Close()
	}
	if in.close != nil {
		in.close()
	}
}

// size returns how many bytes there are to read, or 0 if that is unknown.
func (in *input) size() int64 {
	if in.file == nil {
		return 0
	}
	info, err := in.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size() - in.start
}

// twice makes sure that the input can be read a second time. It copies a pipe to a temporary file that is
// already unlinked, so that it disappears with the process.
func (in *input) twice() error {
	if in.file != nil {
		at, err := in.file.Seek(0, io.SeekCurrent)
		if err == nil {
			in.start = at
			return nil
		}
	}
	tmp, err := os.CreateTemp("", "enqueue-*")
	if err != nil {
		return fmt.Errorf("keeping a copy of the input, for the control totals: %w", err)
	}
	_ = os.Remove(tmp.Name())
	if _, err := io.Copy(tmp, in.r); err != nil {
		return fmt.Errorf("keeping a copy of the input, for the control totals: %w", err)
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading the copy of the input: %w", err)
	}
	in.file, in.r, in.start = tmp, tmp, 0
	return nil
}

var errChanged = errors.New("the file changed while it was checked: nothing was enqueued; " +
	"run again once it is complete")

// again rewinds to the start. It fails if the file has changed since seen.
func (in *input) again(seen time.Time) error {
	now, err := in.changed()
	if err != nil {
		return fmt.Errorf("reading %s again: %w", in.path, err)
	}
	if !now.Equal(seen) {
		return errChanged
	}
	if _, err := in.file.Seek(in.start, io.SeekStart); err != nil {
		return fmt.Errorf("reading %s again: %w", in.path, err)
	}
	// Whatever is appended from now on has not been checked.
	in.r = io.LimitReader(in.file, in.read.Load())
	in.read.Store(0)
	return nil
}

func (in *input) changed() (time.Time, error) {
	info, err := in.file.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

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

// open opens the source: a file, standard input, or database rows. The Outbox is nil unless rows are taken over
// from one.
func (o *options) open(ctx context.Context, s cli.Streams) (*input, *postgres.Outbox, error) {
	if o.from == "" {
		in, err := openInput(s, o.file)
		return in, nil, err
	}
	from, err := config.FlagSecret("--from", o.from)
	if err != nil {
		return nil, nil, err
	}
	o.WarnOfPassword(s, "--from", o.from, "write ${NAME} in its place, for a variable, or ${file:PATH}")
	db, err := postgres.New(from.Reveal())
	if err != nil {
		return nil, nil, err
	}
	o.Warn(s, db.Warning())
	in := &input{path: "the query", unit: "row", close: func() { db.Close(context.Background()) }}
	o.read.Format = producer.NDJSON
	if o.outbox == "" {
		rows, err := db.Query(ctx, o.query, o.idColumn)
		in.r = rows
		return in, nil, err
	}
	in.path, in.r = "the outbox", bytes.NewReader(nil)
	box, err := postgres.NewOutbox(db, o.outbox)
	if err == nil && o.dryRun {
		in.r, err = box.Waiting(ctx)
		return in, nil, err
	}
	return in, box, err
}
