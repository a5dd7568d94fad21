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

// Uncut is a text that is never shortened: an id of which the end is missing can't be typed again.
type Uncut string

// Table collects rows and writes them: aligned, with a header, relative times and shortened cells on a terminal;
// in a pipe with tabs, full values and no header. No line is wider than a terminal whose width is known: the widest column wraps
// between words, or else what finds no room stands below its row, with its title.
type Table struct {
	out      io.Writer
	terminal bool
	width    int // of the terminal, in columns; 0 means unknown: lines are as long as what is in them
	now      time.Time
	titles   []string
	rows     [][]string
	whole    []int // by column: how wide the longest part is at which a Whole does not break
}

// NewTable returns a table for s.Out. The titles are shown on a terminal only. now is what times are relative to.
func NewTable(s Streams, now time.Time, titles ...string) *Table {
	return &Table{out: s.Out, terminal: s.OutTerminal, width: s.OutWidth, now: now, titles: titles}
}

// Row adds one row. A time.Time is shown relative to now on a terminal and as RFC 3339 in a pipe; a zero time, like an
// empty text or nil, is "-" on a terminal and empty in a pipe. A time.Duration is rounded on a terminal.
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
		if !unicode.IsPrint(r) && !(t.terminal && string(r) == joint) { // it steers terminals, or turns what stands beside it around
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
func (t *Table) Money(of job.Totals) Whole {
	if t.terminal { // a line breaks between currencies, not behind one
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

// Flush writes the table, if it has rows, and forgets them: what comes after is aligned for itself, under a header of its own.
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
