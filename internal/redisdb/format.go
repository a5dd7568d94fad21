package redisdb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Format is the number of the form that this program gives to what Redis holds of a gateway: records, lines, books, and what scripts know. It rises when a program
// that knows only the number before would lose, double or damage what this one writes. docs/upgrading.md says what each number stands for. What has no number is
// from before there were any: Format 1 is the same form. Scripts hold it against what is there by barred (NowLua).
const Format = "1"

// ErrNewer is data of a newer format than this program knows.
var ErrNewer = errors.New("data of a newer format")

// newer begins the error of a script that refuses such data; its format follows.
const newer = "NEWER "

// NewerError is the error of a gateway whose data is of that format.
func NewerError(gateway, format string) error {
	return &Error{Kind: ErrNewer, Message: fmt.Sprintf("Redis's data of gateway %s is of format %s, written by a newer version of Spillway; this one knows formats up to %s, so it does nothing with it", gateway, format, Format),
		Hint: "use the newer version; to go back to this one, restore a backup from before the upgrade (docs/upgrading.md)"}
}

// Newer says whether this program does not know that format; empty is one from before there were numbers.
func Newer(format string) bool {
	n, err := strconv.ParseFloat(strings.TrimSpace(format), 64) // as scripts read it
	known, _ := strconv.ParseFloat(Format, 64)
	return err == nil && n > known
}

// CheckFormat returns an ErrNewer if the data of one of the gateways is of a newer format than this program knows. Keys that are damaged are left to others.
func CheckFormat(ctx context.Context, c redis.UniversalClient, gateways []string) error {
	found := make([]*redis.StringCmd, 0, 2*len(gateways))
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error { // each has its own error
		for _, g := range gateways {
			k := NewKeys(g)
			found = append(found, p.HGet(ctx, k.Alive(), "format"), p.HGet(ctx, k.Counters(), "format"))
		}
		return nil
	})
	for i, cmd := range found {
		format, err := cmd.Result()
		if i%2 == 1 && found[i-1].Val() != "" {
			continue // the dispatchers have written it, which counts
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

// refused gives words to the error of a script that does nothing with a gateway's data, or returns nil.
func refused(gateway string, err error) error {
	switch {
	case says(err, []string{strings.TrimSpace(leaving)}):
		return LeavingError(gateway, strings.TrimPrefix(err.Error(), leaving))
	case says(err, []string{strings.TrimSpace(newer)}):
		return NewerError(gateway, strings.TrimPrefix(err.Error(), newer))
	}
	return nil
}
