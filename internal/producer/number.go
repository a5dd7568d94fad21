package producer

import "bytes"

// number is a decimal number as people write it.
type number struct {
	negative bool
	digits   []byte
	scale    int  // number of digits after the decimal mark
	told     bool // the decimal mark was specified
}

// groupMarks are the separators that people put between thousands: spaces, breaking or not, apostrophes, a
// point or comma.
var groupMarks = [][]byte{[]byte(" "), []byte("\u00a0"), []byte("\u202f"), []byte("'"), []byte("’"), []byte("."), []byte(",")}

// read parses text in which mark is the decimal mark. A zero mark means a point, not specified by the user. The
// result is exact, or read returns false: groups of thousands must have three digits, and "7,125" is refused
// unless the meaning of the comma was specified.
func (n *number) read(text []byte, mark byte) bool {
	marks := groupMarks
	if n.told = mark != 0; !n.told {
		mark, marks = '.', groupMarks[:len(groupMarks)-2]
	}
	text = bytes.TrimSpace(text)
	n.negative = bytes.HasPrefix(text, []byte("-"))
	if n.negative || bytes.HasPrefix(text, []byte("+")) {
		text = text[1:]
	}
	whole, fraction, marked := bytes.Cut(text, []byte{mark})
	if marked && (len(fraction) == 0 || !allDigits(fraction)) {
		return false
	}
	digits, ok := ungrouped(n.digits[:0], whole, mark, marks)
	if !ok {
		return false
	}
	n.digits, n.scale = append(digits, fraction...), len(fraction)
	n.negative = n.negative && len(bytes.Trim(n.digits, "0")) > 0
	return true
}

// ungrouped appends the digits of a whole number.
func ungrouped(dst, whole []byte, mark byte, marks [][]byte) ([]byte, bool) {
	if allDigits(whole) {
		return append(dst, whole...), len(whole) > 0
	}
	for _, between := range marks {
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

// trim removes trailing zeros, down to that many decimals.
func (n *number) trim(decimals int) {
	for n.scale > decimals && n.digits[len(n.digits)-1] == '0' {
		n.digits, n.scale = n.digits[:len(n.digits)-1], n.scale-1
	}
}

// appendPlain appends the number as JSON: 1698.81.
func (n *number) appendPlain(dst []byte) []byte {
	n.trim(0)
	dst = n.appendWhole(dst, n.digits[:len(n.digits)-n.scale])
	if n.scale > 0 {
		dst = append(append(dst, '.'), n.digits[len(n.digits)-n.scale:]...)
	}
	return dst
}

// appendMinor appends the number in minor units, 10^digits to a unit. ok is false if that is not a whole
// number. It is also false if there are too many decimals and the decimal mark was not specified: 1.690 may
// mean more than a thousand.
func (n *number) appendMinor(dst []byte, digits int) (_ []byte, ok bool) {
	if n.told {
		n.trim(digits)
	}
	if n.scale > digits {
		return dst, false
	}
	for n.scale < digits {
		n.digits, n.scale = append(n.digits, '0'), n.scale+1
	}
	return n.appendWhole(dst, n.digits), true
}

// appendWhole appends digits with their sign and without leading zeros.
func (n *number) appendWhole(dst, digits []byte) []byte {
	if n.negative {
		dst = append(dst, '-')
	}
	if digits = bytes.TrimLeft(digits, "0"); len(digits) == 0 {
		return append(dst, '0')
	}
	return append(dst, digits...)
}
