package dispatch

import (
	"context"
	"slices"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
)

const (
	// sortEvery is how often jobs are checked for a class or lane that is not configured: a process with
	// another configuration may admit more.
	sortEvery = time.Minute
	// sortSoon is the interval while another dispatcher still has lanes, and in the first sortEvery after a
	// reload that removed classes or lanes.
	sortSoon = 5 * time.Second
)

// sort moves jobs whose class is no longer configured behind those of the default class, and jobs in lanes, if
// none are configured, into the queue's lines. Otherwise they would never be pulled.
func (u *unit) sort(ctx context.Context) time.Duration {
	now := u.now()
	s, err := now.books.Sort(ctx)
	if s.Others {
		u.sorted.Store(nil)
	} else {
		u.sorted.Store(now)
	}
	if s.Unclassed > 0 {
		u.log.Info("jobs of classes that the file has no more stand behind the others now", "jobs", s.Unclassed)
	}
	if s.Unlaned > 0 {
		u.log.Info("jobs that stood in lanes are in the queue's lines again, as the file has no lanes any more", "jobs", s.Unlaned)
	}
	switch {
	case err != nil:
		u.complain(ctx, "jobs of classes or lanes that the file has no more not put where they belong, trying again", err)
		return loopBackoff
	case s.Unclassed+s.Unlaned > 0:
		u.pacer.Wake()
	}
	return now.sortAgain(s.Others, time.Now())
}

// sortAgain returns when to check again. others: another dispatcher still has lanes.
func (s *set) sortAgain(others bool, now time.Time) time.Duration {
	if others || s.sheds && now.Sub(s.began) < sortEvery {
		return sortSoon
	}
	return sortEvery
}

// sheds reports whether jobs may have classes or lanes that the gateway no longer has: jobs that wait for room
// or are in flight enter the queue later.
func sheds(was, is config.Gateway) bool {
	if Laned(was) && !Laned(is) {
		return true
	}
	return slices.ContainsFunc(was.Priority.List(), func(c job.Class) bool {
		return !c.Usual && !slices.ContainsFunc(is.Priority.List(), func(other job.Class) bool { return other.Name == c.Name })
	})
}
