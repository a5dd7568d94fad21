package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
)

// problem is an error answer (RFC 9457). In the answer to many jobs it is the line of one of them.
type problem struct {
	Line   int    `json:"line,omitempty"` // of the body, counted from 1; only for many jobs
	ID     string `json:"id,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   code   `json:"code"`
	// Kind is the class of the error, which corresponds to the command line's exit code.
	Kind   job.Code `json:"kind,omitempty"`
	Detail string   `json:"detail"`
	Hint   string   `json:"hint,omitempty"`
	// RetryAfter is when to try again, in seconds; 0: that would not help. It is sent in the header, too.
	RetryAfter int64 `json:"retry_after,omitempty"`
	// NeedsRole is the role needed, and Role the token's; only for the code forbidden.
	NeedsRole string     `json:"needs_role,omitempty"`
	Role      roles.Role `json:"role,omitempty"`
	// Lines are the problems of each line, if nothing at the start of a body of many jobs could be accepted.
	Lines []problem `json:"lines,omitempty"`
}

// code identifies the error for programs. Codes are never renamed.
type code string

const (
	codeToken       code = "no_token"
	codeForeign     code = "foreign_page"
	codeForbidden   code = "forbidden"
	codeGuesses     code = "too_many_guesses"
	codePath        code = "unknown_path"
	codeGateway     code = "unknown_gateway"
	codeJob         code = "unknown_job"
	codeBatch       code = "unknown_batch"
	codeRequestID   code = "unknown_request"
	codeOutcomes    code = "no_outcomes"
	codeReader      code = "unknown_reader"
	codeMethod      code = "method_not_allowed"
	codeMedia       code = "unknown_media_type"
	codeInvalid     code = "invalid_job"
	codeConflict    code = "other_payload"
	codeLarge       code = "too_large"
	codeRequest     code = "invalid_request"
	codeSlow        code = "too_slow"
	codeFull        code = "no_room"
	codeUnavailable code = "unavailable"
	codeStopping    code = "stopping"
	codeFailed      code = "failed"
	codeNotPossible code = "not_possible"
	codeChanged     code = "changed"
	codeKeyReused   code = "key_reused"
	codeUnderWay    code = "under_way"
)

// statuses are the HTTP statuses of the codes.
var statuses = map[code]int{
	codeToken:       http.StatusUnauthorized,
	codeForeign:     http.StatusForbidden,
	codeForbidden:   http.StatusForbidden,
	codeGuesses:     http.StatusTooManyRequests,
	codePath:        http.StatusNotFound,
	codeGateway:     http.StatusNotFound,
	codeJob:         http.StatusNotFound,
	codeBatch:       http.StatusNotFound,
	codeRequestID:   http.StatusNotFound,
	codeOutcomes:    http.StatusNotFound,
	codeReader:      http.StatusNotFound,
	codeMethod:      http.StatusMethodNotAllowed,
	codeMedia:       http.StatusUnsupportedMediaType,
	codeInvalid:     http.StatusBadRequest,
	codeConflict:    http.StatusConflict,
	codeLarge:       http.StatusRequestEntityTooLarge,
	codeRequest:     http.StatusBadRequest,
	codeSlow:        http.StatusRequestTimeout,
	codeFull:        http.StatusTooManyRequests,
	codeUnavailable: http.StatusServiceUnavailable,
	codeStopping:    http.StatusServiceUnavailable,
	codeFailed:      http.StatusInternalServerError,
	codeNotPossible: http.StatusConflict,
	codeChanged:     http.StatusConflict,
	codeKeyReused:   http.StatusConflict,
	codeUnderWay:    http.StatusConflict,
}

// kindOf returns the class of a problem, by its status.
func kindOf(status int) job.Code {
	switch status {
	case http.StatusNotFound:
		return job.CodeNotFound
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusRequestTimeout:
		return job.CodeUnavailable
	case http.StatusInternalServerError, http.StatusConflict:
		return job.CodeFailed
	}
	return job.CodeUsage
}

// awayAfter is when to try again while Redis is unreachable or the dispatcher stops.
const awayAfter = 2 * time.Second

func newProblem(c code, detail, hint string) problem {
	p := problem{Title: http.StatusText(statuses[c]), Status: statuses[c], Code: c, Kind: kindOf(statuses[c]), Detail: detail, Hint: hint}
	if p.Status == http.StatusServiceUnavailable {
		p.RetryAfter = seconds(awayAfter)
	}
	return p
}

// codes are those of job.Error.
var codes = map[job.Code]code{
	job.CodeFailed:      codeFailed,
	job.CodeUsage:       codeRequest,
	job.CodeInvalid:     codeInvalid,
	job.CodeNotFound:    codeJob,
	job.CodeUnavailable: codeUnavailable,
	job.CodeInterrupted: codeUnavailable,
}

// problemOf returns what a caller is told of an error: a coded error's own words; of any other only that it was
// logged.
func problemOf(err error) problem {
	if p, is := errors.AsType[*problem](err); is {
		return *p
	}
	e, ok := errors.AsType[*job.Error](redisdb.Coded(err))
	if ok && errors.Is(err, redisdb.ErrNewer) {
		return newProblem(codeUnavailable, e.Message, "send it to a dispatcher of the newer version, which is at work already")
	}
	if !ok {
		return newProblem(codeFailed, "something failed here; the dispatcher's log says what", "send the same again: "+knownByID)
	}
	return newProblem(codes[e.Code], e.Message, e.Hint)
}

// Error makes a problem an error.
func (p *problem) Error() string { return p.Detail }

// answer sends the problem as the whole answer.
func (p problem) answer(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	body, err := json.Marshal(p)
	if err != nil { // unreachable: it has only texts and numbers
		body = nil
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// seconds rounds up to whole seconds: a caller that comes slightly early is refused again.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
