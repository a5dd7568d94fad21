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
	mostAnswered = 2000 // dead letters that Answers reads, and as many jobs in a back-off
	mostAnswers  = 50   // kinds of answers that it tells apart
	mostWords    = 90   // characters of what is shown of an answer
)

// unanswered are the reasons for which jobs are parked that no call has led to: the order for people has them last. So where the room ends among them, nothing is
// missing but answers of before, to jobs that were called, waited out a back-off, and were put aside with the others.
var unanswered = []job.Reason{job.Paused, job.Cancelled, job.Expired, job.Rejected}

// errEnough ends a visit.
var errEnough = errors.New("enough")

// Answer is one kind of answer of a gateway: those with the same status and verdict, and the same first words.
type Answer struct {
	Status  int    `json:"status"` // 0 without an answer
	Verdict string `json:"verdict"`
	// Says is its first words, or what went wrong on the way. Names and numbers of single payments are left out.
	Says string `json:"says"`
	Jobs int64  `json:"jobs"`
	// Example is the id of a job that got it, the one that was called last.
	Example string `json:"example"`
	// Last is when that one was called.
	Last time.Time `json:"last"`
}

// Answers is what a gateway last said of its jobs that are parked or wait out a back-off.
type Answers struct {
	Gateway string   `json:"gateway"`
	List    []Answer `json:"answers"` // the most frequent first
	// Looked is how many jobs were looked at. More says that there are others, which were not.
	Looked int  `json:"looked_at"`
	More   bool `json:"more"`
	// Others is how many of the jobs got an answer of a kind that there was no room for.
	Others int64 `json:"others"`
}

// Answers counts the gateway's last answers to jobs that are not done, since a time, of all jobs or of one batch. It reads the records that there are, a few thousand of
// them at most: those of dead letters, what needs a person first, and of jobs in a back-off. A job that was done since is no longer among them.
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

// answerSum counts answers in memory that does not grow with the jobs.
type answerSum struct {
	Answers
	since time.Time
	batch string
	kinds map[Answer]*Answer
}

func (s *answerSum) add(r job.Record) {
	calls := r.Calls() // look-ups are none
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

// ofOne is what differs from payment to payment: words with digits, but for short numbers such as a status.
var ofOne = regexp.MustCompile(`[\w-]*\d[\w-]{3,}`)

// firstWords is the beginning of an error, without what is of a single payment.
func firstWords(text string) string {
	short := []rune(ofOne.ReplaceAllString(text, "…"))
	if len(short) > mostWords {
		return string(short[:mostWords]) + "…"
	}
	return string(short)
}
