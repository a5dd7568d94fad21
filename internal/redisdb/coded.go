package redisdb

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

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
	return &job.Error{Code: job.CodeUnavailable, Message: "Redis can't do this now", Err: err, Hint: "try again when it is back"}
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
