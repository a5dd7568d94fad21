package doctor

import (
	"context"
	"sync"
	"time"

	"spillway/internal/job"
)

// Examined is a report and its time.
type Examined struct {
	At time.Time `json:"at"`
	Report
}

// Findings returns the checks of a level, in order.
func (e Examined) Findings(level Level) (all []Check) {
	for _, c := range e.Checks {
		if c.Level == level {
			all = append(all, c)
		}
	}
	return all
}

// Examiner makes reports for several callers, one at a time and not too often, so that many callers cause
// little load on gateways and Redis. It is safe for concurrent use.
type Examiner struct {
	params func() Params
	mu     sync.Mutex
	last   *Examined
	under  chan struct{} // closed when the running examination is over; nil: none
}

// NewExaminer returns an Examiner that calls params for each examination.
func NewExaminer(params func() Params) *Examiner { return &Examiner{params: params} }

const (
	// fresh is how long a report is reused.
	fresh = time.Minute
	// examineWithin bounds one examination: there may be thousands of gateways, some of which don't answer.
	examineWithin = 2 * time.Minute
)

// Last returns the last report, or nil if there is none. If it is old, Last starts an examination and waits for
// it until ctx ends.
func (x *Examiner) Last(ctx context.Context) *Examined {
	x.mu.Lock()
	if x.last != nil && time.Since(x.last.At) < fresh {
		defer x.mu.Unlock()
		return x.last
	}
	if x.under == nil {
		x.under = make(chan struct{})
		go x.examine(x.under)
	}
	under := x.under
	x.mu.Unlock()
	select {
	case <-under:
	case <-ctx.Done():
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}

// Report is Last for a program: an error with code unavailable says that there is no report yet.
func (x *Examiner) Report(ctx context.Context) (Examined, error) {
	if last := x.Last(ctx); last != nil {
		return *last, nil
	}
	return Examined{}, &job.Error{Code: job.CodeUnavailable, Message: "the examination takes longer than this request may", Hint: "ask again in a minute, or run dispatcher doctor"}
}

func (x *Examiner) examine(over chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), examineWithin)
	defer cancel()
	report, err := Run(ctx, x.params())
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		x.last = &Examined{At: time.Now().UTC(), Report: report}
	}
	x.under = nil
	close(over)
}
