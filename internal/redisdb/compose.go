package redisdb

import (
	"slices"
	"strings"
)

// Compose joins fragments, the last of which is the body, into the text of one script. It leaves out what is defined at the top of a fragment and
// used by nothing in the script: Redis makes every function anew each time that a script runs, and a record's layout alone has fifty.
func Compose(fragments ...string) string {
	body := fragments[len(fragments)-1]
	all := chunks(strings.Join(fragments[:len(fragments)-1], "\n"))
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

// use notes every word. A field of a table that is called like a function keeps that function in: too much rather than too little.
func use(used map[string]bool, tokens []string) {
	for _, t := range tokens {
		used[t] = true
	}
}

// chunk is one statement at the top of a fragment, with the comments behind it.
type chunk struct {
	text   string
	tokens []string
	names  []string // that it defines; none if it does something too, and so must stay
}

// chunks cuts a fragment up. A statement begins in the first column, and what follows it is indented or ends it.
func chunks(fragment string) (all []chunk) {
	for line := range strings.Lines(fragment) {
		if len(all) == 0 || begins(line) {
			all = append(all, chunk{})
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

// defined returns the names that a statement defines without doing anything else: a local function, or locals that call nothing.
func defined(tokens []string) (names []string) {
	if len(tokens) < 2 || tokens[0] != "local" {
		return nil
	}
	if tokens[1] == "function" {
		return tokens[2:3]
	}
	for i, t := range tokens[1:] { // "(" calls, and so does what follows a name directly
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

// luaTokens returns the words and signs of a text, without comments. A string is its first quote alone. Long brackets are not known.
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

// stringEnd returns where the string that begins at i is over.
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
