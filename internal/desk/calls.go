package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// CallsBy says what a row of CallHistory stands for.
type CallsBy string

// The values of CallsBy.
const (
	ByHour    CallsBy = "hour"
	ByGateway CallsBy = "gateway"
)

// ParseCallsBy parses a CallsBy; empty is ByHour. name is the field's name in errors.
func ParseCallsBy(text, name string) (CallsBy, error) {
	switch by := CallsBy(text); by {
	case "":
		return ByHour, nil
	case ByHour, ByGateway:
		return by, nil
	}
	return "", usage("write hour or gateway", "%s %q is neither of the two", name, text)
}

// CallCount is how many calls ended with a given answer and verdict.
type CallCount struct {
	Status  int    `json:"status"` // 0 if there was no answer
	Verdict string `json:"verdict"`
	Calls   int64  `json:"calls"`
}

// Text returns the answer and the verdict for a person.
func (c CallCount) Text() string {
	if c.Status == 0 {
		return "no answer, " + strings.ReplaceAll(c.Verdict, "_", " ")
	}
	return fmt.Sprintf("%d %s", c.Status, strings.ReplaceAll(c.Verdict, "_", " "))
}

// CallsRow is the calls of an hour over all gateways, or of a gateway over all hours.
type CallsRow struct {
	Hour    *time.Time  `json:"hour,omitempty"` // start of the hour
	Gateway string      `json:"gateway,omitempty"`
	Calls   int64       `json:"calls"`
	Answers []CallCount `json:"answers"` // most frequent first
}

// Done returns how many of the calls succeeded.
func (r CallsRow) Done() (n int64) {
	for _, c := range r.Answers {
		if c.Verdict == string(job.VerdictDone) {
			n += c.Calls
		}
	}
	return n
}

// Text returns the answers for a person.
func (r CallsRow) Text() string {
	parts := make([]string, len(r.Answers))
	for i, c := range r.Answers {
		parts[i] = c.Text() + " " + job.CountText(c.Calls)
	}
	return strings.Join(parts, ", ")
}

// CallHistory is how many calls ended in the last hours, by their answers, without look-ups.
type CallHistory struct {
	Since time.Time  `json:"since"` // start of the first hour
	All   CallsRow   `json:"all"`
	Rows  []CallsRow `json:"rows"` // by hour: every hour, oldest first; by gateway: those that were called, most calls first
}

// CallHistory counts the calls of the desk's gateways, from the start of the hour of since. If since is zero,
// or before the hours that are stored, it counts all of these. It reads one hash for each gateway.
func (d *Desk) CallHistory(ctx context.Context, since time.Time, by CallsBy) (CallHistory, error) {
	now, err := d.now(ctx)
	if err != nil {
		return CallHistory{}, err
	}
	first := now.Truncate(time.Hour).Add(-ledger.HoursKept * time.Hour)
	if since.After(first) {
		first = since.UTC().Truncate(time.Hour)
	}
	found, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) ([]ledger.AnswersOf, error) { return g.Books.Answers(ctx, now) })
	if err := cmp.Or(errs...); err != nil {
		return CallHistory{}, err
	}
	h := CallHistory{Since: first, Rows: []CallsRow{}}
	var all rowSum
	hours := make([]rowSum, max(int(now.Sub(first)/time.Hour)+1, 0))
	for i, of := range found {
		var here rowSum
		for _, a := range of {
			at := int(a.Hour.Sub(first) / time.Hour)
			if a.Hour.Before(first) || at >= len(hours) {
				continue
			}
			all.add(a)
			here.add(a)
			hours[at].add(a)
		}
		if by == ByGateway && here.calls > 0 {
			h.Rows = append(h.Rows, here.row(nil, d.Gateways[i].Name))
		}
	}
	if by == ByHour {
		for i := range hours {
			at := first.Add(time.Duration(i) * time.Hour)
			h.Rows = append(h.Rows, hours[i].row(&at, ""))
		}
	}
	if by == ByGateway {
		slices.SortStableFunc(h.Rows, func(a, b CallsRow) int { return cmp.Compare(b.Calls, a.Calls) })
	}
	h.All = all.row(nil, "")
	return h, nil
}

// now returns the time on Redis's clock; zero if the desk has no gateway.
func (d *Desk) now(ctx context.Context) (time.Time, error) {
	if len(d.Gateways) == 0 {
		return time.Time{}, nil
	}
	now, err := d.Gateways[0].redis.Time(ctx).Result()
	return now.UTC(), err
}

// rowSum adds up calls by answer and verdict.
type rowSum struct {
	calls int64
	by    map[CallCount]int64
}

func (s *rowSum) add(a ledger.AnswersOf) {
	if s.by == nil {
		s.by = map[CallCount]int64{}
	}
	s.calls += a.Calls
	s.by[CallCount{Status: a.Status, Verdict: a.Verdict}] += a.Calls
}

func (s *rowSum) row(hour *time.Time, gateway string) CallsRow {
	r := CallsRow{Hour: hour, Gateway: gateway, Calls: s.calls, Answers: make([]CallCount, 0, len(s.by))}
	for c, n := range s.by {
		c.Calls = n
		r.Answers = append(r.Answers, c)
	}
	slices.SortFunc(r.Answers, func(a, b CallCount) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Status, b.Status), strings.Compare(a.Verdict, b.Verdict))
	})
	return r
}
