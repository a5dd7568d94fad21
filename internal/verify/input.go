package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// mostLine is the longest line, in bytes: an error quotes a gateway, and an act lists ids.
const mostLine = 64 << 20

// text is a JSON string, number or boolean, as written. null is empty.
type text string

// UnmarshalJSON accepts scalars only.
func (t *text) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '"':
		return json.Unmarshal(b, (*string)(t))
	case '{', '[':
		return errors.New("it has parts, and should be a text, a number, true or false")
	case 'n':
		*t = ""
	default:
		*t = text(b)
	}
	return nil
}

// callLine is a line of a provider's log.
type callLine struct {
	At        text            `json:"at"`
	Gateway   text            `json:"gateway"`
	Key       text            `json:"key"`
	ID        text            `json:"id"`
	Status    text            `json:"status"`
	Charged   text            `json:"charged"`
	Amount    text            `json:"amount"`
	Currency  text            `json:"currency"`
	Reference text            `json:"reference"`
	Path      text            `json:"path"`
	Look      text            `json:"look"`
	Headers   map[string]text `json:"headers"`
}

// headerColumn is the prefix of a column name for a header.
const headerColumn = "header:"

func (l *callLine) column(name string) *text {
	switch name {
	case "at":
		return &l.At
	case "gateway":
		return &l.Gateway
	case "key":
		return &l.Key
	case "id":
		return &l.ID
	case "status":
		return &l.Status
	case "charged":
		return &l.Charged
	case "amount":
		return &l.Amount
	case "currency":
		return &l.Currency
	case "reference":
		return &l.Reference
	case "path":
		return &l.Path
	case "look":
		return &l.Look
	}
	return nil
}

// bookLine is a line of an exported list of jobs.
type bookLine struct {
	ID        text `json:"id"`
	Gateway   text `json:"gateway"`
	Batch     text `json:"batch"`
	Route     text `json:"route"`
	Priority  text `json:"priority"`
	Lane      text `json:"lane"`
	State     text `json:"state"`
	Reason    text `json:"reason"`
	Amount    text `json:"amount"`
	Currency  text `json:"currency"`
	Status    text `json:"status"`
	Reference text `json:"reference"`
	Replays   text `json:"replays"`
	Accepted  text `json:"accepted_at"`
	Called    text `json:"called_at"`
	Erased    text `json:"erased_at"`
	Settled   struct {
		As  text `json:"as"`
		Who text `json:"who"`
	} `json:"settled"`
}

func (l *bookLine) column(name string) *text {
	switch name {
	case "id":
		return &l.ID
	case "gateway":
		return &l.Gateway
	case "batch":
		return &l.Batch
	case "route":
		return &l.Route
	case "priority":
		return &l.Priority
	case "lane":
		return &l.Lane
	case "state":
		return &l.State
	case "reason":
		return &l.Reason
	case "amount":
		return &l.Amount
	case "currency":
		return &l.Currency
	case "status":
		return &l.Status
	case "reference":
		return &l.Reference
	case "replays":
		return &l.Replays
	case "accepted_at":
		return &l.Accepted
	case "called_at":
		return &l.Called
	case "erased_at":
		return &l.Erased
	case "settled_as":
		return &l.Settled.As
	case "settled_by":
		return &l.Settled.Who
	}
	return nil
}

// lines reads a file of NDJSON, or of CSV with a header, depending on its first character. of makes a line of
// JSON, or of CSV columns. Blank lines are skipped.
type lines[L any] struct {
	column func(*L, string) *text // nil: never CSV
	take   func(at Place, line *L) error
	bad    func(at Place, err error) error
	must   []string // columns that a CSV file needs
}

func (l lines[L]) read(ctx context.Context, in Input) error {
	r := bufio.NewReaderSize(in, runBuffer)
	first, err := begins(r)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return broken(in, err)
	case first == '{':
		return l.ndjson(ctx, in, r)
	case l.column == nil:
		return &WrongUse{in.Name + " is no NDJSON", "see docs/verify.md for the formats"}
	}
	return l.csv(ctx, in, r)
}

// begins returns the first character that is not blank, without consuming it.
func begins(r *bufio.Reader) (byte, error) {
	for n := 1; ; n++ {
		b, err := r.Peek(n)
		if len(b) < n {
			return 0, err
		}
		switch c := b[n-1]; c {
		case ' ', '\t', '\r', '\n', 0xef, 0xbb, 0xbf: // a byte order mark counts as blank
		default:
			return c, nil
		}
	}
}

func broken(in Input, err error) error { return fmt.Errorf("%s broke off: %w", in.Name, err) }

func (l lines[L]) ndjson(ctx context.Context, in Input, r *bufio.Reader) error {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, runBuffer), mostLine)
	for n := int64(1); scan.Scan(); n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		raw := bytes.TrimSpace(bytes.TrimPrefix(scan.Bytes(), []byte("\ufeff")))
		if len(raw) == 0 {
			continue
		}
		at, line := Place{in.Name, n}, new(L)
		err := json.Unmarshal(raw, line)
		if err != nil {
			err = badLine("it is no line of JSON that is understood: %v", err)
		} else {
			err = l.take(at, line)
		}
		if err := l.told(at, err); err != nil {
			return err
		}
	}
	if err := scan.Err(); err != nil {
		return broken(in, err)
	}
	return nil
}

func (l lines[L]) told(at Place, err error) error {
	if err == nil {
		return nil
	}
	return l.bad(at, err)
}

func (l lines[L]) csv(ctx context.Context, in Input, r *bufio.Reader) error {
	if mark, _ := r.Peek(3); bytes.Equal(mark, []byte("\ufeff")) {
		_, _ = r.Discard(3) // just seen
	}
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = -1
	head, err := rows.Read()
	if err != nil {
		return broken(in, err)
	}
	head = slices.Clone(head)
	for _, name := range l.must {
		if !slices.Contains(head, name) {
			return &WrongUse{fmt.Sprintf("%s is neither NDJSON nor a CSV file with the column %q", in.Name, name), "see docs/verify.md for the formats"}
		}
	}
	for n := 0; ; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && n%4096 == 0 {
			err = ctx.Err()
		}
		var parse *csv.ParseError
		at := Place{File: in.Name}
		switch {
		case errors.As(err, &parse):
			at.Line, err = int64(parse.StartLine), badLine("%v", parse.Err)
		case err != nil:
			return broken(in, err)
		default:
			number, _ := rows.FieldPos(0)
			at.Line = int64(number)
			err = l.row(at, head, row)
		}
		if err := l.told(at, err); err != nil {
			return err
		}
	}
}

func (l lines[L]) row(at Place, head, row []string) error {
	if len(row) != len(head) {
		return badLine("it has %d fields, and the header has %d", len(row), len(head))
	}
	line := new(L)
	for i, name := range head {
		if to := l.column(line, name); to != nil {
			*to = text(unquoted(row[i]))
		}
	}
	if c, is := any(line).(*callLine); is {
		for i, name := range head {
			if header, is := strings.CutPrefix(name, headerColumn); is {
				if c.Headers == nil {
					c.Headers = map[string]text{}
				}
				c.Headers[header] = text(row[i])
			}
		}
	}
	return l.take(at, line)
}

// unquoted removes the ' that an export puts before a text that a spreadsheet would take for a formula.
func unquoted(cell string) string {
	rest, is := strings.CutPrefix(cell, "'")
	if begins := strings.TrimLeft(rest, " "); is && begins != "" && strings.ContainsAny(begins[:1], "=+-@") {
		return rest
	}
	return cell
}
