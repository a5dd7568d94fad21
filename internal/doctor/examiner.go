package doctor

import (
	"context"
	"sync"
	"time"

	"spillway/internal/job"
)

// Examined is a report, and when it was made.
type Examined struct {
	At time.Time `json:"at"`
	Report
}

// Findings is the checks of that level, in their order.
func (e Examined) Findings(level Level) (all []Check) {
	for _, c := range e.Checks {
		if c.Level == level {
			all = append(all, c)
		}
	}
	return all
}

// Examiner makes reports for all who ask, one at a time and only once in a while: however many ask, gateways and Redis see little of it.
// Safe for concurrent use.
type Examiner struct {
	params func() Params
	mu     sync.Mutex
	last   *Examined
	under  chan struct{} // closed when the examination under way is over; nil: none is
}

// NewExaminer returns one that looks at what params returns at that time.
func NewExaminer(params func() Params) *Examiner { return &Examiner{params: params} }

const (
	// fresh is how long a report is as good as a new one.
	fresh = time.Minute
	// examineWithin bounds one examination: of thousands of gateways, some of which don't answer.
	examineWithin = 2 * time.Minute
)

// Last returns the last report, and nil if there is none. Where that is old it begins another one, and waits for it until ctx ends: then it returns what there is.
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

// Report is Last for a program: an error with the code unavailable says that there is none yet.
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
