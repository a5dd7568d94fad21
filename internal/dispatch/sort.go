package dispatch

import (
	"context"
	"time"
)

// laned says whether the gateway's jobs are called by their lanes, or by routes with limits.
func (u *unit) laned() bool {
	u.pacing.Lock()
	defer u.pacing.Unlock()
	return u.kept.Laned()
}

// sortEvery is how often jobs are looked for whose class the file does not have: a process with another file may take in more.
const sortEvery = time.Minute

// sortSoon is when jobs are looked for again that stay in lanes for now.
const sortSoon = 5 * time.Second

// sort puts jobs of classes that the file has no more behind those of the usual class: nobody would pull them.
func (u *unit) sort(ctx context.Context) time.Duration {
	moved, err := u.now().books.Unclass(ctx)
	next := sortEvery
	if err == nil && !u.laned() {
		var back int64
		var others bool
		if back, others, err = u.now().books.Unlane(ctx); others {
			next = sortSoon
		}
		if back > 0 {
			u.log.Info("jobs that stood in lanes are in the queue's lines again, as the file has no lanes any more", "jobs", back)
			u.pacer.Wake()
		}
	}
	switch {
	case err != nil:
		u.complain(ctx, "jobs of classes or lanes that the file has no more not put where they belong, trying again", err)
		return loopBackoff
	case moved > 0:
		u.log.Info("jobs of classes that the file has no more stand behind the others now", "jobs", moved)
		u.pacer.Wake()
	}
	return next
}
