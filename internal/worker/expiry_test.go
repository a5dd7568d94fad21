package worker_test

import (
	"context"
	"testing"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/worker"
)

// slowPacer has other slots only behind a moment.
type slowPacer struct {
	*pacer
	behind time.Time
}

func (p slowPacer) wait(ctx context.Context) error {
	select {
	case <-clock.Real{}.After(time.Until(p.behind)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p slowPacer) Take(ctx context.Context, cost int64, id string) (job.Slot, error) {
	if err := p.wait(ctx); err != nil {
		return job.Slot{}, err
	}
	return p.pacer.Take(ctx, cost, id)
}

func (p slowPacer) Retake(ctx context.Context, cost int64, id string) (job.Slot, error) {
	if err := p.wait(ctx); err != nil {
		return job.Slot{}, err
	}
	return p.pacer.Retake(ctx, cost, id)
}

// slowSender waits for a moment, and then asks whether it is too late for the call, as the gate of a connection does.
type slowSender struct {
	*sender
	until time.Time
}

func (s slowSender) Send(ctx context.Context, c job.Request) job.Result {
	<-clock.Real{}.After(time.Until(s.until))
	if c.TooLate(time.Now()) {
		return job.Result{Stage: job.NotSent, Late: true}
	}
	return s.sender.Send(ctx, c)
}

// A job may expire between its opening and its call: while it waits for its slot, or for another one.
func TestAJobThatExpiresInAWorkersHandsIsNotCalled(t *testing.T) {
	t.Parallel()
	const lives = 300 * time.Millisecond
	for name, wait := range map[string]func(*rig, time.Time) int64{
		"its slot has passed, and the next one is behind it": func(r *rig, behind time.Time) int64 {
			r.pacer.passed, r.pacer.retakes = true, 1
			r.made.Pacer = slowPacer{r.pacer, behind}
			return 1
		},
		"its slot costs less than the job": func(r *rig, behind time.Time) int64 {
			r.made.Pacer = slowPacer{r.pacer, behind}
			return 2
		},
		"its slot is behind it": func(r *rig, behind time.Time) int64 {
			r.made.Sender = slowSender{r.sender, behind}
			return 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, answered(200, nil), true)
			expires := time.Now().Add(lives)
			cost := wait(r, expires.Add(lives/3))
			r.w = worker.New(r.made)
			r.accept(job.Job{ID: "j", Cost: cost, Expires: expires})
			r.deliver("j")
			// On a busy machine it may have expired before it was opened.
			if rec := r.record("j"); rec.State != job.Queued && rec.Reason != job.Expired || rec.Spent != 0 || len(r.sender.keys) != 0 {
				t.Fatalf("%s after %d calls and %d attempts; want it back in the queue, uncalled", rec.State, len(r.sender.keys), rec.Spent)
			}
			<-clock.Real{}.After(time.Until(expires) + time.Millisecond)
			if r.record("j").State == job.Queued {
				r.deliver("j")
			}
			if rec := r.record("j"); rec.Reason != job.Expired || len(r.sender.keys) != 0 {
				t.Errorf("reason %q after %d calls", rec.Reason, len(r.sender.keys))
			}
		})
	}
}
