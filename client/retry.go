package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The wait before a try grows from backoffLeast, twice as long each time, to backoffMost, and is between half of that and all of it.
const (
	backoffLeast = 200 * time.Millisecond
	backoffMost  = 15 * time.Second
)

// backoff is the waits of one call.
type backoff struct {
	c     *Client
	next  time.Duration
	until time.Time // nobody waits beyond it; zero: no end
}

func (c *Client) backoff() *backoff {
	return &backoff{c: c, next: backoffLeast, until: time.Now().Add(c.patience)}
}

// reset begins anew: something has gone well.
func (b *backoff) reset() {
	b.next = backoffLeast
	if !b.until.IsZero() {
		b.until = time.Now().Add(b.c.patience)
	}
}

// pause waits until what failed may be tried again. It returns the error that ends the call: what failed, where that does not pass or patience is at its end; or why the context has ended,
// and what failed last.
func (b *backoff) pause(ctx context.Context, failed *Error) error {
	if err := ended(ctx, failed); err != nil {
		return err
	}
	if !failed.passing() {
		return failed
	}
	wait := b.next/2 + rand.N(b.next/2+1)
	b.next = min(2*b.next, backoffMost)
	if asked := failed.RetryAfter; asked > 0 { // not all at the same moment
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

// ended returns why the context has ended, and what failed last; nil if it has not.
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
