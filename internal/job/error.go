package job

import (
	"errors"
	"strings"
)

// Code classifies an error for programs. One table maps it to an exit code, another to an HTTP status.
type Code string

// The codes. An error without a code counts as CodeFailed.
const (
	CodeFailed      Code = "failed"      // exit 1
	CodeUsage       Code = "usage"       // exit 2: wrong flag or configuration
	CodeInvalid     Code = "invalid"     // exit 3: finished, but some input was invalid or found no room, the batch has stopped itself, an act awaits approval, or a report and the records differ
	CodeNotFound    Code = "not_found"   // exit 4: no such job, batch or gateway
	CodeUnavailable Code = "unavailable" // exit 5: a dependency is unreachable, try again
	CodeInterrupted Code = "interrupted" // exit 130
)

// ErrCost means that there is no slot for a job because its cost exceeds what a limit can grant at present.
var ErrCost = errors.New("the job costs more than one of the gateway's limits can grant now")

// ErrLocal marks, for errors.Is, a fault of this machine: it has no descriptor, port or memory left, may not
// send, or gets no answer from a name server. Such an error says nothing about the gateway or the job.
var ErrLocal = errors.New("a fault of this machine")

// Codes returns every code.
func Codes() []Code {
	return []Code{CodeFailed, CodeUsage, CodeInvalid, CodeNotFound, CodeUnavailable, CodeInterrupted}
}

// Error is an error for a person: what is wrong, and what to do.
type Error struct {
	Code    Code
	Message string // what is wrong; never contains a payload or a secret
	Hint    string // what to do; may be empty
	Err     error  // the cause; may be nil
}

// Error returns the message with its cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the outermost coded error in err's chain, or CodeFailed.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeFailed
}

// DidYouMean returns "; did you mean WORD?" with the word of words closest to text. Text and word both carry a
// prefix such as "--". It is empty if no word is close.
func DidYouMean(text, prefix string, words []string) string {
	near, ok := Nearest(text, words)
	if !ok {
		return ""
	}
	return "; did you mean " + prefix + near + "?"
}

// Nearest returns the word closest to text, if it is within a few typing mistakes.
func Nearest(text string, words []string) (string, bool) {
	best, found := "", false
	least := 1 + len(text)/3
	for _, w := range words {
		if d := distance(strings.ToLower(text), w); d <= least && len(text) <= 4*maxKey {
			best, found, least = w, true, d-1
		}
	}
	return best, found
}

// maxKey bounds the length of texts that are compared, since the comparison is slow for long ones.
const maxKey = 20

// distance returns the number of letters to insert, delete, replace or swap with their neighbour to turn a into
// b.
func distance(a, b string) int {
	if len(a) > 4*maxKey {
		return len(a)
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		above := row
		row = make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := above[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before = above
	}
	return row[len(b)]
}
