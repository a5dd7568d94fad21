package demo

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"spillway/internal/job"
	"spillway/internal/provider"
)

// Reckoning is the summary of a run. Faults lists the totals that do not agree.
type Reckoning struct {
	Lines     int `json:"lines"`     // of the billing file: jobs, duplicates and invalid ones
	Jobs      int `json:"jobs"`      // accepted: enqueued at once, or parked because there was no room
	Duplicate int `json:"duplicate"` // lines whose job was already known
	Invalid   int `json:"invalid"`   // invalid lines
	Enqueued  int `json:"enqueued"`  // jobs for which there was room
	NoRoom    int `json:"no_room"`   // jobs parked as rejected; they went in by themselves later

	Done     int            `json:"done"`
	Parked   map[string]int `json:"parked"`   // at the end, by reason
	Waiting  int            `json:"waiting"`  // at the end, in any other state
	Refused  int            `json:"refused"`  // jobs that the provider refused before the replay
	Replayed int            `json:"replayed"` // of these, replayed

	Calls        int `json:"calls"`
	Failed       int `json:"failed"`        // calls answered with 500, tried again
	TooMany      int `json:"too_many"`      // calls answered with 429
	Charged      int `json:"charged"`       // charges that the provider made
	ChargedTwice int `json:"charged_twice"` // jobs that it charged more than once

	Limit       string  `json:"limit"`
	MaxInWindow int     `json:"max_in_window"` // the most calls in any rolling window of the limit
	Rate        float64 `json:"rate"`          // calls a second up to the last call before the replay
	Utilisation float64 `json:"utilisation"`   // of the limit, in %, over the middle 80 % of that time
	Seconds     float64 `json:"seconds"`

	Faults []string `json:"faults"`
	allows int      // calls in a window
}

// noteRate stores the rate before the replay begins: the provider gets no calls for a moment then.
func (s *stage) noteRate(r *Reckoning) {
	seen := s.strict.Stats()
	r.Rate, r.Utilisation = tenth(seen.Rate), tenth(100*seen.Utilisation)
}

// reckon compares the books with what the provider saw.
func (s *stage) reckon(ctx context.Context, r *Reckoning) ([]provider.CallLine, error) {
	at, err := s.books.Look(ctx)
	if err != nil {
		return nil, err
	}
	r.Done, r.Parked = int(at.Done), map[string]int{}
	for reason, n := range at.Parked {
		r.Parked[string(reason)] = int(n)
	}
	r.Waiting = int(at.Queued + at.InFlight + at.Scheduled + at.Retrying + at.Pending)
	seen := s.strict.Stats()
	r.Calls, r.Failed, r.TooMany = seen.Calls, seen.Failed, seen.TooMany
	r.Charged, r.ChargedTwice = seen.Charged, seen.ChargedTwice
	r.MaxInWindow, r.allows = seen.MaxInWindow[0], s.p.Limit.N
	r.Faults = r.faults()
	return s.strict.Calls(), nil
}

// faults returns the totals that do not agree.
func (r *Reckoning) faults() []string {
	faults := []string{}
	must := func(holds bool, format string, args ...any) {
		if !holds {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	must(r.Lines == r.Jobs+r.Duplicate+r.Invalid, "of %d lines %d were accounted for", r.Lines, r.Jobs+r.Duplicate+r.Invalid)
	must(r.Jobs == r.Done+r.parked(), "of %d jobs %d are done or parked", r.Jobs, r.Done+r.parked())
	must(r.Waiting == 0, "%d jobs still wait", r.Waiting)
	must(r.Charged == r.Done, "%d jobs are done and %d were charged", r.Done, r.Charged)
	must(r.ChargedTwice == 0, "%d jobs were charged twice", r.ChargedTwice)
	must(r.TooMany == 0, "the provider answered 429 %d times", r.TooMany)
	must(r.MaxInWindow <= r.allows, "a window saw %d calls: the limit is %s", r.MaxInWindow, r.Limit)
	must(r.Replayed == r.Refused, "of %d refused jobs %d were replayed", r.Refused, r.Replayed)
	must(r.Parked[string(job.Refused)] == 0, "%d jobs are refused again", r.Parked[string(job.Refused)])
	return faults
}

func (r *Reckoning) parked() int {
	n := 0
	for _, of := range r.Parked {
		n += of
	}
	return n
}

// Err is nil if the reckoning holds.
func (r *Reckoning) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	return &job.Error{Code: job.CodeFailed, Message: "the reckoning does not hold: " + strings.Join(r.Faults, "; "),
		Hint: "please report this with the lines above"}
}

// WriteText writes the reckoning as text.
func (r *Reckoning) WriteText(w io.Writer) error {
	holds := "and that holds"
	if len(r.Faults) > 0 {
		holds = "WHICH DOES NOT HOLD: " + strings.Join(r.Faults, "; ")
	}
	_, err := fmt.Fprintf(w, `The reckoning
  lines            %s = %s jobs + %d duplicates + %d that can't be used
  jobs             %s = %s done + %s, %s
  at the door      room for %s at once; %s had to wait for room, and went in by themselves
  refused          %d, replayed with a new key when the provider had changed its mind: %d
  calls            %s, of which %d failed with 500 and were tried again
  429s             %d
  charged twice    %d
  worst window     %d calls; the limit is %s
  achieved         %.1f/s; over the middle 80 %%: %.1f %% of the limit
  seconds          %.1f
`,
		number(r.Lines), number(r.Jobs), r.Duplicate, r.Invalid,
		number(r.Jobs), number(r.Done), r.parkedText(), holds,
		number(r.Enqueued), number(r.NoRoom),
		r.Refused, r.Replayed,
		number(r.Calls), r.Failed, r.TooMany, r.ChargedTwice,
		r.MaxInWindow, r.Limit, r.Rate, r.Utilisation, r.Seconds)
	return err
}

func (r *Reckoning) parkedText() string {
	var parts []string
	for _, reason := range job.Reasons() {
		if n := r.Parked[string(reason)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d as %s", n, reason.Words()))
		}
	}
	if len(parts) == 0 {
		return "0 parked"
	}
	return fmt.Sprintf("%d parked (%s)", r.parked(), strings.Join(parts, ", "))
}

func tenth(f float64) float64 { return math.Round(f*10) / 10 }
