package cli

import (
	"fmt"
	"io"
	"math"
	"math/big"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"spillway/internal/job"
)

// maxCell is the widest cell on a terminal, in characters; a pipe gets everything.
const maxCell = 60

// Whole is a cell that is never shortened: half of an amount is another amount.
type Whole string

// Table collects rows and writes them: aligned, with a header, relative times and shortened cells on a terminal;
// in a pipe with tabs, full values and no header.
type Table struct {
	out      io.Writer
	terminal bool
	now      time.Time
	rows     [][]string
}

// NewTable returns a table for s.Out. The titles are shown on a terminal only. now is what times are relative to.
func NewTable(s Streams, now time.Time, titles ...string) *Table {
	t := &Table{out: s.Out, terminal: s.OutTerminal, now: now}
	if t.terminal {
		t.rows = append(t.rows, titles)
	}
	return t
}

// Row adds one row. A time.Time is shown relative to now on a terminal and as RFC 3339 in a pipe; a zero time, like an
// empty text or nil, is "-" on a terminal and empty in a pipe. A time.Duration is rounded on a terminal.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = t.cell(c)
	}
	t.rows = append(t.rows, row)
}

func (t *Table) cell(c any) string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) { // it steers terminals, or turns what stands beside it around
			return ' '
		}
		return r
	}, t.text(c))
	if !t.terminal {
		return noFormula(c, text)
	}
	if text == "" {
		return "-"
	}
	if _, whole := c.(Whole); whole {
		return text
	}
	return shorten(text, maxCell)
}

// noFormula puts a ' before a text that a spreadsheet would take for a formula: ids and references are the words of others. Numbers,
// times and money stay as they are.
func noFormula(c any, text string) string {
	switch c.(type) {
	case Whole, time.Time, time.Duration:
		return text
	}
	if kind := reflect.ValueOf(c).Kind(); kind != reflect.String {
		return text
	}
	if begins := strings.TrimLeft(text, " "); begins != "" && strings.ContainsAny(begins[:1], "=+-@") {
		return "'" + text
	}
	return text
}

// Money is a cell of sums of money, which are in minor units by currency, and of how many jobs are without an amount: in units of
// the currencies on a terminal, in minor units in a pipe.
func (t *Table) Money(sums map[string]*big.Int, without int) Whole {
	if t.terminal {
		return Whole(job.MoneyText(sums, without))
	}
	return Whole(job.MinorText(sums, without))
}

func (t *Table) text(c any) string {
	switch v := c.(type) {
	case nil:
		return ""
	case time.Time:
		if v.IsZero() {
			return ""
		}
		if t.terminal {
			return Relative(v, t.now)
		}
		return v.UTC().Format(time.RFC3339Nano)
	case time.Duration:
		if t.terminal {
			return Short(v)
		}
		return v.String()
	}
	return fmt.Sprint(c)
}

// Flush writes the table and forgets its rows.
func (t *Table) Flush() error {
	var b strings.Builder
	widths := t.widths()
	for _, row := range t.rows {
		for i, cell := range row {
			last := i == len(row)-1
			b.WriteString(cell)
			switch {
			case last:
				b.WriteByte('\n')
			case t.terminal:
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			default:
				b.WriteByte('\t')
			}
		}
	}
	t.rows = nil
	if _, err := io.WriteString(t.out, b.String()); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

func (t *Table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// Relative says when t is, seen from now: "3m ago", "in 2h", "now".
func Relative(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d > 0:
		return "in " + Short(d)
	}
	return Short(-d) + " ago"
}

// Short says a duration in its two largest units, d being the largest: "2d4h", "3m20s", "1.5s", "20ms".
func Short(d time.Duration) string {
	if d < 0 {
		return "-" + Short(-max(d, -math.MaxInt64)) // the least duration has no opposite
	}
	day := 24 * time.Hour
	switch {
	case d >= day:
		return pair(d, day, time.Hour, "d", "h")
	case d >= time.Hour:
		return pair(d, time.Hour, time.Minute, "h", "m")
	case d >= time.Minute:
		return pair(d, time.Minute, time.Second, "m", "s")
	case d >= time.Second:
		return d.Truncate(100 * time.Millisecond).String()
	}
	return d.Truncate(time.Millisecond).String()
}

func pair(d, large, small time.Duration, l, s string) string {
	n, rest := d/large, d%large/small
	if rest == 0 {
		return fmt.Sprintf("%d%s", n, l)
	}
	return fmt.Sprintf("%d%s%d%s", n, l, rest, s)
}
