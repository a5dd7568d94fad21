package cli

import (
	"errors"
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Each kind of error of Redis has its code, and can be shown with and without a cause.
func TestErrorsOfRedisAreShown(t *testing.T) {
	t.Parallel()
	for kind, want := range map[error]job.Code{redisdb.ErrURL: job.CodeUsage, redisdb.ErrAway: job.CodeUnavailable, redisdb.ErrLate: job.CodeUnavailable, redisdb.ErrDenied: job.CodeFailed} {
		for _, cause := range []error{nil, errors.New("the cause")} {
			err := errors.Join(&redisdb.Error{Kind: kind, Message: "what", Hint: "do", Err: cause}, errors.New("another"))
			var out strings.Builder
			PrintError(&out, "x", err)
			if got := out.String(); !strings.Contains(got, "what") || !strings.Contains(got, "hint: do") || !strings.Contains(got, "another") || job.CodeOf(err) != want {
				t.Errorf("%v with the cause %v: %s, %q", kind, cause, job.CodeOf(err), got)
			}
		}
	}
}
