// Package producer is step 1 of 8: it reads a billing file as a stream of jobs, in constant memory, and reports
// for every unusable line why it can't be used.
package producer

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"spillway/internal/job"
	"spillway/internal/pan"
)

// Line is the result for one line, or for one CSV record, which may span several lines. Except for Rest, the
// caller may keep it.
type Line struct {
	Number int       // first physical line, counted from 1
	Last   int       // last physical line; for a line with Rest, the last that Raw holds
	Job    job.Job   // the job; valid only if Err is nil
	Raw    []byte    // as read, with its line end; only the beginning if it is too long
	Rest   io.Reader // the part of an overlong line after Raw, valid until the next call of Next; else nil
	Err    error     // why it can't be used, without the line number; never contains a value of the payload
	ID     string    // if Err is not nil and Options.IDField names the id: the id, if it is valid
}

// Reader reads the lines of a billing file.
type Reader struct {
	opt     Options
	in      *lines
	json    parser
	csv     *csvHeader   // nil for NDJSON
	batch   string       // the last line's batch, which usually is the next one's
	gateway gatewayCheck // the last gateway looked up, which usually is the next one's
	mappers map[string]*mapper
	// charset is the encoding of the file; nil for UTF-8.
	charset *charmap.Charmap
	// State of the current line:
	sealed []byte // its sealed payload, in quotes; nil if it has none
	paid   bool   // it has a plain payload
	mapped bool   // it says that its payload is already mapped
	id     string // its id, if Options.IDField names it
}

// New returns a Reader of r. It already reads the byte order mark and the header of a CSV file. Its errors
// carry job.CodeUsage (the options or the header can't be used) or job.CodeNotFound (no such gateway); a read
// error of r carries job.CodeFailed.
func New(r io.Reader, opt Options) (*Reader, error) {
	if opt.Format == "" {
		opt.Format = formatOfReader(r)
	}
	if err := opt.checkForm(); err != nil {
		return nil, err
	}
	opt.Separator = cmp.Or(opt.Separator, ',')
	rd := &Reader{opt: opt, in: newLines(r, opt.Separator), charset: charsetOf(opt.Encoding)}
	if err := rd.checkOptions(); err != nil {
		return nil, err
	}
	if err := rd.in.start(); err != nil {
		return nil, err
	}
	if opt.Format == CSV {
		if err := rd.readHeader(); err != nil {
			return nil, err
		}
	}
	return rd, nil
}

// One parses the whole of text, of any number of lines, as one job in the wrapped form. It returns the error of
// a line that can't be used, or the error of New for invalid options.
func One(text []byte, opt Options) (job.Job, error) {
	opt.Format = NDJSON
	r := &Reader{opt: opt}
	if err := r.checkOptions(); err != nil {
		return job.Job{}, err
	}
	j, err := r.parse(text)
	return j, masked(err)
}

// Header returns the header row of a CSV file as read, or nil.
func (r *Reader) Header() []byte {
	if r.csv == nil {
		return nil
	}
	return r.csv.raw
}

// Number returns the number of the last physical line read so far, including lines of a Rest that was read.
func (r *Reader) Number() int { return r.in.number }

// Next returns the next line that is not blank, whether it is a job or not. At the end it returns io.EOF. Any
// other error means that reading the input failed, and carries job.CodeFailed. A line cut off by such a failure
// is not returned.
func (r *Reader) Next() (Line, error) {
	for {
		line, err := r.record()
		if err != nil {
			return Line{}, err
		}
		if line.Err == nil && blank(line.Raw) {
			continue
		}
		if line.Err == nil {
			r.id = ""
			if line.Job, line.Err = r.parse(line.Raw); line.Err != nil && job.CheckID(r.id) == nil {
				line.ID = pan.MaskString(r.id)
			}
			line.Err = masked(line.Err)
		}
		return line, nil
	}
}

func (r *Reader) record() (Line, error) {
	if r.csv != nil {
		return r.in.record()
	}
	return r.in.line()
}

func (r *Reader) parse(raw []byte) (job.Job, error) {
	raw, err := r.text(raw)
	if err != nil {
		return job.Job{}, err
	}
	switch {
	case r.csv != nil:
		return r.csvJob(raw)
	case r.opt.IDField != "":
		return r.plainJob(raw)
	}
	return r.wrappedJob(raw)
}

// text returns a line as UTF-8, or why it is not.
func (r *Reader) text(raw []byte) ([]byte, error) {
	switch {
	case r.charset != nil:
		return r.decoded(raw)
	case utf8.Valid(raw):
		return raw, nil
	}
	err := checkText(raw)
	if r.opt.Format == CSV {
		err = fmt.Errorf("%w; or say --encoding %s, if Excel wrote it, or %s", err, Windows1252, Latin1)
	}
	return raw, err
}

// gatewayCheck caches the last results of Options.Gateways, Options.Amount and Options.Map.
type gatewayCheck struct {
	name   string
	max    int64
	amount job.AmountRule
	cards  job.CardRule
	mapper *mapper      // nil: records are the payloads
	route  string       // default route, of jobs that name none
	lanes  *job.LaneKey // nil: no lanes
}

var (
	errNoGateway    = errors.New(`no gateway: name one in the line, as "gateway", or for all of them with -g`)
	errEmptyGateway = errors.New(`gateway is empty: name one, or leave the key out`)
)

// maxCost returns the highest cost that the gateway's limits can ever grant; 0 means any.
func (r *Reader) maxCost(gateway string) (int64, error) {
	if gateway == "" {
		return 0, errNoGateway
	}
	if r.gateway.name == gateway {
		return r.gateway.max, nil
	}
	if err := job.CheckGateway(gateway); err != nil {
		return 0, err
	}
	var most int64
	if r.opt.Gateways != nil {
		var ok bool
		if most, ok = r.opt.Gateways(gateway); !ok {
			return 0, fmt.Errorf("no gateway %q is configured", gateway)
		}
	}
	r.gateway = gatewayCheck{name: gateway, max: most}
	if r.opt.Amount != nil {
		r.gateway.amount = r.opt.Amount(gateway)
	}
	if r.opt.Cards != nil {
		r.gateway.cards = r.opt.Cards(gateway)
	}
	if r.opt.Lanes != nil {
		r.gateway.lanes = r.opt.Lanes(gateway)
	}
	r.gateway.mapper = r.mapperOf(gateway)
	if r.opt.RouteOf != nil {
		var err error
		if r.gateway.route, err = r.opt.RouteOf(gateway, ""); err != nil {
			return 0, err
		}
	}
	return most, nil
}

const (
	readSize = 64 << 10
	slabSize = 64 << 10
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
