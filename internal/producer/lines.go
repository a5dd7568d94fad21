package producer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

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

// The encodings of a billing file.
const (
	UTF8        = "utf-8"
	Latin1      = "latin-1"      // ISO 8859-1
	Windows1252 = "windows-1252" // what Excel writes on Windows in Western Europe and America
)

// Encodings lists the encodings of a billing file; the first is the default.
func Encodings() []string { return []string{UTF8, Latin1, Windows1252} }

func charsetOf(encoding string) *charmap.Charmap {
	switch encoding {
	case Latin1:
		return charmap.ISO8859_1
	case Windows1252:
		return charmap.Windows1252
	}
	return nil
}

// decoded returns a line as UTF-8: the line itself if it is UTF-8 already.
func (r *Reader) decoded(raw []byte) ([]byte, error) {
	if r.charset == nil {
		err := checkText(raw)
		if err != nil && r.opt.Format == CSV {
			err = fmt.Errorf("%w; or say --encoding %s, if Excel wrote it, or %s", err, Windows1252, Latin1)
		}
		return raw, err
	}
	first := slices.IndexFunc(raw, func(c byte) bool { return c >= utf8.RuneSelf })
	if first < 0 {
		return raw, nil
	}
	if utf8.Valid(raw) {
		return nil, fmt.Errorf("byte %d begins a character of UTF-8, not of %s: leave --encoding out", first+1, r.opt.Encoding)
	}
	text := make([]byte, 0, len(raw)+bytes.Count(raw, []byte(" "))+8)
	for i, b := range raw {
		c := r.charset.DecodeByte(b)
		if c >= 0x80 && c < 0xa0 || c == utf8.RuneError {
			return nil, r.noCharacter(i)
		}
		text = utf8.AppendRune(text, c)
	}
	return text, nil
}

// noCharacter returns the error for a byte that decodes to a control character, which no billing file contains
// on purpose.
func (r *Reader) noCharacter(at int) error {
	if r.opt.Encoding == Latin1 {
		return fmt.Errorf("byte %d is not a character of %s: say --encoding %s", at+1, Latin1, Windows1252)
	}
	return fmt.Errorf("byte %d is not a character of %s: convert the file to UTF-8, from the encoding that it has", at+1, r.opt.Encoding)
}

// compact returns a JSON value without white space between its tokens. It copies only if there was some.
func (r *Reader) compact(value []byte) json.RawMessage {
	if !r.json.spaces {
		return value[:len(value):len(value)]
	}
	return appendCompact(make([]byte, 0, len(value)), value)
}

// appendCompact appends valid JSON without the white space between its tokens.
func appendCompact(dst, value []byte) []byte {
	inString := false
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case inString && c == '\\':
			dst = append(dst, c)
			i++
			c = value[i]
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// unquote returns the text of a valid JSON string.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return string(inner) // unreachable: the parser has validated it
	}
	return s
}

// appendQuoted appends s as a JSON string that escapes only what must be escaped.
func appendQuoted(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for len(s) > 0 {
		n := 0
		for n < len(s) && plain[s[n]] {
			n++
		}
		dst, s = append(dst, s[:n]...), s[n:]
		if len(s) == 0 {
			break
		}
		switch c := s[0]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		s = s[1:]
	}
	return append(dst, '"')
}
