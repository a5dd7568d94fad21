package redisdb

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// The kinds of an Error, for errors.Is.
var (
	// ErrURL is an address that can't be used.
	ErrURL = errors.New("unusable Redis address")
	// ErrAway is a Redis that can't answer now and may in a moment.
	ErrAway = errors.New("redis is away")
	// ErrDenied is a Redis that answers and refuses us: user, password, rights or database.
	ErrDenied = errors.New("redis refuses us")
)

// Error says what is wrong with Redis, and what to do. It never holds a password.
type Error struct {
	Kind    error  // ErrURL, ErrAway, ErrDenied or ErrNewer
	Message string // what is wrong
	Hint    string // what to do
	Err     error  // the cause; may be nil
}

// Error returns the message with its cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the kind, and the cause if there is one.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// As makes it a *job.Error for errors.As: usage for an address that can't be used and for data of a newer format, failed where Redis refuses us, unavailable where it is away.
func (e *Error) As(target any) bool {
	coded, ok := target.(**job.Error)
	if !ok {
		return false
	}
	*coded = &job.Error{Code: job.CodeFailed, Message: e.Message, Hint: e.Hint, Err: e.Err}
	switch {
	case errors.Is(e.Kind, ErrURL), errors.Is(e.Kind, ErrNewer):
		(*coded).Code = job.CodeUsage
	case errors.Is(e.Kind, ErrAway):
		(*coded).Code = job.CodeUnavailable
	}
	return true
}

func usage(message, hint string) error {
	return &Error{Kind: ErrURL, Message: message, Hint: hint}
}

// notNow begins the answers of a Redis that can't do it now, each with what makes it so.
var notNow = []string{
	"LOADING",     // reads its data after a start
	"READONLY",    // was demoted; the new primary is elsewhere
	"OOM",         // full
	"CLUSTERDOWN", // a part of the cluster is away
	"MASTERDOWN",  // a replica that lost its primary
	"TRYAGAIN",    // keys are being moved
	"MOVED",       // slots moved faster than the client followed
	"ASK",
	"NOREPLICAS", // too few replicas to take a write (min-replicas-to-write)
	"MISCONF",    // can't write its disk and takes no more writes
	"BUSY",       // a script runs for too long
	"UNBLOCKED",  // a fail-over ended a blocking command
	"ERR max number of clients reached",
}

// nonLocal is in the answer of a script that comes upon a key which is on another node for now, because its slot is being moved. Of a key that
// the script was called with, TRYAGAIN says so. What is before these words and behind them differs between the versions.
const nonLocal = "attempted to access a non local key"

// silent begins what the driver itself says when it reaches nobody; it has no types for these.
var silent = []string{"redis: all sentinels specified in configuration are unreachable", "redis: cluster has no nodes"}

// Away reports whether err, from any call to Redis, means "not now": nobody answers, or the answer is one of
// Redis's own for a start, a fail-over or a full memory. It says nothing on whether a command has run: after a time-out
// it may have.
func Away(err error) bool {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) {
		return false
	}
	return errors.Is(err, ErrAway) || unreachable(err) || says(err, notNow) || says(err, silent) || strings.Contains(err.Error(), nonLocal)
}

func unreachable(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, redis.ErrPoolTimeout, redis.ErrPoolExhausted} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, lost := errors.AsType[*lostError](err)
	return lost
}

// says looks at the beginning of the answer and, since Redis 6.2 puts a script's error behind a text of its own, also
// for "-CODE " within. Wrapping adds text in front, so each error of the chain is looked at.
func says(err error, answers []string) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		text := err.Error()
		for _, a := range answers {
			if text == a || strings.HasPrefix(text, a+" ") || strings.Contains(text, " -"+a+" ") {
				return true
			}
		}
	}
	return false
}

func denied(err error) bool {
	return redis.IsAuthError(err) || redis.IsPermissionError(err) ||
		says(err, []string{"ERR DB index", "ERR invalid DB index", "ERR AUTH", "WRONGPASS", "NOAUTH", "NOPERM"})
}
