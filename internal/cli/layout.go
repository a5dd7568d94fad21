package cli

import (
	"slices"
	"strings"
)

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
