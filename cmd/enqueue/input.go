package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"spillway/internal/cli"
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
