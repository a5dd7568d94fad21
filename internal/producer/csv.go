package producer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"spillway/internal/job"
)

// csvHeader is the parsed header row of a CSV file.
type csvHeader struct {
	raw    []byte
	names  []string
	keys   [][]byte // each column name as a JSON key, with its colon
	id     int      // column of the id
	route  int      // column of the route; -1: none
	row    [][]byte // fields of the current record, reused for each
	mapper *mapper  // maps records to payloads; nil: records are the payloads
}

// quoteState is the state of the CSV scanner at a byte. Only a quote at the start of a field opens a quoted
// field, so that an inch mark within a field breaks only its own line.
type quoteState int

const (
	fieldStart quoteState = iota
	unquoted
	quoted
	quoteSeen   // a quote within a quoted field: the end of the field, or the first of two
	quoteReturn // the carriage return after it
)

// after returns the state after the bytes of b.
func (q quoteState) after(b []byte, comma byte) quoteState {
	if q == fieldStart && bytes.IndexByte(b, '"') < 0 && b[len(b)-1] == '\n' {
		return fieldStart
	}
	for _, c := range b {
		q = q.next(c, comma)
	}
	return q
}

func (q quoteState) next(c, comma byte) quoteState {
	switch {
	case q == quoted && c == '"':
		return quoteSeen
	case q == quoted, q == quoteSeen && c == '"', q == fieldStart && c == '"':
		return quoted
	case c == comma, c == '\n':
		return fieldStart
	case q == quoteSeen && c == '\r':
		return quoteReturn
	}
	return unquoted
}

// readHeader reads the header row. Without a valid one, no record could be parsed.
func (r *Reader) readHeader() error {
	for {
		line, err := r.in.record()
		switch {
		case err == io.EOF:
			return usage("start it with the names of its columns", "the CSV file has no header row")
		case err != nil:
			return err
		case line.Err == nil && blank(line.Raw):
			continue
		case line.Err != nil:
			return usage("start the file with the names of its columns", "line %d: the header row: %v", line.Number, line.Err)
		}
		return r.useHeader(line)
	}
}

func (r *Reader) useHeader(line Line) error {
	wrong := func(hint string, err error) error {
		return usage(hint, "line %d: the header row: %v", line.Number, err)
	}
	text, err := r.text(line.Raw)
	if err != nil {
		return wrong("name the file's encoding with --encoding, or convert the file to UTF-8", err)
	}
	text = trimLineEnd(text)
	fields, err := splitRecord(nil, text, r.opt.Separator)
	if err != nil {
		return wrong("mend the header row", err)
	}
	h := &csvHeader{raw: line.Raw, route: -1}
	if err := h.name(fields); err != nil {
		return wrong("give each column a name of its own", err)
	}
	if h.id = slices.Index(h.names, r.opt.IDField); h.id < 0 {
		return wrong(r.missingHint(h.names, text), fmt.Errorf("no column is named %q, as %s says", r.opt.IDField, cmp.Or(r.opt.Told, "--id-field")))
	}
	if r.opt.RouteField != "" {
		if h.route = slices.Index(h.names, r.opt.RouteField); h.route < 0 {
			return wrong(theColumns(h.names), fmt.Errorf("no column is named %q, as --route-field says", r.opt.RouteField))
		}
	}
	if h.mapper = r.gateway.mapper; h.mapper != nil {
		if err := h.mapper.bind(h.names, h.id); err != nil {
			return wrong("mend "+cmp.Or(r.opt.Told, "the map in the configuration")+", or the header row; "+theColumns(h.names), err)
		}
	}
	r.csv = h
	return nil
}

// name sets the column names.
func (h *csvHeader) name(fields [][]byte) error {
	seen := make(map[string]int, len(fields))
	for i, f := range fields {
		name := string(f)
		if name == "" {
			return fmt.Errorf("column %d has no name", i+1)
		}
		if before, twice := seen[name]; twice {
			return fmt.Errorf("columns %d and %d are both named %s", before, i+1, show(f))
		}
		seen[name] = i + 1
		h.names = append(h.names, name)
		h.keys = append(h.keys, append(appendQuoted(nil, f), ':'))
	}
	return nil
}

// missingHint says what to do if there is no column for the id; a different separator may be the reason.
func (r *Reader) missingHint(names []string, header []byte) string {
	for _, other := range []byte(";,\t|") {
		fields, err := splitRecord(nil, header, other)
		if err != nil || other == r.opt.Separator || len(fields) == 1 {
			continue
		}
		isID := func(f []byte) bool { return string(f) == r.opt.IDField }
		if len(names) == 1 || slices.ContainsFunc(fields, isID) {
			return fmt.Sprintf("fields are separated by %s; this file seems to use another separator: say --separator %s",
				separatorName(r.opt.Separator), separatorFlag(other))
		}
	}
	return theColumns(names)
}

func separatorName(c byte) string {
	switch c {
	case ',':
		return "commas"
	case '\t':
		return "tabs"
	}
	return fmt.Sprintf("%q", c)
}

func separatorFlag(c byte) string {
	if c == '\t' {
		return "tab"
	}
	return fmt.Sprintf("'%c'", c)
}

func theColumns(names []string) string { return fmt.Sprintf("the columns are %s", shownNames(names)) }

func shownNames(names []string) string {
	const most = 20
	shown := make([]string, 0, most)
	for _, n := range names[:min(most, len(names))] {
		shown = append(shown, show([]byte(n)))
	}
	if len(names) > most {
		shown = append(shown, fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(shown, ", ")
}

// csvJob makes a job of one record. Without a map, its payload is an object of strings in header order.
func (r *Reader) csvJob(raw []byte) (job.Job, error) {
	h := r.csv
	record := trimLineEnd(raw)
	fields, err := splitRecord(h.row[:0], record, r.opt.Separator)
	if err != nil {
		return job.Job{}, h.explain(err, raw)
	}
	h.row = fields
	if len(fields) != len(h.names) {
		return job.Job{}, fmt.Errorf("has %d fields, but the header row has %d", len(fields), len(h.names))
	}
	j := r.flagJob()
	if j.ID = string(fields[h.id]); j.ID == "" {
		return job.Job{}, fmt.Errorf("no id: the field %q is empty", r.opt.IDField)
	}
	r.id = j.ID
	if h.route >= 0 {
		j.Route = cmp.Or(string(fields[h.route]), j.Route)
	}
	if h.mapper != nil {
		if j.Payload, err = h.mapper.record(fields); err != nil {
			return job.Job{}, err
		}
		return r.checked(j)
	}
	payload := make([]byte, 0, h.size(record))
	for i, f := range fields {
		payload = append(payload, ",{"[b2i(i == 0)])
		payload = append(payload, h.keys[i]...)
		payload = appendQuoted(payload, f)
	}
	j.Payload = append(payload, '}')
	return r.checked(j)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// size guesses the length of the payload.
func (h *csvHeader) size(record []byte) int {
	n := len(record) + 2
	for _, k := range h.keys {
		n += len(k) + 3
	}
	return n
}

// quoteError is an error in a record's quotes. field counts from 0.
type quoteError struct {
	field int
	what  string
}

// Error returns what is wrong, with the field's number instead of its name.
func (e *quoteError) Error() string { return fmt.Sprintf("field %d %s", e.field+1, e.what) }

const (
	notClosed  = "opens a quote that is not closed before the end of the file"
	strayQuote = "has a quote within, but does not start with one: put the field in quotes and write the quote twice"
	afterQuote = "goes on after its closing quote: a quote within a quoted field is written twice"
)

// explain adds the column's name and the number of lines in the record. Which of those lines were meant as
// records is unknown, so none is used: that could charge what was not asked for.
func (h *csvHeader) explain(err error, raw []byte) error {
	var q *quoteError
	if errors.As(err, &q) && q.field < len(h.names) {
		err = fmt.Errorf("field %d (%s) %s", q.field+1, show([]byte(h.names[q.field])), q.what)
	}
	if n := bytes.Count(trimLineEnd(raw), []byte("\n")); n > 0 {
		err = fmt.Errorf("%w; the %d lines after it stand within the quote and were not used either", err, n)
	}
	return err
}

// splitRecord appends the fields of a record to dst. Fields may alias record.
func splitRecord(dst [][]byte, record []byte, comma byte) ([][]byte, error) {
	for n := 0; ; n++ {
		if len(record) > 0 && record[0] == '"' {
			field, rest, err := quotedField(record, n, comma)
			if err != nil {
				return nil, err
			}
			dst = append(dst, field)
			if len(rest) == 0 {
				return dst, nil
			}
			record = rest[1:]
			continue
		}
		end := bytes.IndexByte(record, comma)
		field := record
		if end >= 0 {
			field = record[:end]
		}
		if bytes.IndexByte(field, '"') >= 0 {
			return nil, &quoteError{n, strayQuote}
		}
		dst = append(dst, field)
		if end < 0 {
			return dst, nil
		}
		record = record[end+1:]
	}
}

// quotedField reads the quoted field at the start of record. rest starts with a separator or is empty.
func quotedField(record []byte, n int, comma byte) (field, rest []byte, err error) {
	at, doubled := 1, false
	for {
		i := bytes.IndexByte(record[at:], '"')
		if i < 0 {
			return nil, nil, &quoteError{n, notClosed}
		}
		at += i + 1
		if at < len(record) && record[at] == '"' {
			at, doubled = at+1, true
			continue
		}
		break
	}
	field, rest = record[1:at-1], record[at:]
	if len(rest) > 0 && rest[0] != comma {
		return nil, nil, &quoteError{n, afterQuote}
	}
	if doubled {
		field = bytes.ReplaceAll(field, []byte(`""`), []byte(`"`))
	}
	return field, rest, nil
}
