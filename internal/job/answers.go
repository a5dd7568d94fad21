package job

import (
	"fmt"
	"regexp"
	"sync"
	"time"
)

// The calls to which a rule on answers applies.
const (
	WhenFirst  = "first"  // no earlier call of the job can have had the same key
	WhenRepeat = "repeat" // an earlier call had it, or may have
)

// Rule gives an answer a meaning. Everything that is set must match; at least one of status, header and body is set.
type Rule struct {
	// Event names the event in a word. Empty = no name.
	Event string
	// When is WhenFirst, WhenRepeat, or empty for both.
	When string
	// Status is the HTTP status, 100 to 599, or 1 to 5 for all statuses with that first digit. 0 = any.
	Status int
	// Header maps names, in any case, to required values. "" requires that the header is absent. A value between
	// slashes is a regular expression.
	Header map[string]string
	// Body maps dotted paths in the JSON answer (error.code, items.0.id) to required values, as text: 301 and
	// "301" are the same, true and null are words. "" requires that the field is absent or empty, in a body that
	// has fields. In a form-encoded answer, paths are flat names. A value between slashes is a regular expression.
	Body map[string]string
	// Then is the meaning of such an answer.
	Then Verdict
	// Scope is what a hold applies to; only if Then is a hold. Empty = the gateway.
	Scope Scope
	// Reference is the dotted path of the gateway's reference in such an answer. Empty = the one of all answers.
	Reference string
}

// LookRule gives a look-up's answer a meaning. Everything that is set must match.
type LookRule struct {
	// Status is the HTTP status, 100 to 499, or 1 to 4 for all statuses with that first digit. 0 = 2xx.
	Status int
	// Header and Body are as in a Rule; Body is about the item if a list is searched. A field required to be
	// absent from a list matches only if the list exists.
	Header, Body map[string]string
	// Absent matches the end of a list without such a payment.
	Absent bool
	// Then is the meaning of such an answer.
	Then LookVerdict
	// After is, for LookNotDone, how long after the end of the call it is believed at the earliest.
	After time.Duration
	// Reference is the dotted path of the gateway's reference in such an answer or item. Empty = the one of all
	// answers.
	Reference string
}

// Scan says how to find a payment in a list.
type Scan struct {
	// Items is the dotted path of the list in an answer. Empty: the answer is the list.
	Items string
	// Match maps dotted paths in an item to required values: a field of the payload (dotted), or OwnID, OwnKey or
	// OwnReference of the job. All must exist and be equal.
	Match map[string]string
	// Next is the dotted path of the reference to the next page. Empty (default): the list has one page.
	Next string
	// Parameter is the query parameter that takes the value of Next. Empty (default): Next is the whole URL.
	Parameter string
	// Until is the dotted path of an item's creation time (RFC 3339), in a list with the newest first: the search
	// ends before the job's first call. Empty (default): it ends at the end of the list.
	Until string
	// Pages is how many pages are searched at most; 1 to 1000. Default 20.
	Pages int
}

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
