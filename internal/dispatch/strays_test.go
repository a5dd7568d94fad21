package dispatch

import (
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

const slow = "leak: {limits: [2/s]}\nadmission: {limits: [2/s], burst: 100}"

// A slot whose task never asks for it does not make later jobs too late for theirs.
func TestOneForeignTaskDoesNotStopASlowGateway(t *testing.T) {
	t.Parallel()
	r := setup(t, slow)
	r.overdue("email-1")
	r.put(0, 12)
	r.serve()
	testkit.Eventually(t, 15*time.Second, "twelve calls at two a second", func() bool { return r.count() == 12 })
}

// asynq puts aside a task whose deadline has passed. The task is parked as unreadable, and nothing of it is left in the queue.
func TestAForeignTaskThatAsynqPutAsideIsParked(t *testing.T) {
	t.Parallel()
	r := setup(t, slow)
	r.overdue("email-1")
	d := r.serve()
	testkit.Eventually(t, 15*time.Second, "the task to be parked", func() bool {
		d.units()[0].sweeper.nudge()
		return r.standing(0).Parked[job.Unreadable] == 1
	})
	k := redisdb.NewKeys(r.cfg.Gateways[0].Name)
	testkit.Eventually(t, 5*time.Second, "asynq's keys to be empty", func() bool {
		return r.db.Client.Exists(t.Context(), k.Task("email-1"), k.AsynqRetry(), k.Active(), k.Lease()).Val() == 0
	})
}
