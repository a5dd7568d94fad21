package producer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxDepth bounds nesting. Redis's JSON decoder gives up at 1000.
const maxDepth = 500

// manyKeys is the number of keys in an object from which on they are looked up in a map.
const manyKeys = 16

// parser validates one JSON text: the grammar of RFC 8259, no duplicate keys in an object, no unpaired
// surrogates. encoding/json silently lets the last of two equal keys win; if they are amounts, it is unknown
// which was meant.
type parser struct {
	in      []byte
	pos     int
	spaces  bool     // there was white space between tokens
	keys    [][]byte // the keys of the open objects, outermost first
	members []member // the members of the outermost object
}

// member is one key and value of the outermost object.
type member struct {
	key   []byte // without quotes and escapes
	value []byte // as written
}

// object parses text as one JSON object and nothing else, and fills p.members.
func (p *parser) object(text []byte) error {
	p.in, p.pos = text, 0
	p.keys, p.members = p.keys[:0], p.members[:0]
	p.space()
	p.spaces = false
	switch {
	case p.peek() == '[':
		return errors.New(`not an object but an array: write one object a line, as "jq -c '.[]'" does`)
	case p.peek() != '{':
		return errors.New("not a JSON object")
	}
	if err := p.value(0); err != nil {
		return err
	}
	within := p.spaces
	p.space()
	p.spaces = within
	if p.pos != len(p.in) {
		return p.fail("something follows the object")
	}
	return nil
}

func (p *parser) value(depth int) error {
	switch c := p.peek(); {
	case c == '{':
		return p.objectAt(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		_, _, err := p.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case c == 't':
		return p.literal("true")
	case c == 'f':
		return p.literal("false")
	case c == 'n':
		return p.literal("null")
	}
	return p.fail("a value is expected")
}

func (p *parser) objectAt(depth int) error {
	if depth >= maxDepth {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	base, seen := len(p.keys), map[string]struct{}(nil)
	p.pos++
	p.space()
	for first := true; ; first = false {
		if first && p.peek() == '}' {
			break
		}
		key, err := p.key()
		if err != nil {
			return err
		}
		if seen, err = p.once(key, base, seen); err != nil {
			return err
		}
		start := p.pos
		if err := p.value(depth + 1); err != nil {
			return err
		}
		if depth == 0 {
			p.members = append(p.members, member{key, p.in[start:p.pos]})
		}
		if more, err := p.more('}'); err != nil {
			return err
		} else if !more {
			break
		}
	}
	p.pos++
	p.keys = p.keys[:base]
	return nil
}

// key reads a key, its colon and the white space around it.
func (p *parser) key() ([]byte, error) {
	if p.peek() != '"' {
		return nil, p.fail("a key in quotes is expected")
	}
	raw, escaped, err := p.str()
	if err != nil {
		return nil, err
	}
	key := raw[1 : len(raw)-1]
	if escaped {
		key = []byte(unquote(raw))
	}
	p.space()
	if p.peek() != ':' {
		return nil, p.fail("a colon is expected")
	}
	p.pos++
	p.space()
	return key, nil
}

// once records a key of the innermost object, and fails if the object has it already.
func (p *parser) once(key []byte, base int, seen map[string]struct{}) (map[string]struct{}, error) {
	mine := p.keys[base:]
	p.keys = append(p.keys, key)
	if seen == nil && len(mine) < manyKeys {
		for _, k := range mine {
			if bytes.Equal(k, key) {
				return nil, fmt.Errorf("the key %s stands twice in one object", show(key))
			}
		}
		return nil, nil
	}
	if seen == nil {
		seen = make(map[string]struct{}, 4*manyKeys)
		for _, k := range mine {
			seen[string(k)] = struct{}{}
		}
	}
	if _, twice := seen[string(key)]; twice {
		return nil, fmt.Errorf("the key %s stands twice in one object", show(key))
	}
	seen[string(key)] = struct{}{}
	return seen, nil
}

func (p *parser) array(depth int) error {
	if depth >= maxDepth {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	p.pos++
	p.space()
	if p.peek() == ']' {
		p.pos++
		return nil
	}
	for {
		if err := p.value(depth + 1); err != nil {
			return err
		}
		if more, err := p.more(']'); err != nil {
			return err
		} else if !more {
			p.pos++
			return nil
		}
	}
}

// more reads the comma after a member or element, or stops before the closing bracket.
func (p *parser) more(closing byte) (bool, error) {
	p.space()
	switch p.peek() {
	case ',':
		p.pos++
		p.space()
		return true, nil
	case closing:
		return false, nil
	}
	return false, p.fail("a comma or %q is expected", closing)
}

// plain marks the bytes that need no escape within a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

// str reads a string. It returns the string as written, with quotes, and whether it has escapes.
func (p *parser) str() (raw []byte, escaped bool, err error) {
	start := p.pos
	p.pos++
	for {
		for p.pos < len(p.in) && plain[p.in[p.pos]] {
			p.pos++
		}
		switch {
		case p.pos == len(p.in):
			return nil, false, fmt.Errorf("column %d: the string that starts here is not closed", start+1)
		case p.in[p.pos] == '"':
			p.pos++
			return p.in[start:p.pos], escaped, nil
		case p.in[p.pos] == '\\':
			escaped = true
			if err := p.escape(); err != nil {
				return nil, false, err
			}
		default:
			return nil, false, p.fail("a control character must be escaped in a string")
		}
	}
}

func (p *parser) escape() error {
	if p.pos+1 < len(p.in) && bytes.IndexByte([]byte(`"\/bfnrt`), p.in[p.pos+1]) >= 0 {
		p.pos += 2
		return nil
	}
	unit, ok := p.hex(p.pos)
	if !ok {
		return p.fail("not an escape that JSON knows")
	}
	if unit >= 0xd800 && unit < 0xe000 {
		low, ok := p.hex(p.pos + 6)
		if unit >= 0xdc00 || !ok || low < 0xdc00 || low > 0xdfff {
			return p.fail("half a surrogate pair, which is not a character")
		}
		p.pos += 6
	}
	p.pos += 6
	return nil
}

// hex reads the four digits of the \u escape at i.
func (p *parser) hex(i int) (rune, bool) {
	if i+6 > len(p.in) || p.in[i] != '\\' || p.in[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range p.in[i+2 : i+6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func (p *parser) number() error {
	if p.peek() == '-' {
		p.pos++
	}
	if p.peek() == '0' {
		p.pos++
	} else if !p.digits() {
		return p.fail("a digit is expected")
	}
	if p.peek() == '.' {
		p.pos++
		if !p.digits() {
			return p.fail("a digit is expected")
		}
	}
	if p.peek()|0x20 == 'e' {
		p.pos++
		if c := p.peek(); c == '+' || c == '-' {
			p.pos++
		}
		if !p.digits() {
			return p.fail("a digit is expected")
		}
	}
	return nil
}

func (p *parser) digits() bool {
	from := p.pos
	for p.pos < len(p.in) && p.in[p.pos] >= '0' && p.in[p.pos] <= '9' {
		p.pos++
	}
	return p.pos > from
}

func (p *parser) literal(word string) error {
	if !bytes.HasPrefix(p.in[p.pos:], []byte(word)) {
		return p.fail("a value is expected")
	}
	p.pos += len(word)
	return nil
}

func (p *parser) space() {
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case ' ', '\t', '\r', '\n':
			p.pos++
			p.spaces = true
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end. No token starts with 0.
func (p *parser) peek() byte {
	if p.pos < len(p.in) {
		return p.in[p.pos]
	}
	return 0
}

func (p *parser) fail(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if p.pos >= len(p.in) {
		return fmt.Errorf("not JSON: the line ends where %s", what)
	}
	return fmt.Errorf("not JSON: column %d: %s", p.pos+1, what)
}

// show quotes a key for a message, shortened if it is long.
func show(key []byte) string {
	const most = 60
	if len(key) > most {
		return fmt.Sprintf("%q…", bytes.ToValidUTF8(key[:most], nil))
	}
	return fmt.Sprintf("%q", key)
}

// compact returns a JSON value without white space between its tokens. It copies only if there was some.
func (r *Reader) compact(value []byte) json.RawMessage {
	if !r.json.spaces {
		return value[:len(value):len(value)]
	}
	return appendCompact(make([]byte, 0, len(value)), value)
}

// appendCompact appends valid JSON without the white space between its tokens.
func appendCompact(dst, value []byte) []byte {
	inString := false
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case inString && c == '\\':
			dst = append(dst, c)
			i++
			c = value[i]
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// unquote returns the text of a valid JSON string.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return string(inner) // unreachable: the parser has validated it
	}
	return s
}
