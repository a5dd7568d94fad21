package worker_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/worker"
)

// tardySender has a connection only when the slot has passed, and asks for another one, as the gate of a connection does.
type tardySender struct{ *sender }

func (s tardySender) Send(ctx context.Context, c job.Request) job.Result {
	if _, ok := c.Again(); !ok {
		return job.Result{Stage: job.NotSent, Late: true, Err: errors.New("late")}
	}
	return s.sender.Send(ctx, c)
}

// A call that gets its connection late is made at another slot, and the first one is given back. Without another slot, the job goes back uncalled.
func TestACallTakesAnotherSlotWhileItHasItsConnection(t *testing.T) {
	t.Parallel()
	for retakes, want := range map[int]job.State{1: job.Done, 0: job.Queued} {
		r := setup(t, answered(http.StatusOK, nil), true)
		r.pacer.retakes = retakes
		r.made.Sender = tardySender{r.sender}
		r.w = worker.New(r.made)
		r.accept(job.Job{ID: "j"})
		s := r.deliver("j")
		rec := r.record("j")
		if rec.State != want || len(r.sender.keys) != retakes || rec.Spent != 0 && want != job.Done {
			t.Errorf("%d slots: %s after %d calls and %d attempts", retakes, rec.State, len(r.sender.keys), rec.Spent)
		}
		if s.released != 1 || s.written != 0 || s.ended != 0 || r.pacer.other.written != retakes || r.pacer.other.ended != retakes || r.pacer.other.released != 0 {
			t.Errorf("%d slots: the first one was released %d times and written %d times, the other one written %d times", retakes, s.released, s.written, r.pacer.other.written)
		}
	}
}

// After the job's expiry no other slot is taken.
func TestACallTakesNoSlotAfterItsTime(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(http.StatusOK, nil), true)
	r.pacer.retakes, r.pacer.behind = 1, time.Minute
	r.made.Sender = tardySender{r.sender}
	r.w = worker.New(r.made)
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Queued || len(r.sender.keys) != 0 || r.pacer.retakes != 1 {
		t.Errorf("%s after %d calls; %d slots are left of one", rec.State, len(r.sender.keys), r.pacer.retakes)
	}
}
