package cli

import (
	"strings"

	"github.com/rivo/uniseg"
)

const (
	// joint is a space at which no line breaks. It is written as an ordinary one.
	joint = "\u00a0"
	// leastWidth is the smallest width for wrapping, in columns: below it words would break everywhere.
	leastWidth = 20
)

// cells returns how many columns a text takes on a terminal.
func cells(text string) int { return uniseg.StringWidth(text) }

// Wrap breaks a line between words into lines of at most width columns; all but the first are indented by
// indent spaces. Text in double quotes stays together if it fits on a line. A word longer than a line is
// broken. Widths below 20 count as 20.
func Wrap(line string, width, indent int) []string {
	width = max(width, leastWidth)
	if cells(line) <= width {
		return []string{line}
	}
	first := len(line) - len(strings.TrimLeft(line, " "))
	lines := fill(together(line[first:], width-indent-first), width-indent-first)
	for i, l := range lines {
		lines[i] = strings.Repeat(" ", first) + l
		if i > 0 {
			lines[i] = strings.Repeat(" ", indent) + lines[i]
		}
	}
	return lines
}

// together joins the words in double quotes, if they fit on a line.
func together(text string, width int) string {
	parts := strings.Split(text, `"`)
	for i := 1; i+1 < len(parts); i += 2 {
		if cells(parts[i])+2 <= width {
			parts[i] = strings.ReplaceAll(parts[i], " ", joint)
		}
	}
	return strings.Join(parts, `"`)
}

// fill puts as many words as fit on each line. There is always at least one line.
func fill(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' }) {
		switch {
		case line == "":
			line = word
		case cells(line)+1+cells(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
		for cells(line) > width {
			head, rest := split(line, width)
			lines, line = append(lines, head), rest
		}
	}
	lines = append(lines, line)
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(l, joint, " ")
	}
	return lines
}

// split cuts a word after at most width columns, never within a user-perceived character.
func split(word string, width int) (head, rest string) {
	rest, state, taken := word, -1, 0
	for rest != "" {
		one, after, columns, next := uniseg.FirstGraphemeClusterInString(rest, state)
		if taken += columns; taken > width && head != "" {
			break
		}
		head, rest, state = head+one, after, next
	}
	return head, rest
}
