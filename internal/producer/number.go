package producer

import "bytes"

// number is a decimal number as people write it.
type number struct {
	negative bool
	digits   []byte
	scale    int // how many of the digits stand behind the mark; the last of them is no 0
}

// groupMarks are what people put between thousands: a point or comma, spaces that may not break, apostrophes.
var groupMarks = [][]byte{[]byte("."), []byte(","), []byte(" "), []byte("\u00a0"), []byte("\u202f"), []byte("'"), []byte("’")}

// read reads a text in which mark stands before the decimals. What it reads is exact, or false: groups of thousands have three digits.
func (n *number) read(text []byte, mark byte) bool {
	text = bytes.TrimSpace(text)
	n.negative = bytes.HasPrefix(text, []byte("-"))
	if n.negative || bytes.HasPrefix(text, []byte("+")) {
		text = text[1:]
	}
	whole, fraction, marked := bytes.Cut(text, []byte{mark})
	if marked && (len(fraction) == 0 || !allDigits(fraction)) {
		return false
	}
	digits, ok := ungrouped(n.digits[:0], whole, mark)
	if !ok {
		return false
	}
	fraction = bytes.TrimRight(fraction, "0")
	n.digits, n.scale = append(digits, fraction...), len(fraction)
	n.negative = n.negative && len(bytes.Trim(n.digits, "0")) > 0
	return true
}

// ungrouped appends the digits of a whole number.
func ungrouped(dst, whole []byte, mark byte) ([]byte, bool) {
	if allDigits(whole) {
		return append(dst, whole...), len(whole) > 0
	}
	for _, between := range groupMarks {
		if between[0] == mark || !bytes.Contains(whole, between) {
			continue
		}
		for first := true; ; first = false {
			group, rest, more := bytes.Cut(whole, between)
			if !allDigits(group) || len(group) == 0 || len(group) > 3 || !first && len(group) < 3 {
				return dst, false
			}
			dst, whole = append(dst, group...), rest
			if !more {
				return dst, true
			}
		}
	}
	return dst, false
}

func allDigits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// appendPlain appends the number as JSON: 1698.81.
func (n *number) appendPlain(dst []byte) []byte {
	dst = n.appendWhole(dst, n.digits[:len(n.digits)-n.scale])
	if n.scale > 0 {
		dst = append(append(dst, '.'), n.digits[len(n.digits)-n.scale:]...)
	}
	return dst
}

// appendMinor appends the number in minor units, of which a unit has 10^digits. ok is false where it has a fraction of them.
func (n *number) appendMinor(dst []byte, digits int) (_ []byte, ok bool) {
	if n.scale > digits {
		return dst, false
	}
	for n.scale < digits {
		n.digits, n.scale = append(n.digits, '0'), n.scale+1
	}
	return n.appendWhole(dst, n.digits), true
}

// appendWhole appends digits with their sign, and without idle zeros.
func (n *number) appendWhole(dst, digits []byte) []byte {
	if n.negative {
		dst = append(dst, '-')
	}
	if digits = bytes.TrimLeft(digits, "0"); len(digits) == 0 {
		return append(dst, '0')
	}
	return append(dst, digits...)
}
