package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is a refusal, or a missing answer.
type Error struct {
	// Code tells programs what is wrong. Codes are never renamed; new ones are added.
	Code Code
	// Status is the HTTP status; 0 if no answer came. A line of a request with many jobs has the status that it would have alone.
	Status int
	// Detail tells people what is wrong. It never has a value of a payload.
	Detail string
	// Hint says what to do; it may be empty.
	Hint string
	// Gateway and JobID say which job it is about; empty if it is about none.
	Gateway, JobID string
	// RetryAfter is when to try again; 0: the answer did not say, or another try would not help.
	RetryAfter time.Duration
	// NeedsRole is the role that was needed, and Role the one that the token has. Only the code Forbidden has them.
	NeedsRole, Role string
	// Err is the cause of a missing answer, such as a *url.Error.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Detail
	if e.JobID != "" && !strings.Contains(text, e.JobID) {
		text = fmt.Sprintf("job %s: %s", e.JobID, text)
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Unwrap returns the cause of a missing answer.
func (e *Error) Unwrap() error { return e.Err }

// Is makes an *Error match its Code: errors.Is(err, client.UnknownJob).
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Code says what is wrong. It is an error itself, so that errors.Is finds it.
type Code string

// Error implements error.
func (c Code) Error() string { return string(c) }

// These are the codes of the API, and one for an answer that did not come.
const (
	NoToken          Code = "no_token" // the token is missing or wrong
	ForeignPage      Code = "foreign_page"
	Forbidden        Code = "forbidden"
	TooManyGuesses   Code = "too_many_guesses"
	UnknownPath      Code = "unknown_path" // the dispatcher is older than this client, or the address is of something else
	UnknownGateway   Code = "unknown_gateway"
	UnknownJob       Code = "unknown_job"
	UnknownBatch     Code = "unknown_batch"
	UnknownRequest   Code = "unknown_request"
	NoOutcomes       Code = "no_outcomes" // the gateway has no outcome feed
	UnknownReader    Code = "unknown_reader"
	MethodNotAllowed Code = "method_not_allowed"
	UnknownMediaType Code = "unknown_media_type"
	InvalidJob       Code = "invalid_job"
	OtherPayload     Code = "other_payload" // the id is known with another payload: the first one stands
	TooLarge         Code = "too_large"
	InvalidRequest   Code = "invalid_request"
	TooSlow          Code = "too_slow"
	NoRoom           Code = "no_room" // admission has no room for the job: nothing was changed
	Unavailable      Code = "unavailable"
	Stopping         Code = "stopping"
	Failed           Code = "failed"
	NotPossible      Code = "not_possible" // as things stand; the detail says why
	Changed          Code = "changed"      // what was previewed is no longer so: nothing was done
	KeyReused        Code = "key_reused"
	UnderWay         Code = "under_way" // the same act is under way

	NoAnswer Code = "no_answer" // no answer came, or none that can be read; what was asked for may have happened
)

// Codes returns the codes of the API.
func Codes() []Code {
	return []Code{NoToken, ForeignPage, Forbidden, TooManyGuesses, UnknownPath, UnknownGateway, UnknownJob, UnknownBatch, UnknownRequest, NoOutcomes, UnknownReader, MethodNotAllowed, UnknownMediaType, InvalidJob, OtherPayload, TooLarge,
		InvalidRequest, TooSlow, NoRoom, Unavailable, Stopping, Failed, NotPossible, Changed, KeyReused, UnderWay}
}

// problem is an error as the API writes it (RFC 9457).
type problem struct {
	Line       int       `json:"line,omitempty"`
	ID         string    `json:"id,omitempty"`
	Title      string    `json:"title"`
	Status     int       `json:"status"`
	Code       Code      `json:"code"`
	Kind       string    `json:"kind,omitempty"` // for the exit code of the command line
	Detail     string    `json:"detail"`
	Hint       string    `json:"hint,omitempty"`
	RetryAfter int64     `json:"retry_after,omitempty"` // seconds
	NeedsRole  string    `json:"needs_role,omitempty"`
	Role       string    `json:"role,omitempty"`
	Lines      []problem `json:"lines,omitempty"`
}

func (p problem) err(gateway string) *Error {
	return &Error{Code: p.Code, Status: p.Status, Detail: p.Detail, Hint: p.Hint, Gateway: gateway, JobID: p.ID, RetryAfter: time.Duration(p.RetryAfter) * time.Second, NeedsRole: p.NeedsRole, Role: p.Role}
}

// errorMost is how much of an error is read, in bytes: of many jobs it has a line for each.
const errorMost = 4 << 20

// refusal reads a refusal. A proxy may have written it in its own words.
func refusal(back *http.Response) (problem, *Error) {
	text, _ := io.ReadAll(io.LimitReader(back.Body, errorMost))
	var p problem
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		p = problem{Status: back.StatusCode, Code: NoAnswer, Detail: fmt.Sprintf("what answers at %s is not a dispatcher: HTTP %d", back.Request.URL.Host, back.StatusCode)}
	}
	e := p.err("")
	if s, err := strconv.ParseInt(back.Header.Get("Retry-After"), 10, 32); err == nil && s > 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return p, e
}

func noAnswer(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: NoAnswer, Detail: "no answer came: " + err.Error(), Err: err}
}

// passing reports whether the same call may succeed later.
func (e *Error) passing() bool {
	switch e.Code {
	case TooManyGuesses: // the token is wrong, and stays so
		return false
	case NoRoom, Unavailable, Stopping, TooSlow, UnderWay:
		return true
	case NoAnswer: // a proxy that has nobody to ask says 502 or 504
		return e.Status == 0 || e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError
	}
	return e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable
}
