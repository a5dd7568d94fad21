package desk

import (
	"context"
	"slices"
	"strings"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// NeedCursor returns a parked job's cursor in the order for people: REASON/GATEWAY/STAMP, which is the reason
// followed by its Cursor.
func NeedCursor(r job.Record) string { return string(r.Reason) + "/" + Cursor(r) }

// splitNeed splits a NeedCursor. reason is empty for a plain Cursor: a gateway's name has no slash.
func splitNeed(cursor string) (reason job.Reason, rest string) {
	first, rest, _ := strings.Cut(cursor, "/")
	if strings.Contains(rest, "/") && slices.Contains(job.Reasons(), job.Reason(first)) {
		return job.Reason(first), rest
	}
	return "", cursor
}

// OfPeople reports whether a cursor is one of the order for people.
func OfPeople(cursor string) bool {
	reason, _ := splitNeed(cursor)
	return reason != ""
}

// EachByNeed visits the jobs in the order for people, after a NeedCursor (empty: from the first): by reason,
// those that need an operator first, and within a reason as Each does. It does not report ids that were not
// found. It skips what LeavesOut says.
func (s *Selection) EachByNeed(ctx context.Context, cursor string, visit func(*Gateway, job.Record) error) error {
	first, rest := splitNeed(cursor)
	left := s.Filter.Limit
	for _, r := range s.needed(first) {
		part := &Selection{Desk: s.Desk, Filter: s.Filter}
		part.Filter.Reasons, part.Filter.Limit = []job.Reason{r}, left
		if r == first {
			if err := part.startAt(rest); err != nil {
				return err
			}
		}
		n, err := part.each(ctx, map[string]bool{}, visit)
		if err != nil {
			return err
		}
		if left -= n; s.Filter.Limit > 0 && left == 0 {
			return nil
		}
	}
	return nil
}

// needed returns the reasons that the filter selects, in order, starting at first; empty: at the beginning.
func (s *Selection) needed(first job.Reason) []job.Reason {
	all := job.Reasons()
	return slices.DeleteFunc(all[max(slices.Index(all, first), 0):], func(r job.Reason) bool {
		return len(s.Filter.Reasons) > 0 && !slices.Contains(s.Filter.Reasons, r) || r == job.Rejected && s.LeavesOut()
	})
}

// LeavesOut reports whether a list for people omits the jobs that wait for room: it does unless the filter has
// a reason, an id, a pattern, a lane or a route.
func (s *Selection) LeavesOut() bool {
	return len(s.Filter.Reasons)+len(s.Filter.IDs) == 0 && s.Filter.Match == nil && s.Filter.Lane+s.Filter.Route == ""
}

// ForRoom returns how many jobs that wait for room the rest of the filter selects.
func (s *Selection) ForRoom(ctx context.Context) (n int64, err error) {
	f := deadletter.Filter{Reasons: []job.Reason{job.Rejected}, Batch: s.Filter.Batch, Since: s.Filter.Since, Until: s.Filter.Until}
	for _, g := range s.Gateways {
		heaps, err := g.Store.Count(ctx, f)
		if err != nil {
			return 0, err
		}
		n += heaps[job.Rejected].Jobs
	}
	return n, nil
}
