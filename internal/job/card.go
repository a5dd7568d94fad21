package job

import "strings"

// CardsThen is what to do with a payload that contains a card number.
type CardsThen string

// The values of CardsThen. Empty means CardsRefuse.
const (
	CardsRefuse CardsThen = "refuse" // refuse the job
	CardsMask   CardsThen = "mask"   // admit it with all digits of the number but the last four replaced by stars
	CardsAllow  CardsThen = "allow"  // admit it unchanged
)

// CardRule says what to do with card numbers in input for a gateway. The zero value refuses all of them.
type CardRule struct {
	Then CardsThen
	// Allow names the payload fields (dotted paths) that may contain a card number, anywhere below them. List
	// indices are not part of a path.
	Allow []string
}

// Allows reports whether the payload field at path may contain a card number.
func (r CardRule) Allows(path []string) bool {
	if r.Then == CardsAllow {
		return true
	}
	for _, field := range r.Allow {
		if leads(path, field) {
			return true
		}
	}
	return false
}

// leads reports whether path is field or lies below it. It does not join path: names in a payload may be long.
func leads(path []string, field string) bool {
	for i, name := range path {
		if i > 0 {
			rest, more := strings.CutPrefix(field, ".")
			if !more {
				return false
			}
			field = rest
		}
		if below, is := strings.CutPrefix(name, field); is { // a name may contain dots
			return below == "" || below[0] == '.'
		}
		rest, more := strings.CutPrefix(field, name)
		if !more {
			return false
		}
		field = rest
	}
	return false
}

// CardError says why a job with a card number is refused. It names the field and contains nothing of the
// number.
type CardError string

// Error implements error.
func (e CardError) Error() string { return string(e) }
