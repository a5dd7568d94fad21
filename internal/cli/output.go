package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Output is a file that a flag names, for content that others must not read.
type Output struct {
	Path, Flag string
	// Input is the command's input, which must not be overwritten; nil: not a file. InputIs is its name for
	// people.
	Input   *os.File
	InputIs string
	// Holds says what is in the file, and why it must not go elsewhere: "rejects hold payloads".
	Holds string
	// File is the open file; nil until Begin, unless it is a device or a pipe.
	File *os.File
}

// Check checks that the file can be written, without changing it: a command that fails early keeps the last
// run's file. A device or pipe is opened at once. A symbolic link is not followed. An error has code usage.
func (o *Output) Check() error {
	const hint = "name a file that can be written"
	info, err := os.Stat(o.Path)
	if err == nil && o.Input != nil && info.Mode().IsRegular() {
		if theirs, err := o.Input.Stat(); err == nil && os.SameFile(info, theirs) {
			return Usage("name another file", "%s would write over %s itself", o.Flag, o.InputIs)
		}
	}
	if err == nil && !info.Mode().IsRegular() {
		if o.File, err = os.OpenFile(o.Path, os.O_WRONLY, 0); err != nil {
			return Usage(hint, "can't write %s: %v", o.Flag, err)
		}
		return nil
	}
	if link, err := os.Lstat(o.Path); err == nil && link.Mode()&fs.ModeSymlink != 0 {
		return Usage("name the file that the link leads to", "can't write %s: %s is a symbolic link, and %s: they go where they are told to, and nowhere else", o.Flag, o.Path, o.Holds)
	}
	if err := writable(o.Path); err != nil {
		return Usage(hint, "can't write %s: %v", o.Flag, err)
	}
	return nil
}

// writable returns why a regular file can't be written or replaced, or nil.
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

// hiddenBeside creates an empty file in the folder of another one, which nobody else may read.
func hiddenBeside(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
}

// Begin replaces the last run's file by an empty one. It is a new file: readers of the old one see nothing of
// what is written now, and a hard link to it keeps the old content.
func (o *Output) Begin() error {
	if o.File != nil {
		return nil
	}
	f, err := hiddenBeside(o.Path)
	if err != nil {
		return err
	}
	o.File = f
	if err := os.Rename(f.Name(), o.Path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
