package redisdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

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
