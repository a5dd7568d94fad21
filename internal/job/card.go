package job

import "strings"

// CardsThen is what becomes of a payload with a card number in it.
type CardsThen string

// What becomes of it. Empty is as CardsRefuse.
const (
	CardsRefuse CardsThen = "refuse" // the job is not taken in
	CardsMask   CardsThen = "mask"   // it is taken in, with all digits of the number but the last four replaced by stars
	CardsAllow  CardsThen = "allow"  // it is taken in as it is
)

// CardRule says what becomes of card numbers in what producers send to a gateway. The zero value refuses them all.
type CardRule struct {
	Then CardsThen
	// Allow names the payload's fields (dotted paths) in which a card number may stand, and in all below them. Lists take no step of a path.
	Allow []string
}

// Allows says that a card number may stand in the field of the payload that one comes to by these names.
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

// leads says that a path is a field's, or that of something below it. It does not put the path together: the names in a payload may be long.
func leads(path []string, field string) bool {
	for i, name := range path {
		if i > 0 {
			rest, more := strings.CutPrefix(field, ".")
			if !more {
				return false
			}
			field = rest
		}
		if below, is := strings.CutPrefix(name, field); is { // a name may have dots in it
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

// CardError is why a job with a card number is not taken in. It names the field, and holds nothing of the number.
type CardError string

// Error implements error.
func (e CardError) Error() string { return string(e) }
