package cli

import (
	"strings"

	"github.com/rivo/uniseg"
)

const (
	// joint is a space at which no line breaks. It is written as an ordinary one.
	joint = "\u00a0"
	// leastWidth is the narrowest that a text is wrapped to, in columns: below it words break everywhere.
	leastWidth = 20
)

// cells is how many columns a text takes on a terminal.
func cells(text string) int { return uniseg.StringWidth(text) }

// Wrap breaks a line between words into lines of at most width columns, of which all but the first begin with indent spaces. What is in
// double quotes stays together where a line has room for it. A word that is longer than a line breaks where the line ends. Widths below 20
// count as 20.
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

// together joins the words that stand in double quotes, where a line has room for them.
func together(text string, width int) string {
	parts := strings.Split(text, `"`)
	for i := 1; i+1 < len(parts); i += 2 {
		if cells(parts[i])+2 <= width {
			parts[i] = strings.ReplaceAll(parts[i], " ", joint)
		}
	}
	return strings.Join(parts, `"`)
}

// fill puts as many words on each line as there is room for. There is always one line.
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

// split cuts a word after at most width columns, and never within what a reader takes for one character.
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
