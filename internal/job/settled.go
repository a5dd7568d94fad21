package job

import "time"

// InDoubt says that nobody knows whether the job was charged: a call with its present key may have done it.
func (r Record) InDoubt() bool { return r.Unsure || r.Reason == UnknownOutcome }

// Waits says that the job is neither parked, nor called, nor over: it waits for its call.
func (r Record) Waits() bool { return r.State == Queued || r.State == Scheduled || r.State == Retrying }

// Settlement is how a person last settled what a job's calls came to.
type Settlement struct {
	Done bool      // it was charged; if not, it was not
	At   time.Time // on Redis's clock; zero if nobody settled the job
	Act  string    // the act's place in the gateway's trail, which says who and why; empty where none was written
}
