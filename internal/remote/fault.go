package remote

import (
	"context"
	"errors"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Fault is why an act stopped before its end, in an answer that says how far it got.
type Fault struct {
	Detail string   `json:"detail"`
	Hint   string   `json:"hint,omitempty"`
	Kind   job.Code `json:"kind"`

	err error // where it happened here
}

func faultOf(ctx context.Context, err error) *Fault {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	f := &Fault{Detail: err.Error(), Kind: job.CodeOf(redisdb.Coded(err)), err: err}
	if e, is := errors.AsType[*job.Error](err); is {
		f.Hint = e.Hint
	}
	return f
}

// Err is the fault as an error; nil if there is none.
func (f *Fault) Err() error {
	switch {
	case f == nil:
		return nil
	case f.err != nil:
		return f.err
	}
	return &job.Error{Code: f.Kind, Message: f.Detail, Hint: f.Hint}
}
