package pan

import "unicode/utf8"

// scheme is a range of the first six digits, and the lengths of the numbers that are issued there.
type scheme struct {
	from, to int
	lengths  lengths
}

// lengths has a bit for each length.
type lengths uint32

func of(all ...int) (l lengths) {
	for _, n := range all {
		l |= 1 << n
	}
	return l
}

// schemes has the ranges that the card schemes have published. Some overlap: a number is a card number if any range has it.
var schemes = []scheme{
	{400000, 499999, of(13, 16, 18, 19)},             // Visa
	{510000, 559999, of(16)},                         // Mastercard
	{222100, 272099, of(16)},                         // Mastercard
	{340000, 349999, of(15)},                         // American Express
	{370000, 379999, of(15)},                         // American Express
	{601100, 601199, of(16, 17, 18, 19)},             // Discover
	{644000, 659999, of(16, 17, 18, 19)},             // Discover, RuPay, Elo, Troy, Verve
	{300000, 305999, of(14, 15, 16, 17, 18, 19)},     // Diners Club
	{309500, 309599, of(14, 15, 16, 17, 18, 19)},     // Diners Club
	{360000, 369999, of(14, 15, 16, 17, 18, 19)},     // Diners Club
	{380000, 399999, of(14, 15, 16, 17, 18, 19)},     // Diners Club, Hipercard
	{352800, 358999, of(16, 17, 18, 19)},             // JCB, RuPay
	{620000, 629999, of(16, 17, 18, 19)},             // UnionPay
	{810000, 829999, of(16, 17, 18, 19)},             // UnionPay, RuPay
	{220000, 220599, of(16, 17, 18, 19)},             // Mir, Borica
	{500000, 509999, of(13, 14, 15, 16, 17, 18, 19)}, // Maestro, Dankort, Elo, Verve, RuPay
	{560000, 589999, of(13, 14, 15, 16, 17, 18, 19)}, // Maestro
	{600000, 601099, of(16)},                         // RuPay
	{601200, 610000, of(16)},                         // RuPay, Hipercard
	{630000, 639999, of(13, 14, 15, 16, 17, 18, 19)}, // Maestro, InterPayment, InstaPayment, Elo
	{670000, 679999, of(13, 14, 15, 16, 17, 18, 19)}, // Maestro
	{979200, 979299, of(16)},                         // Troy
	{860000, 860099, of(16)},                         // Uzcard
	{986000, 986099, of(16)},                         // Humo
}

// starts has the lengths of numbers by their first three digits, of all ranges that begin so.
var starts = func() (t [1000]lengths) {
	for _, s := range schemes {
		for first := s.from / 1000; first <= s.to/1000; first++ {
			t[first] |= s.lengths
		}
	}
	return t
}()

// issued reports whether a scheme issues numbers with this beginning and length.
func issued(number []byte) bool {
	first := int(number[0])*100 + int(number[1])*10 + int(number[2])
	if starts[first]&(1<<len(number)) == 0 {
		return false
	}
	for _, d := range number[3:6] {
		first = first*10 + int(d)
	}
	for _, s := range schemes {
		if first >= s.from && first <= s.to && s.lengths&(1<<len(number)) != 0 {
			return true
		}
	}
	return false
}

// kind is the role of a character in a card number.
type kind byte

const (
	other kind = iota // it ends one
	digit
	separator
)

// mostGap is the largest number of separators between two digits.
const mostGap = 3

// kinds has the kind of each byte. Each byte of a character of several bytes may belong to a number.
var kinds = func() (t [256]kind) {
	for c := '0'; c <= '9'; c++ {
		t[c] = digit
	}
	for _, c := range " \t-._+" {
		t[c] = separator
	}
	for c := utf8.RuneSelf; c < len(t); c++ {
		t[c] = separator
	}
	return t
}()

// zeros are the digits 0 of other scripts: full-width, Arabic, Persian and Devanagari. The other nine digits follow each.
var zeros = []rune{'\uff10', '\u0660', '\u06f0', '\u0966'}

// counts says for how many digits of a number a byte stands: the first byte of a digit of another script for one, its other bytes for none. -1: no number has the byte.
var counts = func() (t [256]int8) {
	for c := range t {
		switch kinds[c] {
		case other:
			t[c] = -1
		case digit:
			t[c] = 1
		}
	}
	for _, zero := range zeros {
		t[utf8.AppendRune(nil, zero)[0]] = 1
	}
	return t
}()

// next returns the first character of a text, its value as a digit, and its length in bytes.
func next(text []byte) (value byte, k kind, size int) {
	if c := text[0]; c < utf8.RuneSelf {
		return c - '0', kinds[c], 1
	}
	r, size := utf8.DecodeRune(text)
	for _, zero := range zeros {
		if r >= zero && r <= zero+9 {
			return byte(r - zero), digit, size
		}
	}
	switch {
	case r >= '\u2000' && r <= '\u200f', r >= '\u2010' && r <= '\u2015', r == '\u00a0', r == '\u00ad', r == '\u202f', r == '\u205f', r == '\u2060',
		r == '\u2212', r == '\u3000', r == '\ufeff', r == '\ufe58', r == '\ufe63', r == '\uff0d', r == '\u00b7', r == '\u2022':
		return 0, separator, size
	}
	return 0, other, size
}

// Belongs reports whether a text, which is not empty, begins with a character that a card number may have, and whether that is a digit.
func Belongs(text []byte) (is, aDigit bool) {
	_, k, _ := next(text)
	return k != other, k == digit
}
