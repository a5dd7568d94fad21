package job

import "errors"

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
