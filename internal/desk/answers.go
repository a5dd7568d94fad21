package desk

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

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
