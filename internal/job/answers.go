package job

import (
	"fmt"
	"regexp"
	"sync"
)

// The calls that a rule on answers is for.
const (
	WhenFirst  = "first"  // no earlier call of the job can have carried the same key
	WhenRepeat = "repeat" // an earlier one did, or may have
)

// Saved is what a repeat of a call gets after a first answer of some kind.
type Saved string

// What a repeat gets.
const (
	SavedAnswer  Saved = "answer"       // the first answer
	SavedState   Saved = "state"        // the present state of the payment
	SavedError   Saved = "error"        // an error of its own
	SavedNot     Saved = "runs_again"   // nothing is saved: the call is made again
	SavedOnce    Saved = "charges_once" // nothing is saved, and the key still keeps it from charging twice: the call is made again
	SavedUnknown Saved = "unknown"      // nobody says
)

// OwnID stands for the job's id among the fields of its payload that an answer is compared with.
const OwnID = "{id}"

// What a look-up's answer is compared with beside these: the idempotency key as it was sent, and the gateway's own reference.
const (
	OwnKey       = "{key}"
	OwnReference = "{reference}"
)

// Saveds returns every one.
func Saveds() []Saved {
	return []Saved{SavedAnswer, SavedState, SavedError, SavedNot, SavedOnce, SavedUnknown}
}

// Pattern returns the regular expression that a value wanted in an answer is where it stands between slashes; ok is false for a plain text.
func Pattern(want string) (expression string, ok bool) {
	if len(want) < 2 || want[0] != '/' || want[len(want)-1] != '/' {
		return "", false
	}
	return want[1 : len(want)-1], true
}

// Fits says whether a value of an answer is the wanted one. What is absent or empty fits no expression.
func Fits(want, got string) bool {
	expression, ok := Pattern(want)
	if !ok {
		return want == got
	}
	return got != "" && matches(expression, got)
}

var compiled sync.Map // regular expressions by their texts; nil for one that can't be read

// matches says whether a text matches an expression that the configuration was checked for.
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

// CheckWanted returns why a value can't be wanted in an answer, or nil.
func CheckWanted(want string) error {
	if expression, ok := Pattern(want); ok {
		if _, err := regexp.Compile(expression); err != nil {
			return fmt.Errorf("%s is not a regular expression: write one as Go has them, or leave the slashes out", want)
		}
	}
	return nil
}
