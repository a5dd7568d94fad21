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

// ibans has the length of the IBANs of each country (ISO 13616). RF is a creditor's reference (ISO 11649), which may have any length.
var ibans = map[string]int{"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29, "BY": 28, "CH": 21, "CR": 22,
	"CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23,
	"GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32,
	"LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15,
	"OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RF": 0, "RO": 24, "RS": 22, "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24,
	"SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30}

const (
	longestIBAN = 34
	longestRF   = 25
	spaces      = 9 // in the longest one, in groups of four
)

// inIBAN reports whether a part of a text is within an IBAN or a creditor's reference whose check digits are right, with or without spaces.
func inIBAN(text []byte, from, to int) bool {
	for first := max(0, from-longestIBAN-spaces); first+4 < len(text) && first < from; first++ {
		if first > 0 && inWord(text[first-1]) {
			continue
		}
		length, known := ibans[string([]byte{text[first] &^ 0x20, text[first+1] &^ 0x20})]
		if known && isIBAN(text[first:], length, to-first) {
			return true
		}
	}
	return false
}

// isIBAN reports whether a text begins with an IBAN that reaches as far as least. A length of 0 is unknown.
func isIBAN(text []byte, length, least int) bool {
	remainder, n, head, end := 0, 0, 0, 0
	for end < len(text) && (n < length || length == 0 && n < longestRF) {
		c := text[end]
		if c == ' ' && end > 0 && text[end-1] != ' ' {
			end++
			continue
		}
		if !inWord(c) {
			break
		}
		if n < 4 {
			head = with(head, c) // the first four stand last in the sum
		} else {
			remainder = with(remainder, c)
		}
		n, end = n+1, end+1
	}
	if length > 0 && n != length || end < least || end < len(text) && inWord(text[end]) {
		return false
	}
	const ofHead = 1_000_000 // two letters of two digits each, and two digits
	return (remainder*ofHead+head)%97 == 1
}

// with returns the remainder of a number by 97 with one more character at its end: a letter has two digits.
func with(remainder int, c byte) int {
	if c <= '9' {
		return (remainder*10 + int(c-'0')) % 97
	}
	return (remainder*100 + int(c|0x20-'a') + 10) % 97
}

// qr is the form in which references of Swiss QR bills are written: 27 digits, the last of which is a check digit.
const qr = "dd ddddd ddddd ddddd ddddd ddddd"

// inQR reports whether a part of a text is within a reference of a Swiss QR bill whose check digit is right. Without spaces such a reference is too long for a card number.
func inQR(text []byte, from, to int) bool {
	for first := max(0, to-len(qr)); first <= from && first+len(qr) <= len(text); first++ {
		if isQR(text[first:first+len(qr)]) && (first == 0 || !inWord(text[first-1])) && (first+len(qr) == len(text) || !inWord(text[first+len(qr)])) {
			return true
		}
	}
	return false
}

// carry is the table of the recursive modulus 10 check of Swiss payment references.
var carry = [10]byte{0, 9, 4, 6, 8, 2, 7, 1, 3, 5}

func isQR(text []byte) bool {
	sum := byte(0)
	for i, c := range text {
		if space := c == ' '; space != (qr[i] == ' ') || !space && (c < '0' || c > '9') {
			return false
		} else if !space && i < len(text)-1 {
			sum = carry[(sum+c-'0')%10]
		}
	}
	return (10-sum)%10 == text[len(text)-1]-'0'
}
