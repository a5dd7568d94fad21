package redisdb

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// The kinds of an Error, for errors.Is.
var (
	// ErrURL means that an address is unusable.
	ErrURL = errors.New("unusable Redis address")
	// ErrAway means that Redis can't answer now, but may in a moment.
	ErrAway = errors.New("redis is away")
	// ErrDenied means that Redis answers and refuses access: user, password, permission or database.
	ErrDenied = errors.New("redis refuses us")
)

// Error says what is wrong with Redis, and what to do. It never contains a password.
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

// As makes it a *job.Error for errors.As, with code usage for an unusable address and for data in a newer format,
// failed if Redis refuses access, and unavailable if it is unreachable.
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

// notNow are the prefixes of replies that mean "not now", each with the reason.
var notNow = []string{
	"LOADING",     // loading its data after a start
	"READONLY",    // was demoted; the new primary is elsewhere
	"OOM",         // full
	"CLUSTERDOWN", // a part of the cluster is down
	"MASTERDOWN",  // a replica that lost its primary
	"TRYAGAIN",    // keys are being moved
	"MOVED",       // slots moved faster than the client could follow
	"ASK",
	"NOREPLICAS", // too few replicas for a write (min-replicas-to-write)
	"MISCONF",    // can't write to its disk and accepts no writes
	"BUSY",       // a script has been running for too long
	"UNBLOCKED",  // a failover ended a blocking command
	"ERR max number of clients reached",
}

// nonLocal is part of a script's error for a key that is temporarily on another node, because its slot is being moved.
// For keys passed to the script, Redis replies TRYAGAIN instead. The text before and after differs between versions.
const nonLocal = "attempted to access a non local key"

// silent are the prefixes of the driver's own errors when it reaches no server; it has no error types for these.
var silent = []string{"redis: all sentinels specified in configuration are unreachable", "redis: cluster has no nodes"}

// Away reports whether err, from any call to Redis, means "not now": there was no reply, or one of Redis's own replies
// for a start, a failover or full memory. It does not tell whether a command has run: after a timeout it may have.
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

// says checks the beginning of the reply. Since Redis 6.2 puts text of its own before a script's error, it also looks
// for "-CODE " within. Wrapping adds text in front, so it checks each error of the chain.
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

// awayError marks an error that means that Redis can't serve a command now. The mark is needed because a disk or
// another server may fail with similar errors.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// Coded gives the code unavailable to a command's error that means "not now", and returns others unchanged. Only code
// that shows errors to people needs it.
func Coded(err error) error {
	if _, coded := errors.AsType[*job.Error](err); coded {
		return err
	}
	if _, away := errors.AsType[*awayError](err); !away {
		return err
	}
	return &job.Error{Code: job.CodeUnavailable, Message: "Redis can't do this now", Err: err, Hint: remedy(err)}
}

// remedies are what to do about the replies that don't end by themselves, or not soon.
var remedies = []struct{ reply, hint string }{
	{"LOADING", "it is loading its data after a start, which ends by itself: wait, then try again; redis-cli INFO persistence says how far it is"},
	{"OOM", "its memory is full: raise maxmemory, with maxmemory-policy noeviction; then try again"},
	{"READONLY", "this Redis is a replica: give the address of the primary, or use redis-sentinel://; after a fail-over, try again"},
	{"NOREPLICAS", "bring its replicas back, or lower min-replicas-to-write, which lets a network split lose more; then try again"},
	{"MISCONF", "it can't write its disk: look at Redis's log and at the space there; then try again"},
	{"BUSY", "a script has been running for long: wait, or end it with redis-cli SCRIPT KILL; if that says UNKILLABLE, wait, since SHUTDOWN NOSAVE loses what is not on disk yet"},
	{"ERR max number of clients reached", "stop a program that holds connections (on Redis's machine: ss -tnp), as redis-cli needs one, too; then raise maxclients, and try again"},
}

func remedy(err error) string { return remedyOr(err, "try again when it is back") }

// remedyOr returns what to do about a reply of Redis, or otherwise if nothing is known about it.
func remedyOr(err error, otherwise string) string {
	for _, r := range remedies {
		if says(err, []string{r.reply}) {
			return r.hint
		}
	}
	return otherwise
}

// marking is a client hook that turns each error that means "not now" into an awayError.
type marking struct{}

// DialHook implements redis.Hook.
func (marking) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (marking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if !Away(err) {
			return err
		}
		err = &awayError{err}
		cmd.SetErr(err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (marking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil {
			return nil
		}
		for _, cmd := range cmds {
			if failed := cmd.Err(); Away(failed) {
				cmd.SetErr(&awayError{failed})
			}
		}
		if Away(err) {
			err = &awayError{err}
		}
		return err
	}
}

// awayWait is the pause of Patiently between two tries.
const awayWait = 200 * time.Millisecond

// Patiently repeats a step until it gets a reply, as long as Redis is unreachable, for within from now. Zero means one
// try. After a try whose reply was lost, the step may have run, so it must be repeatable. The error is the last try's,
// or ctx's own if that ended first.
func Patiently(ctx context.Context, within time.Duration, step func(context.Context) error) error {
	enough := time.Now().Add(within)
	for {
		err := step(ctx)
		if !Away(err) || time.Until(enough) <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(awayWait, time.Until(enough))):
		}
	}
}

// telling returns the step, which calls tell with the error of the first try that will be repeated.
func telling(step func(context.Context) error, tell func(error)) func(context.Context) error {
	var once sync.Once
	return func(ctx context.Context) error {
		err := step(ctx)
		if Away(err) {
			once.Do(func() { tell(err) })
		}
		return err
	}
}

// unsent gives the commands of a pipeline that was not sent the error of the pipeline. If Redis refuses a new
// connection (BUSY, LOADING), the driver returns that error but leaves the commands with neither a reply nor an error.
// Code that checks a single command, as the queue does for each dequeue, would take that for an empty reply.
type unsent struct{}

// DialHook implements redis.Hook.
func (unsent) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (unsent) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (unsent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil {
			return nil
		}
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				return err // those without an error have their replies
			}
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// refusals are the replies of a Redis that serves reads but not writes, each with an explanation.
var refusals = map[string]string{
	"OOM":        "it is full (maxmemory)",
	"MISCONF":    "it can't write its disk",
	"READONLY":   "it is a replica",
	"NOREPLICAS": "too few of its replicas are there (min-replicas-to-write)",
}

// Writable checks whether Redis accepts writes for these gateways: in a cluster, on each primary that has one of them.
// It changes nothing. The error is an *Error if Redis answers and refuses, or else any error of a command.
func (db *DB) Writable(ctx context.Context, gateways []string) error {
	if !strings.HasPrefix(db.at.scheme, "redis-cluster") && len(gateways) > 1 {
		gateways = gateways[:1]
	}
	asked, err := db.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, g := range gateways {
			probe(ctx, p, g)
		}
		return nil
	})
	for _, a := range asked {
		if why := refusal(a.Err()); why != "" {
			return &Error{ErrAway, "Redis takes no writes, so no job goes in or out: " + why, "see what dispatcher doctor says of Redis", a.Err()}
		}
	}
	if err == redis.Nil {
		return nil
	}
	return err
}

// Refuses returns why Redis refuses writes for a gateway; empty if it accepts them. The error is any other of the command.
func Refuses(ctx context.Context, c redis.UniversalClient, gateway string) (why string, err error) {
	err = probe(ctx, c, gateway).Err()
	if why = refusal(err); why != "" || err == redis.Nil {
		return why, nil
	}
	return "", err
}

// probe sends a command that Redis refuses like any write, and that otherwise finds nothing to set.
func probe(ctx context.Context, c redis.Cmdable, gateway string) *redis.StatusCmd {
	return c.SetArgs(ctx, NewKeys(gateway).Nobodys(), "", redis.SetArgs{Mode: "XX"})
}

func refusal(err error) string {
	for answer, why := range refusals {
		if says(err, []string{answer}) {
			return why
		}
	}
	return ""
}

// Forgets returns which acknowledged writes this server may lose in a crash, and what to do; empty if none. wait is how
// many replicas have each write before it is acknowledged.
func (h Health) Forgets(wait int) (what, hint string) {
	const always = "set appendfsync to always: redis-cli CONFIG SET appendfsync always, and in its configuration file"
	switch {
	case !h.AOF:
		return "Redis keeps no append-only file and may forget all since its last snapshot", turnOn + "; then " + always
	case h.Replicas > 0 && wait == 0:
		return "a fail-over may forget the last moments (wait_replicas is 0)", "set wait_replicas: 1"
	case wait > 0:
		return "", "" // a replica has it, too
	case h.Fsync == "everysec":
		return "a power cut may make Redis forget the last second (appendfsync everysec)", always
	case h.Fsync == "no":
		return "a power cut may make Redis forget the last half minute (appendfsync no)", always
	case h.Fsync == "":
		return "a power cut may make Redis forget the last moments, unless appendfsync is always, which could not be looked up", always
	}
	return "", ""
}
