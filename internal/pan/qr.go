package pan

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
