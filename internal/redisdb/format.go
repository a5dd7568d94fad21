package redisdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// Format is the version of the form in which this program stores a gateway's data in Redis: records, lines, totals, and
// what scripts know. It is increased when a program that knows only the previous version would lose, double or damage
// what this one writes. docs/upgrading.md describes each version. Data without a version is older; Format 1 has the
// same form. Scripts compare it with the data in barred (NowLua).
const Format = "1"

// ErrNewer means that data has a newer format than this program knows.
var ErrNewer = errors.New("data of a newer format")

// newer is the prefix of the error of a script that refuses such data; its format follows.
const newer = "NEWER "

// NewerError returns the error for a gateway whose data has that format.
func NewerError(gateway, format string) error {
	return &Error{Kind: ErrNewer, Message: fmt.Sprintf("Redis's data of gateway %s is of format %s, written by a newer version of Spillway; this one knows formats up to %s, so it does nothing with it", gateway, format, Format),
		Hint: "use the newer version; to go back to this one, restore a backup from before the upgrade (docs/upgrading.md)"}
}

// Newer reports whether this program does not know that format. Empty means older than the first version.
func Newer(format string) bool {
	n, err := strconv.ParseFloat(strings.TrimSpace(format), 64) // parsed as scripts do
	known, _ := strconv.ParseFloat(Format, 64)
	return err == nil && n > known
}

// CheckFormat returns an ErrNewer if the data of one of the gateways has a newer format than this program knows. It
// ignores damaged keys.
func CheckFormat(ctx context.Context, c redis.UniversalClient, gateways []string) error {
	found := make([]*redis.StringCmd, 0, 2*len(gateways))
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for _, g := range gateways {
			k := NewKeys(g)
			found = append(found, p.HGet(ctx, k.Alive(), "format"), p.HGet(ctx, k.Counters(), "format"))
		}
		return nil
	})
	for i, cmd := range found {
		format, err := cmd.Result()
		if i%2 == 1 && found[i-1].Val() != "" {
			continue // written by the dispatchers, which takes precedence
		}
		if _, damaged := errors.AsType[*DamagedError](err); err != nil && !errors.Is(err, redis.Nil) && !damaged {
			return err
		}
		if Newer(format) {
			return NewerError(gateways[i/2], format)
		}
	}
	return nil
}

// refused converts the error of a script that refused to touch a gateway's data into one for people, or returns nil.
func refused(gateway string, err error) error {
	switch {
	case says(err, []string{strings.TrimSpace(leaving)}):
		return LeavingError(gateway, strings.TrimPrefix(err.Error(), leaving))
	case says(err, []string{strings.TrimSpace(newer)}):
		return NewerError(gateway, strings.TrimPrefix(err.Error(), newer))
	}
	return nil
}

// leaving is the prefix of the error of a script that refuses a gateway being renamed or forgotten; the action follows.
const leaving = "LEAVING "

// Leaving adds a code and words to the error of a script that refuses a gateway because it is being renamed or
// forgotten, or has data in a newer format (ErrNewer). It returns other errors unchanged.
func Leaving(gateway string, err error) error {
	if words := refused(gateway, err); words != nil {
		return words
	}
	return err
}

// LeavingError returns the error for a gateway being renamed or forgotten; what is "rename OLD NEW" or "forget NAME".
func LeavingError(gateway, what string) error {
	return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("gateway %s is not to be used now: \"dispatcher gateway %s\" was begun and is not over", gateway, what),
		Hint: "wait until it is over; if it was killed, run it again: it goes on"}
}

// Moving returns what is being done to a gateway: "rename OLD NEW", "forget NAME" or "".
func Moving(ctx context.Context, c redis.UniversalClient, gateway string) (string, error) {
	what, err := c.HGet(ctx, NewKeys(gateway).Alive(), "moving").Result()
	if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE") {
		return "", nil
	}
	return what, err
}

// NotLeaving returns an error if a gateway is being renamed or forgotten, or if its data has a newer format than this
// program knows; or nil.
func NotLeaving(ctx context.Context, c redis.UniversalClient, gateway string) error {
	if what, err := Moving(ctx, c, gateway); err != nil || what != "" {
		return cmp.Or(err, LeavingError(gateway, what))
	}
	return CheckFormat(ctx, c, []string{gateway})
}
