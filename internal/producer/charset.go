package producer

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// The encodings of a billing file.
const (
	UTF8        = "utf-8"
	Latin1      = "latin-1"      // ISO 8859-1
	Windows1252 = "windows-1252" // what Excel writes on Windows in Western Europe and America
)

// Encodings lists the encodings of a billing file; the first is the default.
func Encodings() []string { return []string{UTF8, Latin1, Windows1252} }

func charsetOf(encoding string) *charmap.Charmap {
	switch encoding {
	case Latin1:
		return charmap.ISO8859_1
	case Windows1252:
		return charmap.Windows1252
	}
	return nil
}

// decoded returns a line in another encoding as UTF-8: the line itself if it is UTF-8 already.
func (r *Reader) decoded(raw []byte) ([]byte, error) {
	first := slices.IndexFunc(raw, func(c byte) bool { return c >= utf8.RuneSelf })
	if first < 0 {
		return raw, nil
	}
	if utf8.Valid(raw) {
		return nil, fmt.Errorf("byte %d begins a character of UTF-8, not of %s: leave --encoding out", first+1, r.opt.Encoding)
	}
	text := make([]byte, 0, len(raw)+bytes.Count(raw, []byte(" "))+8)
	for i, b := range raw {
		c := r.charset.DecodeByte(b)
		if c >= 0x80 && c < 0xa0 || c == utf8.RuneError {
			return nil, r.noCharacter(i)
		}
		text = utf8.AppendRune(text, c)
	}
	return text, nil
}

// noCharacter returns the error for a byte that decodes to a control character, which no billing file contains
// on purpose.
func (r *Reader) noCharacter(at int) error {
	if r.opt.Encoding == Latin1 {
		return fmt.Errorf("byte %d is not a character of %s: say --encoding %s", at+1, Latin1, Windows1252)
	}
	return fmt.Errorf("byte %d is not a character of %s: convert the file to UTF-8, from the encoding that it has", at+1, r.opt.Encoding)
}

// checkText fails if a line is not valid UTF-8.
func checkText(raw []byte) error {
	if utf8.Valid(raw) {
		return nil
	}
	for i := 0; i < len(raw); {
		r, n := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("byte %d is not UTF-8: convert the file, as with iconv -t UTF-8", i+1)
		}
		i += n
	}
	return nil
}
