package dispatch

import (
	"context"
	"slices"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
)

const (
	// sortEvery is how often jobs are looked for whose class or lanes the file does not have: a process with another file may take in more.
	sortEvery = time.Minute
	// sortSoon is when they are looked for again while another dispatcher has lanes yet, and in the first sortEvery after a reload that took classes or lanes away.
	sortSoon = 5 * time.Second
)

// sort puts jobs of classes that the file has no more behind those of the usual class, and jobs that stand in lanes, where the file has none, into the queue's lines:
// nobody would pull them.
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

// sortAgain returns in how long jobs are looked for again; others: another dispatcher has lanes yet.
func (s *set) sortAgain(others bool, now time.Time) time.Duration {
	if others || s.sheds && now.Sub(s.began) < sortEvery {
		return sortSoon
	}
	return sortEvery
}

// sheds says that jobs may have classes or stand in lanes which the gateway has no more: those that wait for room, or are in hand, come to the queue later.
func sheds(was, is config.Gateway) bool {
	if Laned(was) && !Laned(is) {
		return true
	}
	return slices.ContainsFunc(was.Priority.List(), func(c job.Class) bool {
		return !c.Usual && !slices.ContainsFunc(is.Priority.List(), func(other job.Class) bool { return other.Name == c.Name })
	})
}
