package job

import (
	"fmt"
	"regexp"
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
	SavedAnswer  Saved = "answer"     // the first answer
	SavedState   Saved = "state"      // the present state of the payment
	SavedError   Saved = "error"      // an error of its own
	SavedNot     Saved = "runs_again" // nothing is saved: the call is made again
	SavedUnknown Saved = "unknown"    // nobody says
)

// Saveds returns every one.
func Saveds() []Saved { return []Saved{SavedAnswer, SavedState, SavedError, SavedNot, SavedUnknown} }

// Pattern returns the regular expression that a value wanted in an answer is where it stands between slashes; ok is false for a plain text.
func Pattern(want string) (expression string, ok bool) {
	if len(want) < 2 || want[0] != '/' || want[len(want)-1] != '/' {
		return "", false
	}
	return want[1 : len(want)-1], true
}

// CheckWanted returns why a value can't be wanted in an answer, or nil.
func CheckWanted(want string) error {
	if expression, ok := Pattern(want); ok {
		if _, err := regexp.Compile(expression); err != nil {
			return fmt.Errorf("%s is no regular expression: write one as Go has them, or leave the slashes out", want)
		}
	}
	return nil
}
