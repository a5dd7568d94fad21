package pan

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
