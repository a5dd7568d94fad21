package dispatch

import (
	"context"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// lapseFor bounds one round of parking expired jobs. The next one begins with the next job that is found expired.
const lapseFor = time.Second

// noting is the books of calls. A unit follows what they record: the mover is told about each back-off, so that a retry is
// moved when it is due, and a job that was pulled in vain has those behind it looked at.
type noting struct {
	*ledger.Books
	u *unit
}

func (n noting) Open(ctx context.Context, id string, generation int64, owner string, deadline time.Duration) (job.Attempt, job.Opening, error) {
	a, opening, err := n.Books.Open(ctx, id, generation, owner, deadline)
	if err == nil && (opening == job.OpenExpired || opening == job.OpenStale) { // stale: a process died before it had removed the tasks of expired jobs
		n.u.lapse(ctx, n.Books, id)
	}
	return a, opening, err
}

func (n noting) Back(ctx context.Context, a job.Attempt, e job.Ending, wait time.Duration) error {
	err := n.Books.Back(ctx, a, e, wait)
	if wait > 0 {
		n.u.mover.nudge()
	}
	return err
}

// lapse parks the expired jobs that wait behind one that was pulled at a slot. Otherwise each of them would take a slot,
// and the gateway would make no calls meanwhile.
func (u *unit) lapse(ctx context.Context, books *ledger.Books, id string) {
	if !u.lapsing.TryLock() {
		return
	}
	defer u.lapsing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lapseFor)
	defer cancel()
	for ctx.Err() == nil {
		parked, err := books.Lapse(ctx, id)
		for _, id := range parked {
			u.now().worker.Parked(id, job.Expired)
		}
		if err != nil {
			u.complain(ctx, "expired jobs not parked before they are pulled", err)
		}
		if err != nil || len(parked) == 0 {
			return
		}
	}
}
