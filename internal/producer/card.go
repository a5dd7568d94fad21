package producer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"spillway/internal/job"
	"spillway/internal/pan"
)

const (
	mostNamed = 5   // fields that an error names
	mostName  = 200 // bytes of each name
)

// cardWalk searches a payload. Invalid JSON ends the search.
type cardWalk struct {
	p      parser
	rule   job.CardRule
	path   []string
	found  []string // paths of the first fields with a card number
	fields int      // number of fields with a card number
	inKey  bool     // a key contains one
	out    []byte   // the masked payload, as far as it was copied
	copied int
}

func (w *cardWalk) refusal(gateway string) error {
	if w.inKey {
		return job.CardError("the payload has what looks like a card number in the name of a field: name the field after what it holds")
	}
	named := w.found
	rest := ""
	if w.fields > mostNamed {
		rest = fmt.Sprintf(" and %d more", w.fields-mostNamed)
	}
	fields := "the field " + named[0] + " has"
	if len(named) > 1 {
		fields = "the fields " + strings.Join(named, ", ") + rest + " have"
	}
	return job.CardError(fmt.Sprintf("%s what looks like a card number: send a token in its place, or name the field in gateways.%s.pan.allow", fields, gateway))
}

// name returns the path of the current field, shortened if it is long.
func (w *cardWalk) name() string {
	var name []byte
	for i, key := range w.path {
		if i > 0 {
			name = append(name, '.')
		}
		if name = append(name, key[:min(len(key), mostName+1)]...); len(name) > mostName {
			return strings.ToValidUTF8(string(name[:mostName]), "") + "…"
		}
	}
	return string(name)
}

// value walks one value. allowed says that its field may contain a card number.
func (w *cardWalk) value(depth int, allowed bool) error {
	start := w.p.pos
	switch c := w.p.peek(); {
	case c == '{' && depth < maxDepth:
		return w.object(depth, allowed)
	case c == '[' && depth < maxDepth:
		return w.array(depth, allowed)
	case c == '"':
		raw, escaped, err := w.p.str()
		if err != nil || allowed {
			return err
		}
		text := raw[1 : len(raw)-1]
		if escaped {
			text = []byte(unquote(raw))
		}
		w.look(start, text)
		return nil
	}
	if err := w.p.value(depth); err != nil || allowed {
		return err
	}
	number := w.p.in[start:w.p.pos]
	if whole, _, fraction := bytes.Cut(number, []byte(".")); fraction && !bytes.ContainsAny(number, "eE") && !pan.Contains(whole) {
		return nil // a coordinate or a rate
	}
	w.look(start, number)
	return nil
}

// look checks the text of a value that begins at start and ends here.
func (w *cardWalk) look(start int, text []byte) {
	if !pan.Contains(text) {
		return
	}
	if w.fields++; w.fields <= mostNamed {
		w.found = append(w.found, pan.MaskString(w.name()))
	}
	w.out = append(w.out, w.p.in[w.copied:start]...)
	w.out = appendQuoted(w.out, pan.Mask(text))
	w.copied = w.p.pos
}

func (w *cardWalk) object(depth int, allowed bool) error {
	w.p.pos++
	w.p.space()
	for more := w.p.peek() != '}'; more; {
		key, err := w.p.key()
		if err != nil {
			return err
		}
		if pan.Contains(key) && !allowed {
			w.inKey, w.fields = true, w.fields+1
		}
		w.path = append(w.path, string(key))
		if err := w.value(depth+1, allowed || w.rule.Allows(w.path)); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
		if more, err = w.p.more('}'); err != nil {
			return err
		}
	}
	w.p.pos++
	return nil
}

func (w *cardWalk) array(depth int, allowed bool) error {
	w.p.pos++
	w.p.space()
	for more := w.p.peek() != ']'; more; {
		err := w.value(depth+1, allowed)
		if err != nil {
			return err
		}
		if more, err = w.p.more(']'); err != nil {
			return err
		}
	}
	w.p.pos++
	return nil
}

// plainError is an error with the card numbers masked in its text.
type plainError struct {
	text string
	err  error
}

// Error implements error.
func (e plainError) Error() string { return e.text }

// Unwrap returns the original error.
func (e plainError) Unwrap() error { return e.err }

// masked returns an error that is safe to show: the original may quote a key or a name.
func masked(err error) error {
	if err == nil || !pan.ContainsString(err.Error()) {
		return err
	}
	return plainError{pan.MaskString(err.Error()), err}
}

// Masked returns a line that can't be used, with its card numbers masked, so that it may be kept.
func (l Line) Masked() []byte {
	text := pan.Mask(l.Raw)
	if _, refused := errors.AsType[job.CardError](l.Err); !refused || !slices.Equal(text, l.Raw) {
		return text
	}
	return pan.Mask(unescaped(l.Raw))
}

// unescaped returns equivalent JSON without escapes for characters that may be part of a card number.
func unescaped(line []byte) []byte {
	const visible = '~' - ' ' + 1
	pairs := make([]string, 0, 4*visible)
	for c := ' '; c <= '~'; c++ {
		if c != '"' && c != '\\' {
			pairs = append(pairs, fmt.Sprintf("\\u%04x", c), string(c), fmt.Sprintf("\\u%04X", c), string(c))
		}
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(line)))
}
