// Package pan finds card numbers (PAN, primary account numbers) in texts, and masks them. A card number is 13 to 19 digits that begin as the cards of a scheme do,
// have a length that it issues, and pass the Luhn check. Between the digits there may be separators. docs/security.md says what is not looked for.
package pan

import (
	"io"
	"math/bits"
	"unicode/utf8"
)

const (
	least = 13 // digits of a card number
	half  = least / 2
	most  = 19
	shown = 4 // of its digits stay when it is masked, the last ones
)

// Span is the place of a card number in a text, in bytes.
type Span struct{ From, To int }

// stretch returns the first stretch of a text, from a place on, that may hold a card number: least digits or more, and what may be between them. If last is 0,
// the text has no such stretch.
func stretch[T string | []byte](text T, from int) (first, last int) {
	// A number has at least least bytes in a row that belong to it. One of these places is always among them.
	for at := from + least - 1; at < len(text); at += least {
		n := int(counts[text[at]])
		if n < 0 || counts[text[at-half]]|counts[text[at-half/2]] < 0 && (at+half >= len(text) || counts[text[at+half]]|counts[text[at+half/2]] < 0) {
			continue // half of a number is before this place, or after it
		}
		for first = at; first > from && counts[text[first-1]] >= 0; first-- {
			n += int(counts[text[first-1]])
		}
		for last = at + 1; last < len(text) && counts[text[last]] >= 0; last++ {
			n += int(counts[text[last]])
		}
		if n >= least && mayBe(text[first:last]) {
			return first, last
		}
		at += (last - at) / least * least // the places in between are in the same stretch
	}
	return 0, 0
}

// mayBe reports whether a stretch may hold a card number. It returns false only if there is none. It reads a stretch once and copies only its digits, since nearly all stretches are
// dates, phone numbers and ids.
func mayBe[T string | []byte](stretch T) bool {
	var digits [mostDigits]byte
	n, begins, open := 0, uint64(0), false // begins has a bit for each digit with which a group begins
	for i := range len(stretch) {
		c := stretch[i]
		if counts[c] == 0 {
			open = false
			continue
		}
		if c >= utf8.RuneSelf || n == mostDigits-1 {
			return true // it may be a digit of another script, or one of many
		}
		if !open {
			begins, open = begins|1<<n, true
		}
		digits[n] = c - '0'
		n++
	}
	for left := begins; left != 0; left &= left - 1 {
		first := bits.TrailingZeros64(left)
		if n-first < least {
			return false
		}
		issued := uint64(starts[int(digits[first])*100+int(digits[first+1])*10+int(digits[first+2])])
		for ends := (begins | 1<<n) >> first & issued; ends != 0; ends &= ends - 1 { // a bit for each length that a number may have here
			if luhn(digits[first : first+bits.TrailingZeros64(ends)]) {
				return true
			}
		}
	}
	return false
}

// mostDigits is one more than the number of digits that are examined at once. A longer stretch may hold a number.
const mostDigits = 64

// Contains reports whether a text holds a card number.
func Contains(text []byte) bool { return len(find(text, true)) > 0 }

// Suspected reports whether a text may hold a card number, or something else that has its digits, such as an IBAN. It is quicker than Contains, and true whenever Contains is.
func Suspected(text []byte) bool {
	_, last := stretch(text, 0)
	return last > 0
}

// ContainsString is Contains.
func ContainsString(text string) bool {
	if _, last := stretch(text, 0); last == 0 {
		return false
	}
	return Contains([]byte(text))
}

// Find returns where the card numbers in a text are, in order. They don't overlap.
func Find(text []byte) []Span {
	return find(text, false)
}

// Mask returns the text with stars in place of the digits of its card numbers, except the last four of each. A text without a card number is returned unchanged.
func Mask(text []byte) []byte {
	spans := Find(text)
	if len(spans) == 0 {
		return text
	}
	out, at := make([]byte, 0, len(text)), 0
	for _, s := range spans {
		out = append(append(out, text[at:s.From]...), Masked(text[s.From:s.To])...)
		at = s.To
	}
	return append(out, text[at:]...)
}

// MaskString is Mask.
func MaskString(text string) string {
	if _, last := stretch(text, 0); last == 0 {
		return text
	}
	return string(Mask([]byte(text)))
}

// Copy copies a text with its card numbers masked. It does not matter how the text is cut into reads.
func Copy(to io.Writer, from io.Reader) error {
	const piece = 64 << 10
	buf, have := make([]byte, 2*piece), 0
	for {
		n, err := from.Read(buf[have:])
		have += n
		whole := have
		for err == nil && whole > have-piece && whole > 0 && kinds[buf[whole-1]] != other {
			whole-- // a number may continue in the next piece
		}
		if _, wrong := to.Write(Mask(buf[:whole])); wrong != nil {
			return wrong
		}
		have = copy(buf, buf[whole:have])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Masked returns what replaces a card number. The separators and the last four digits stay.
func Masked(number []byte) []byte {
	left := 0
	for at := 0; at < len(number); {
		_, kind, size := next(number[at:])
		at += size
		if kind == digit {
			left++
		}
	}
	out := make([]byte, 0, len(number))
	for at := 0; at < len(number); {
		_, kind, size := next(number[at:])
		if kind != digit || left <= shown {
			out = append(out, number[at:at+size]...)
		} else {
			out = append(out, '*')
		}
		if kind == digit {
			left--
		}
		at += size
	}
	return out
}

// group is a row of digits without a separator: digits[from] to digits[to], which are in the text from start to end.
type group struct{ from, to, start, end int }

// run is a part of a text that has only characters of card numbers.
type run struct {
	text   []byte
	digits []byte // their values
	groups []group
}

// find returns the card numbers of a text, or those of one stretch.
func find(text []byte, one bool) (all []Span) {
	for first, last := stretch(text, 0); last > 0; first, last = stretch(text, last) {
		all = within(text, first, last, all)
		if one && len(all) > 0 {
			return all
		}
	}
	return all
}

// within adds the card numbers of a stretch.
func within(text []byte, first, last int, all []Span) []Span {
	var digits [64]byte // for most stretches
	var groups [16]group
	r := run{text: text, digits: digits[:0], groups: groups[:0]}
	gap, open := 0, false
	for at := first; at < last; {
		value, kind, size := next(text[at:])
		switch kind {
		case digit:
			if !open {
				r.groups = append(r.groups, group{from: len(r.digits), start: at})
			}
			r.digits = append(r.digits, value)
			of := &r.groups[len(r.groups)-1]
			of.to, of.end = len(r.digits), at+size
			gap, open = 0, true
		case separator:
			gap, open = gap+1, false
			if gap <= mostGap {
				break
			}
			fallthrough
		default:
			all = r.close(all)
			gap, open = 0, false
		}
		at += size
	}
	return r.close(all)
}

// close adds the card numbers of a run, and begins another run. A number begins and ends where a group does: digits within a longer number are no card number.
func (r *run) close(all []Span) []Span {
	for first := 0; first < len(r.groups) && len(r.digits)-r.groups[first].from >= least; first++ {
		if begins := r.digits[r.groups[first].from:]; starts[int(begins[0])*100+int(begins[1])*10+int(begins[2])] == 0 {
			continue
		}
		for last := r.longest(first); last >= first; last-- {
			from, to := r.groups[first], r.groups[last]
			number := r.digits[from.from:to.to]
			if len(number) < least || len(number) > most || !issued(number) || !luhn(number) || r.another(from.start, to.end, len(number)) {
				continue
			}
			all = append(all, Span{from.start, to.end})
			first = last
			break
		}
	}
	r.digits, r.groups = r.digits[:0], r.groups[:0]
	return all
}

// longest returns the last group with which a number may end that begins with the first group.
func (r *run) longest(first int) (last int) {
	for last = first; last+1 < len(r.groups) && r.groups[last+1].to-r.groups[first].from <= most; last++ {
	}
	return last
}

// mostPhone is the largest number of digits of a phone number (E.164).
const mostPhone = 15

// another reports whether digits are part of something that is certainly no card number: a phone number with its +, a UUID, an IBAN, the reference
// of a Swiss QR bill, or the hexadecimal form of a digest.
func (r *run) another(from, to, digits int) bool {
	if digits <= mostPhone && from > 0 && r.text[from-1] == '+' && (from == 1 || !inWord(r.text[from-2])) {
		return true
	}
	first, last := from, to
	for first > 0 && last-first <= longestDigest && inWord(r.text[first-1]) {
		first--
	}
	for last < len(r.text) && last-first <= longestDigest && inWord(r.text[last]) {
		last++
	}
	return isDigest(r.text[first:last]) || inUUID(r.text, from, to) || inIBAN(r.text, from, to) || inQR(r.text, from, to)
}

func inWord(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }

func inHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// uuid is how long a UUID is written.
const uuid = 36

// inUUID reports whether a part of a text is within a UUID.
func inUUID(text []byte, from, to int) bool {
	for first := max(0, to-uuid); first <= from && first+uuid <= len(text); first++ {
		if isUUID(text[first : first+uuid]) {
			return true
		}
	}
	return false
}

func isUUID(token []byte) bool {
	letters := false
	for i, c := range token {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case !inHex(c):
			return false
		}
		letters = letters || c|0x20 >= 'a'
	}
	return letters
}

// longestDigest is how long a digest is written at most.
const longestDigest = 128

// isDigest reports whether a word has the length of a digest or an object id in hexadecimal digits, and has letters.
func isDigest(word []byte) bool {
	switch len(word) {
	case 24, 32, 40, 48, 56, 64, 96, longestDigest:
	default:
		return false
	}
	letters := false
	for _, c := range word {
		if !inHex(c) {
			return false
		}
		letters = letters || c|0x20 >= 'a'
	}
	return letters
}

// doubled returns twice a digit, less 9 if that is more than 9.
var doubled = [10]byte{0, 2, 4, 6, 8, 1, 3, 5, 7, 9}

// luhn is the check of ISO/IEC 7812-1.
func luhn(number []byte) bool {
	sum := 0
	for i := len(number) - 1; i >= 0; i -= 2 {
		sum += int(number[i])
		if i > 0 {
			sum += int(doubled[number[i-1]])
		}
	}
	return sum%10 == 0
}
