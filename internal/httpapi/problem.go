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

// problem is an answer that says no (RFC 9457). In the answer to many jobs it is the line of one of them.
type problem struct {
	Line   int    `json:"line,omitempty"` // of the body, counted from 1; many jobs alone
	ID     string `json:"id,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   code   `json:"code"`
	// Kind is the class of what is wrong, which is the exit code of the command line.
	Kind   job.Code `json:"kind,omitempty"`
	Detail string   `json:"detail"`
	Hint   string   `json:"hint,omitempty"`
	// RetryAfter is when to come again, in seconds; 0: that would not help. It is in the header too.
	RetryAfter int64 `json:"retry_after,omitempty"`
	// NeedsRole is the role that was needed, and Role the one that the token has; of the code forbidden alone.
	NeedsRole string     `json:"needs_role,omitempty"`
	Role      roles.Role `json:"role,omitempty"`
	// Lines are the problems of each line, where nothing of what begins a body of many jobs could be taken in.
	Lines []problem `json:"lines,omitempty"`
}

// code says for a program what is wrong. Codes are never renamed.
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

// kindOf is the class of a problem, by its status.
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

// awayAfter is when to come again while Redis is away or the dispatcher stops.
const awayAfter = 2 * time.Second

func newProblem(c code, detail, hint string) problem {
	p := problem{Title: http.StatusText(statuses[c]), Status: statuses[c], Code: c, Kind: kindOf(statuses[c]), Detail: detail, Hint: hint}
	if p.Status == http.StatusServiceUnavailable {
		p.RetryAfter = seconds(awayAfter)
	}
	return p
}

// codes are those of our errors.
var codes = map[job.Code]code{
	job.CodeFailed:      codeFailed,
	job.CodeUsage:       codeRequest,
	job.CodeInvalid:     codeInvalid,
	job.CodeNotFound:    codeJob,
	job.CodeUnavailable: codeUnavailable,
	job.CodeInterrupted: codeUnavailable,
}

// problemOf is what a caller hears of an error: a coded one's own words, of any other nothing but that the log knows more.
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

// Error makes a problem an error, which ends what it stands for.
func (p *problem) Error() string { return p.Detail }

// answer sends the problem as the whole answer.
func (p problem) answer(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	body, err := json.Marshal(p)
	if err != nil { // unreachable: it has texts and numbers alone
		body = nil
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// seconds are whole ones, rounded up: who comes a little too early is refused again.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
