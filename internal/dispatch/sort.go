package dispatch

import (
	"context"
	"time"
)

// sortEvery is how often jobs are looked for whose class the file does not have: a process with another file may take in more.
const sortEvery = time.Minute

// sort puts jobs of classes that the file has no more behind those of the usual class: nobody would pull them.
func (u *unit) sort(ctx context.Context) time.Duration {
	moved, err := u.now().books.Unclass(ctx)
	switch {
	case err != nil:
		u.complain(ctx, "jobs of classes that the file has no more not put behind the others, trying again", err)
		return loopBackoff
	case moved > 0:
		u.log.Info("jobs of classes that the file has no more stand behind the others now", "jobs", moved)
		u.pacer.Wake()
	}
	return sortEvery
}
