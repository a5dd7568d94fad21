package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The back-off doubles with each try, from backoffLeast to backoffMost. The wait is a random time between half of it and all of it.
const (
	backoffLeast = 200 * time.Millisecond
	backoffMost  = 15 * time.Second
)

// backoff is the back-off of one call.
type backoff struct {
	c     *Client
	next  time.Duration
	until time.Time // no wait ends after it; zero: no end
}

func (c *Client) backoff() *backoff {
	return &backoff{c: c, next: backoffLeast, until: time.Now().Add(c.patience)}
}

// reset starts again with the shortest wait, after a success.
func (b *backoff) reset() {
	b.next = backoffLeast
	if !b.until.IsZero() {
		b.until = time.Now().Add(b.c.patience)
	}
}

// pause waits until the call may be tried again. It returns the error that ends the call: the failure, if it does not pass or patience is at its end; or the cause of the end of the context,
// with the last failure.
func (b *backoff) pause(ctx context.Context, failed *Error) error {
	if err := ended(ctx, failed); err != nil {
		return err
	}
	if !failed.passing() {
		return failed
	}
	wait := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, backoffMost)
	if asked := failed.RetryAfter; asked > 0 { // with jitter, so that not all clients come at the same moment
		wait = max(wait, asked+rand.N(asked/10+1))
	}
	if !b.until.IsZero() && time.Now().Add(wait).After(b.until) {
		return failed
	}
	if b.c.onRetry != nil {
		b.c.onRetry(Retry{Err: failed, Wait: wait})
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ended(ctx, failed)
	}
}

// ended returns the cause of the end of the context, with the last failure; nil if the context has not ended.
func ended(ctx context.Context, failed *Error) error {
	if ctx.Err() == nil {
		return nil
	}
	why := context.Cause(ctx)
	if failed == nil || errors.Is(failed, why) || errors.Is(failed, ctx.Err()) {
		return why
	}
	return &Error{Code: failed.Code, Status: failed.Status, Detail: failed.Detail, Hint: failed.Hint, Gateway: failed.Gateway, JobID: failed.JobID, RetryAfter: failed.RetryAfter, NeedsRole: failed.NeedsRole, Role: failed.Role, Err: why}
}
