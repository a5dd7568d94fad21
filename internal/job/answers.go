package job

import (
	"fmt"
	"regexp"
	"sync"
)

// The calls to which a rule on answers applies.
const (
	WhenFirst  = "first"  // no earlier call of the job can have had the same key
	WhenRepeat = "repeat" // an earlier call had it, or may have
)

// Saved is what a gateway answers to a repeated call, after a first answer of some kind.
type Saved string

// The answers to a repeated call.
const (
	SavedAnswer  Saved = "answer"       // the first answer
	SavedState   Saved = "state"        // the current state of the payment
	SavedError   Saved = "error"        // a separate error
	SavedNot     Saved = "runs_again"   // nothing is saved: the call is executed again
	SavedOnce    Saved = "charges_once" // nothing is saved, but the key prevents a second charge: the call is executed again
	SavedUnknown Saved = "unknown"      // undocumented
)

// OwnID stands for the job's id among the payload fields that an answer is compared with.
const OwnID = "{id}"

// Besides these, a look-up's answer can be compared with the idempotency key as sent, and with the gateway's
// reference.
const (
	OwnKey       = "{key}"
	OwnReference = "{reference}"
)

// Saveds returns every Saved.
func Saveds() []Saved {
	return []Saved{SavedAnswer, SavedState, SavedError, SavedNot, SavedOnce, SavedUnknown}
}

// Pattern returns the regular expression between the slashes of an expected value. ok is false for plain text.
func Pattern(want string) (expression string, ok bool) {
	if len(want) < 2 || want[0] != '/' || want[len(want)-1] != '/' {
		return "", false
	}
	return want[1 : len(want)-1], true
}

// Fits reports whether a value of an answer is the expected one. An absent or empty value matches no
// expression.
func Fits(want, got string) bool {
	expression, ok := Pattern(want)
	if !ok {
		return want == got
	}
	return got != "" && matches(expression, got)
}

var compiled sync.Map // regular expressions by their text; nil for an invalid one

// matches reports whether text matches an expression, which was checked when the configuration was read.
func matches(expression, text string) bool {
	known, ok := compiled.Load(expression)
	if !ok {
		re, _ := regexp.Compile(expression)
		known = re
		compiled.Store(expression, re)
	}
	re, _ := known.(*regexp.Regexp)
	return re != nil && re.MatchString(text)
}

// CheckWanted returns why a value can't be expected in an answer, or nil.
func CheckWanted(want string) error {
	if expression, ok := Pattern(want); ok {
		if _, err := regexp.Compile(expression); err != nil {
			return fmt.Errorf("%s is not a regular expression: write one as Go has them, or leave the slashes out", want)
		}
	}
	return nil
}
