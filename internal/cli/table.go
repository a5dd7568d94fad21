package cli

import (
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
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

const (
	// tableGap is the columns between two cells.
	tableGap = 2
	// leastWrapped is the narrowest width of a column before other columns move below the row.
	leastWrapped = 24
	// restIndent is the indentation of cells below a row.
	restIndent = 2
	// restGap separates two cells below a row.
	restGap = "   "
	// nothing is an empty cell.
	nothing = "-"
)

// layout is the positions of a row's cells.
type layout struct {
	widths []int // of the columns that are side by side; a wider cell wraps
}

// fit formats rows so that no line is wider than width, with aligned columns. The titles, if any, are the first
// row. A width of 0 means any. No column becomes narrower than whole says.
func fit(titles []string, rows [][]string, width int, whole []int) string {
	if len(titles) > 0 {
		rows = append([][]string{titles}, rows...)
	}
	l := arrange(naturalWidths(rows), width, whole)
	var b strings.Builder
	for i, row := range rows {
		l.write(&b, row)
		if i > 0 || len(titles) == 0 {
			l.writeRest(&b, titles, row, width)
		}
	}
	return b.String()
}

// naturalWidths returns the width of each column without wrapping.
func naturalWidths(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cells(cell))
		}
	}
	return widths
}

// arrange puts all columns side by side, if necessary by narrowing the widest one; or else as many of the first
// ones as fit.
func arrange(widths []int, width int, whole []int) layout {
	total := -tableGap
	for _, w := range widths {
		total += w + tableGap
	}
	if width == 0 || total <= width {
		return layout{widths}
	}
	widest := slices.Index(widths, slices.Max(widths))
	if left := widths[widest] - (total - width); left >= max(leastWrapped, whole[widest]) {
		widths[widest] = left
		return layout{widths}
	}
	widths[0] = min(widths[0], width)
	beside, used := 1, widths[0]
	for beside < len(widths) && used+tableGap+widths[beside] <= width {
		used += tableGap + widths[beside]
		beside++
	}
	return layout{widths[:beside]}
}

// write writes the cells that are side by side, on several lines if one of them wraps.
func (l layout) write(b *strings.Builder, row []string) {
	wrapped, height := make([][]string, len(l.widths)), 1
	for i, width := range l.widths {
		wrapped[i] = wrapCell(row[i], width)
		height = max(height, len(wrapped[i]))
	}
	for h := range height {
		line := ""
		for i, width := range l.widths {
			cell := ""
			if h < len(wrapped[i]) {
				cell = wrapped[i][h]
			}
			line += cell + strings.Repeat(" ", width-cells(cell)+tableGap)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// writeRest writes the cells that do not fit below a row, each with its title. Empty cells are left out.
func (l layout) writeRest(b *strings.Builder, titles, row []string, width int) {
	indent, line := strings.Repeat(" ", restIndent), ""
	end := func() {
		if line != "" {
			b.WriteString(indent + strings.Join(wrapCell(line, width-2*restIndent), "\n"+indent+indent) + "\n")
		}
		line = ""
	}
	for i := len(l.widths); i < len(row); i++ {
		if row[i] == nothing {
			continue
		}
		item := row[i]
		if i < len(titles) {
			item = titled(titles[i], item, width-2*restIndent)
		}
		if line != "" && restIndent+cells(line)+len(restGap)+cells(item) > width {
			end()
		}
		if line != "" {
			line += restGap
		}
		line += item
	}
	end()
}

// titled puts the title before a cell. The cell's first word stays on the title's line if both fit; otherwise
// the cell starts on the next line.
func titled(title, cell string, width int) string {
	first, _, _ := strings.Cut(cell, " ")
	title = strings.ToLower(title) + ":"
	if cells(title)+1+cells(first) > width && cells(first) <= width {
		return title + " " + cell
	}
	return title + joint + cell
}

// longestWord returns the width of the longest part of a text without a line break opportunity.
func longestWord(text string) (most int) {
	for word := range strings.SplitSeq(text, " ") {
		most = max(most, cells(word))
	}
	return most
}

// wrapCell splits a cell into lines of at most width columns.
func wrapCell(cell string, width int) []string {
	if cells(cell) <= width {
		return []string{strings.ReplaceAll(cell, joint, " ")}
	}
	return fill(cell, max(width, 1))
}
