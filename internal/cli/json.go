package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// WriteJSON writes v as one JSON document on one line. Called for each item, it writes a list with one line
// each. <, > and & are not escaped. Unprintable characters are, so that they can't control a terminal or
// reverse text.
func WriteJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing the result as JSON: %w", err)
	}
	if _, err := w.Write(escaped(b.Bytes())); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// escaped escapes what is neither printable nor the document's line end. JSON has non-ASCII characters only in
// strings.
func escaped(document []byte) []byte {
	if !bytes.ContainsFunc(document, hidden) {
		return document
	}
	out := make([]byte, 0, len(document)+16)
	for _, r := range string(document) {
		switch low, high := utf16.EncodeRune(r); {
		case !hidden(r):
			out = append(out, string(r)...)
		case r > 0xffff:
			out = fmt.Appendf(out, `\u%04x\u%04x`, low, high)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

func hidden(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
