package redisdb

import (
	"regexp"
	"slices"
	"strings"
)

var (
	constantName  = regexp.MustCompile(`^[A-Z][A-Z0-9_]+$`)
	constantValue = regexp.MustCompile(`^[0-9]+(?: [/^] [0-9]+)?$`)
)

// WithConstants returns fragments in which each use of a constant is its number. A constant is a local of the top level whose name has at least two letters, all capitals, and whose value is
// a number. Lua makes the functions of a script anew in each run, and looks for every local that one of them uses: that takes longer than a number in its place.
func WithConstants(fragments ...string) []string {
	values := map[string]string{}
	for _, f := range fragments {
		for line := range strings.Lines(f) {
			if of, ok := strings.CutPrefix(line, "local "); ok {
				defineConstants(values, of)
			}
		}
	}
	out := make([]string, len(fragments))
	for i, f := range fragments {
		var text strings.Builder
		for line := range strings.Lines(f) {
			if of, ok := strings.CutPrefix(line, "local "); !ok || !defineConstants(map[string]string{}, of) {
				line = replaceWords(line, values)
			}
			text.WriteString(line)
		}
		out[i] = text.String()
	}
	return out
}

// defineConstants adds the constants that a definition "NAME, NAME = number, number" has, and reports whether it is one.
func defineConstants(values map[string]string, definition string) bool {
	definition, _, _ = strings.Cut(definition, "--")
	left, right, _ := strings.Cut(strings.TrimSpace(definition), " = ")
	names, numbers := strings.Split(left, ", "), strings.Split(right, ", ")
	if len(names) != len(numbers) || slices.ContainsFunc(names, func(n string) bool { return !constantName.MatchString(n) }) ||
		slices.ContainsFunc(numbers, func(n string) bool { return !constantValue.MatchString(n) }) {
		return false
	}
	for i, n := range names {
		values[n] = numbers[i]
		if strings.Contains(numbers[i], " ") {
			values[n] = "(" + numbers[i] + ")"
		}
	}
	return true
}

// replaceWords replaces words of a line of Lua that are no fields, and stand in no string or comment.
func replaceWords(line string, by map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(line); {
		from := i
		switch c := line[i]; {
		case strings.HasPrefix(line[i:], "--"):
			i = len(line)
		case c == '\'' || c == '"':
			i = stringEnd(line, i)
		case isWord(c):
			for i < len(line) && isWord(line[i]) {
				i++
			}
			if value, ok := by[line[from:i]]; ok && (from == 0 || line[from-1] != '.') {
				out.WriteString(value)
				continue
			}
		default:
			i++
		}
		out.WriteString(line[from:i])
	}
	return out.String()
}
