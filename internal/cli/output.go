package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode"
	"unicode/utf16"
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

// WriteJSON writes v as one JSON document on one line. Called for each item, it writes a list with one line
// each. <, > and & are not escaped. Unprintable characters are, so that they can't control a terminal or
// reverse text.
func WriteJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing the result as JSON: %w", err)
	}
	if _, err := w.Write(escaped(b.Bytes())); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// escaped escapes what is neither printable nor the document's line end. JSON has non-ASCII characters only in
// strings.
func escaped(document []byte) []byte {
	if !bytes.ContainsFunc(document, hidden) {
		return document
	}
	out := make([]byte, 0, len(document)+16)
	for _, r := range string(document) {
		switch low, high := utf16.EncodeRune(r); {
		case !hidden(r):
			out = append(out, string(r)...)
		case r > 0xffff:
			out = fmt.Appendf(out, `\u%04x\u%04x`, low, high)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

func hidden(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }

// CSV writes rows for spreadsheets and programs, after a header: what Table writes to a pipe, with commas and
// quotes (RFC 4180). A text that a spreadsheet would take for a formula gets a ' before it.
type CSV struct {
	out   *csv.Writer
	cells Table
}

// NewCSV returns a CSV whose header has been written.
func NewCSV(out io.Writer, titles ...string) (*CSV, error) {
	c := &CSV{out: csv.NewWriter(out)}
	cells := make([]any, len(titles))
	for i, title := range titles {
		cells[i] = title
	}
	return c, c.Row(cells...)
}

// Row writes one row.
func (c *CSV) Row(cells ...any) error {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = c.cells.cell(cell)
	}
	return unwritten(c.out.Write(row))
}

// Flush writes buffered rows.
func (c *CSV) Flush() error {
	c.out.Flush()
	return unwritten(c.out.Error())
}

func unwritten(err error) error {
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
