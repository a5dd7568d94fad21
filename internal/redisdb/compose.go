package redisdb

import (
	"slices"
	"strings"
	"sync"
)

// Compose joins fragments, the last of which is the body, into the text of one script. It omits top-level definitions
// that the script does not use, because Redis creates every function again each time a script runs, and a record's
// layout alone has fifty.
func Compose(fragments ...string) string {
	body := fragments[len(fragments)-1]
	var all []statement
	for _, f := range fragments[:len(fragments)-1] {
		all = append(all, statementsOf(f)...)
	}
	kept := make([]bool, len(all))
	used := map[string]bool{}
	use(used, luaTokens(body))
	for more := true; more; {
		more = false
		for i, c := range all {
			if !kept[i] && (len(c.names) == 0 || slices.ContainsFunc(c.names, func(name string) bool { return used[name] })) {
				kept[i], more = true, true
				use(used, c.tokens)
			}
		}
	}
	var text strings.Builder
	for i, c := range all {
		if kept[i] {
			text.WriteString(c.text)
		}
	}
	return text.String() + body
}

// use marks every word as used, and every field of a table together with its table. A field with the name of a local
// function keeps that function, which is harmless.
func use(used map[string]bool, tokens []string) {
	for i, t := range tokens {
		used[t] = true
		if i > 1 && tokens[i-1] == "." {
			used[tokens[i-2]+"."+t] = true
		}
	}
}

// statement is one top-level statement of a fragment, with the comments after it.
type statement struct {
	text   string
	tokens []string
	names  []string // names that it defines; empty if it does something else, too, and so must be kept
}

// fragmentStatements has the statements of each fragment: one is part of many scripts.
var fragmentStatements sync.Map

func statementsOf(fragment string) []statement {
	if known, ok := fragmentStatements.Load(fragment); ok {
		return known.([]statement)
	}
	all := statements(fragment + "\n")
	if len(all) > 0 && len(all[0].tokens) == 0 { // the comment at its head
		all = all[1:]
	}
	fragmentStatements.Store(fragment, all)
	return all
}

// statements splits a fragment. A statement begins in the first column; its other lines are indented, or end it.
func statements(fragment string) (all []statement) {
	for line := range strings.Lines(fragment) {
		if len(all) == 0 || begins(line) {
			all = append(all, statement{})
		}
		all[len(all)-1].text += line
	}
	for i := range all {
		all[i].tokens = luaTokens(all[i].text)
		all[i].names = defined(all[i].tokens)
	}
	return all
}

func begins(line string) bool {
	if line[0] == '-' || !isWord(line[0]) {
		return false
	}
	first := luaTokens(line)
	return len(first) > 0 && !slices.Contains([]string{"end", "else", "elseif", "until"}, first[0])
}

// defined returns the names that a statement defines, if it does nothing else: a local function, a function in a table
// (TABLE.NAME), or locals without calls.
func defined(tokens []string) (names []string) {
	if len(tokens) > 3 && tokens[0] == "function" && tokens[2] == "." {
		return []string{tokens[1] + "." + tokens[3]}
	}
	if len(tokens) < 2 || tokens[0] != "local" {
		return nil
	}
	if tokens[1] == "function" {
		return tokens[2:3]
	}
	for i, t := range tokens[1:] { // "(" is a call, and so is a value that directly follows a name
		if t == "(" || isWord(tokens[i][0]) && strings.Contains(`'"{`, t) {
			return nil
		}
	}
	for i := 1; i < len(tokens); i += 2 {
		names = append(names, tokens[i])
		if i+1 < len(tokens) && tokens[i+1] != "," {
			break
		}
	}
	return names
}

// luaTokens returns the words and signs of a text, without comments. A string is reduced to its first quote. Long
// brackets are not supported.
func luaTokens(text string) (tokens []string) {
	for i := 0; i < len(text); {
		from := i
		switch c := text[i]; {
		case strings.HasPrefix(text[i:], "--"):
			i = lineEnd(text, i)
			continue
		case c == '\'' || c == '"':
			i = stringEnd(text, i)
			tokens = append(tokens, text[from:from+1])
			continue
		case isWord(c):
			for i < len(text) && isWord(text[i]) {
				i++
			}
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		default:
			i++
		}
		tokens = append(tokens, text[from:i])
	}
	return tokens
}

func lineEnd(text string, i int) int {
	if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
		return i + n
	}
	return len(text)
}

// stringEnd returns the end of the string that begins at i.
func stringEnd(text string, i int) int {
	for quote := text[i]; ; {
		switch i++; {
		case i >= len(text):
			return i
		case text[i] == '\\':
			i++
		case text[i] == quote:
			return i + 1
		}
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
