package producer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"spillway/internal/job"
)

const (
	readSize = 64 << 10
	slabSize = 64 << 10
)

var (
	errLongLine   = fmt.Errorf("the line is longer than %d bytes, the most that a job may have", job.MaxLine)
	errLongRecord = fmt.Errorf("the record is longer than %d bytes, the most that a job may have: is a quote not closed?", job.MaxLine)
)

// lines splits a stream into lines. It never holds more than one line, of at most job.MaxLine bytes, plus one
// read.
type lines struct {
	r      *bufio.Reader
	number int    // lines started
	fresh  bool   // the next byte begins a line
	slab   []byte // short lines are copied into it one after the other, to save allocations
	rest   *rest  // of the last line returned; skipped before the next line
	comma  byte   // separator of CSV fields
}

func newLines(r io.Reader, comma byte) *lines {
	return &lines{r: bufio.NewReaderSize(r, readSize), fresh: true, comma: comma}
}

// start skips a byte order mark and refuses input that is certainly not a billing file.
func (l *lines) start() error {
	head, err := l.r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return broken(err)
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		_, _ = l.r.Discard(3)
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return usage("convert it first: iconv -f UTF-16 -t UTF-8", "the file is UTF-16, not UTF-8")
	case bytes.HasPrefix(head, []byte("\x1f\x8b")), bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")),
		bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return usage("unpack it first, as in: gunzip -c november.ndjson.gz | enqueue -f -", "the file is compressed")
	}
	return nil
}

// line returns the next physical line.
func (l *lines) line() (Line, error) { return l.next(false) }

// record returns the next CSV record, which spans several physical lines if its quotes do.
func (l *lines) record() (Line, error) { return l.next(true) }

func (l *lines) next(csv bool) (Line, error) {
	if l.rest != nil {
		if _, err := io.Copy(io.Discard, l.rest); err != nil {
			return Line{}, err
		}
		l.rest = nil
	}
	end := ending{csv: csv, comma: l.comma}
	frag, err := l.fragment()
	if err == io.EOF {
		return Line{}, io.EOF
	}
	line := Line{Number: l.number}
	for err == nil {
		full := end.reached(frag)
		line.Raw = l.add(line.Raw, frag, full)
		line.Last = l.number
		if contentLength(line.Raw) > job.MaxLine {
			line.Err = end.tooLong()
		}
		if full {
			return line, nil
		}
		if line.Err != nil {
			l.rest = &rest{in: l, end: end}
			line.Rest = l.rest
			return line, nil
		}
		frag, err = l.fragment()
	}
	if err != io.EOF {
		return Line{}, err
	}
	return line, nil
}

// add appends a fragment to a line. A line of only one fragment goes to the slab.
func (l *lines) add(raw, frag []byte, full bool) []byte {
	if raw != nil || !full || len(frag) > slabSize/4 {
		return append(raw, frag...)
	}
	if cap(l.slab)-len(l.slab) < len(frag) {
		l.slab = make([]byte, 0, slabSize)
	}
	from := len(l.slab)
	l.slab = append(l.slab, frag...)
	return l.slab[from:len(l.slab):len(l.slab)]
}

// fragment returns the bytes up to the next line end, or as many as the buffer holds. They are valid until the
// next call. At the end of the stream it returns the last bytes, then io.EOF. If the stream breaks, the last
// incomplete line is not returned, because its continuation is unknown.
func (l *lines) fragment() ([]byte, error) {
	frag, err := l.r.ReadSlice('\n')
	switch {
	case err == nil, errors.Is(err, bufio.ErrBufferFull):
	case err != io.EOF:
		return nil, broken(err)
	case len(frag) == 0:
		return nil, io.EOF
	}
	if l.fresh {
		l.number++
	}
	l.fresh = frag[len(frag)-1] == '\n'
	return frag, nil
}

// ending finds the end of a line or record.
type ending struct {
	csv   bool
	comma byte
	quote quoteState
}

// reached reports whether the line or record ends with this fragment.
func (e *ending) reached(frag []byte) bool {
	atLineEnd := frag[len(frag)-1] == '\n'
	if !e.csv {
		return atLineEnd
	}
	e.quote = e.quote.after(frag, e.comma)
	return atLineEnd && e.quote != quoted
}

func (e *ending) tooLong() error {
	if e.quote == quoted {
		return errLongRecord
	}
	return errLongLine
}

// rest reads the part of an overlong line that is not held in memory.
type rest struct {
	in   *lines
	end  ending
	frag []byte
	done bool
}

// Read implements io.Reader up to the end of the line.
func (r *rest) Read(p []byte) (int, error) {
	for len(r.frag) == 0 {
		if r.done {
			return 0, io.EOF
		}
		frag, err := r.in.fragment()
		if err != nil {
			r.done = err == io.EOF
			return 0, err
		}
		r.frag, r.done = frag, r.end.reached(frag)
	}
	n := copy(p, r.frag)
	r.frag = r.frag[n:]
	return n, nil
}

// contentLength returns the length of a line without its line end.
func contentLength(raw []byte) int { return len(trimLineEnd(raw)) }

func trimLineEnd(raw []byte) []byte {
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	return bytes.TrimSuffix(raw, []byte("\r"))
}

func blank(raw []byte) bool {
	for _, c := range raw {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return false
		}
	}
	return true
}

func broken(err error) error {
	code := job.CodeFailed
	if e, ok := errors.AsType[*job.Error](err); ok {
		code = e.Code
	}
	return &job.Error{
		Code: code, Message: "the input broke off", Err: err,
		Hint: "mend it and run again: jobs that are in already are counted as duplicate",
	}
}
