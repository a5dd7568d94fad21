package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/internal/deadletter"
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

const (
	mostAnswered = 2000 // dead letters that Answers reads, and the same number of jobs in a back-off
	mostAnswers  = 50   // kinds of answers told apart
	mostWords    = 90   // characters shown of an answer
)

// unanswered are the reasons for which jobs are parked without a call. They are last in the order for people.
// If the limit is reached among them, what is missing are only older answers, to jobs that were called, waited
// for a back-off, and were then parked with the others.
var unanswered = []job.Reason{job.Paused, job.Cancelled, job.Expired, job.Rejected}

// errEnough ends a visit.
var errEnough = errors.New("enough")

// Answer is one kind of answer of a gateway: same status, same verdict, and same first words.
type Answer struct {
	Status  int    `json:"status"` // 0 if there was no answer
	Verdict string `json:"verdict"`
	// Says is its first words, or the transport error, without names and numbers of single payments.
	Says string `json:"says"`
	Jobs int64  `json:"jobs"`
	// Example is the id of a job that got it: the one called last.
	Example string `json:"example"`
	// Last is when that job was called.
	Last time.Time `json:"last"`
}

// Answers is a gateway's last answers to jobs that are parked or wait for a back-off.
type Answers struct {
	Gateway string   `json:"gateway"`
	List    []Answer `json:"answers"` // most frequent first
	// Looked is how many jobs were examined. More says that there are others.
	Looked int  `json:"looked_at"`
	More   bool `json:"more"`
	// Others is how many of the jobs got a kind of answer beyond the limit.
	Others int64 `json:"others"`
}

// Answers counts the gateway's last answers since a time to jobs that are not done, for all jobs or one batch.
// It reads at most a few thousand records: those of dead letters, in the order for people, and those of jobs in
// a back-off. Jobs that are done by now are not included.
func (g *Gateway) Answers(ctx context.Context, since time.Time, batch string) (Answers, error) {
	sum := answerSum{Answers: Answers{Gateway: g.Name}, since: since, batch: batch, kinds: map[Answer]*Answer{}}
	parked := &Selection{Desk: &Desk{Gateways: []*Gateway{g}}, Filter: deadletter.Filter{Batch: batch, Since: since, NoPayload: true, Limit: mostAnswered + 1}}
	n := 0
	err := parked.EachByNeed(ctx, "", func(_ *Gateway, r job.Record) error {
		if n++; n > mostAnswered {
			sum.More = !slices.Contains(unanswered, r.Reason)
			return errEnough
		}
		sum.add(r)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return Answers{}, err
	}
	retrying, more, err := g.Books.Retrying(ctx, mostAnswered)
	for _, r := range retrying {
		sum.add(r)
	}
	sum.More = sum.More || more
	return sum.answers(), err
}

// answerSum counts answers in bounded memory.
type answerSum struct {
	Answers
	since time.Time
	batch string
	kinds map[Answer]*Answer
}

func (s *answerSum) add(r job.Record) {
	calls := r.Calls() // look-ups don't count
	if len(calls) == 0 || s.batch != "" && r.Job.Batch != s.batch {
		return
	}
	last := calls[len(calls)-1]
	if last.At.Before(s.since) {
		return
	}
	s.Looked++
	kind := Answer{Status: last.Status, Verdict: last.Verdict, Says: firstWords(r.Error)}
	a := s.kinds[kind]
	if a == nil && len(s.kinds) == mostAnswers {
		s.Others++
		return
	}
	if a == nil {
		copied := kind
		a = &copied
		s.kinds[kind] = a
	}
	if a.Jobs++; !last.At.Before(a.Last) {
		a.Example, a.Last = r.Job.ID, last.At
	}
}

func (s *answerSum) answers() Answers {
	s.List = make([]Answer, 0, len(s.kinds))
	for _, a := range s.kinds {
		s.List = append(s.List, *a)
	}
	slices.SortFunc(s.List, func(a, b Answer) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), b.Last.Compare(a.Last), strings.Compare(a.Example, b.Example))
	})
	return s.Answers
}

// ofOne matches what differs between payments: words with digits, except short numbers such as a status.
var ofOne = regexp.MustCompile(`[\w-]*\d[\w-]{3,}`)

// firstWords returns the beginning of an error, without what is specific to one payment.
func firstWords(text string) string {
	short := []rune(ofOne.ReplaceAllString(text, "…"))
	if len(short) > mostWords {
		return string(short[:mostWords]) + "…"
	}
	return string(short)
}
