package desk

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

// Only a limited number of kinds of answers is listed, and the others are counted. Ids of payments in the texts do not make different kinds.
func TestAnswersTakeNoMoreRoomThanTheyMay(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := answerSum{since: now.Add(-time.Hour), kinds: map[Answer]*Answer{}}
	answer := func(id, text string, at time.Time) {
		s.add(job.Record{Job: job.Job{ID: id}, Error: text, History: []job.Call{{At: at, Status: 402, Verdict: "refused"}}})
	}
	for i := range mostAnswers + 7 {
		answer(fmt.Sprint("j", i), "HTTP 402: "+strings.Repeat("x", i+1), now)
	}
	answer("old", "HTTP 402: x", now.Add(-2*time.Hour))
	answer("a", "HTTP 402: x", now.Add(-time.Minute))
	answer("b", "HTTP 402: x", now.Add(time.Minute))
	s.add(job.Record{Job: job.Job{ID: "never called"}})
	got := s.answers()
	if len(got.List) != mostAnswers || got.Others != 7 || got.Looked != mostAnswers+9 || got.List[0].Jobs != 3 || got.List[0].Example != "b" {
		t.Errorf("%d kinds, %d others, %d looked at, first %+v", len(got.List), got.Others, got.Looked, got.List[0])
	}
	for text, want := range map[string]string{
		`HTTP 402: {"id":"ch_3MtwBw","code":"card_declined"}`: `HTTP 402: {"id":"…","code":"card_declined"}`,
		"HTTP 503": "HTTP 503",
		"dial tcp 10.0.0.1:443: connect: connection refused": "dial tcp 10.0.0.1:443: connect: connection refused",
		strings.Repeat("é", 200):                             strings.Repeat("é", mostWords) + "…",
	} {
		if got := firstWords(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// A look-up is not a call: the last answer of a job is that of its last call.
func TestAnswersAreThoseOfCalls(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := answerSum{kinds: map[Answer]*Answer{}}
	called := job.Call{At: now.Add(-time.Minute), Status: 504, Verdict: string(job.VerdictUnknown)}
	asked := job.Call{At: now, Status: 200, Verdict: job.LookLater.InHistory()}
	s.add(job.Record{Job: job.Job{ID: "a"}, Error: "HTTP 504", History: []job.Call{called, asked, asked}})
	s.add(job.Record{Job: job.Job{ID: "never called"}, History: []job.Call{asked}})
	if got := s.answers(); got.Looked != 1 || len(got.List) != 1 || got.List[0].Status != 504 || got.List[0].Verdict != string(job.VerdictUnknown) || !got.List[0].Last.Equal(called.At) {
		t.Errorf("%+v", got)
	}
}
