package cli

import (
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode"

	"spillway/internal/job"
)

// maxCell is the widest cell on a terminal, in characters; a pipe gets everything.
const maxCell = 60

// Whole is a cell that is never shortened: half of an amount is another amount.
type Whole string

// Uncut is a text that is never shortened: an id without its end can't be typed again.
type Uncut string

// Table collects rows and writes them. On a terminal they are aligned, with a header, relative times and
// shortened cells; in a pipe they have tabs, full values and no header. No line is wider than a terminal of
// known width: the widest column wraps between words, or else cells that do not fit are below their row, with
// their titles.
type Table struct {
	out      io.Writer
	terminal bool
	width    int // of the terminal, in columns; 0 means unknown: lines are not broken
	now      time.Time
	titles   []string
	rows     [][]string
	whole    []int // by column: width of the longest part at which a Whole does not break
}

// NewTable returns a table for s.Out. The titles are shown only on a terminal. now is what times are relative
// to.
func NewTable(s Streams, now time.Time, titles ...string) *Table {
	return &Table{out: s.Out, terminal: s.OutTerminal, width: s.OutWidth, now: now, titles: titles}
}

// Row adds one row. A time.Time is shown relative to now on a terminal and as RFC 3339 in a pipe; a zero time,
// like an empty text or nil, is "-" on a terminal and empty in a pipe. A time.Duration is rounded on a
// terminal.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = t.cell(c)
		if i == len(t.whole) {
			t.whole = append(t.whole, 0)
		}
		if _, is := c.(Whole); is {
			t.whole[i] = max(t.whole[i], longestWord(row[i]))
		}
	}
	t.rows = append(t.rows, row)
}

func (t *Table) cell(c any) string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !(t.terminal && string(r) == joint) { // it controls terminals, or reverses the text next to it
			return ' '
		}
		return r
	}, t.text(c))
	if !t.terminal {
		return noFormula(c, text)
	}
	if text == "" {
		return nothing
	}
	switch c.(type) {
	case Whole, Uncut:
		return text
	}
	return shorten(text, maxCell)
}

// noFormula puts a ' before a text that a spreadsheet would take for a formula, because ids and references come
// from others. Numbers, times and money are unchanged.
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

// Money returns a cell with sums of money, in minor units by currency, and the number of jobs without an
// amount: in units of the currencies on a terminal, in minor units in a pipe.
func (t *Table) Money(of job.Totals) Whole {
	if t.terminal { // a line breaks between currencies, not after one
		return Whole(strings.ReplaceAll(strings.ReplaceAll(of.Money(), " ", joint), ","+joint, ", "))
	}
	return Whole(job.MinorText(of.Amount, of.NoAmount))
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
	case int, int64:
		if t.terminal {
			return job.CountText(reflect.ValueOf(v).Int())
		}
	}
	return fmt.Sprint(c)
}

// Flush writes the table, if it has rows, and clears it: later rows are aligned separately, under their own
// header.
func (t *Table) Flush() error {
	if _, err := io.WriteString(t.out, t.lines()); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	t.rows = nil
	return nil
}

func (t *Table) lines() string {
	var b strings.Builder
	if !t.terminal {
		for _, row := range t.rows {
			b.WriteString(strings.Join(row, "\t") + "\n")
		}
		return b.String()
	}
	if len(t.rows) == 0 {
		return ""
	}
	return fit(t.titles, t.rows, t.width, t.whole)
}

func shorten(s string, most int) string {
	if cells(s) <= most {
		return s
	}
	head, _ := split(s, most-1)
	return head + "…"
}

// Relative describes t relative to now: "3m ago", "in 2h", "now".
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

// Short formats a duration in its two largest units, d being the largest: "2d4h", "3m20s", "1.5s", "20ms".
func Short(d time.Duration) string {
	if d < 0 {
		return "-" + Short(-max(d, -math.MaxInt64)) // the smallest duration has no negation
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
