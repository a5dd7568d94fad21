package dispatch

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/audit"
	"spillway/internal/clock"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

func anything(ledger.Shelved) error { return nil }

// putBatch admits n jobs of a batch for the first gateway.
func (r *rig) putBatch(batch string, n int) {
	r.t.Helper()
	name := r.cfg.Gateways[0].Name
	var jobs []job.Job
	for i := range n {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("%s-%04d", batch, i), Gateway: name, Payload: []byte(`{}`), Cost: 1, Batch: batch})
	}
	if _, err := Door(r.db.Client, r.cfg, patience).Admit(r.t.Context(), name, jobs, admission.Park); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) batch(name string) record.Batch {
	r.t.Helper()
	b, _, err := Books(r.db.Client, r.cfg.Gateways[0]).Batch(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *rig) inOrder() {
	r.t.Helper()
	g := r.cfg.Gateways[0]
	a, err := audit.New(r.db.Client, g.Name, Books(r.db.Client, g)).Audit(r.t.Context(), audit.Params{Most: 10})
	if err != nil || a.Faults.Total > 0 {
		r.t.Errorf("the audit finds %v, %v", a.Faults.List, err)
	}
}

func at(state job.State, reason job.Reason) record.Place {
	return record.Place{State: state, Reason: reason}
}

const half = "leak: {limits: [200/s]}\nadmission: {limits: [200/s], burst: 300}"

// A batch is cancelled while its jobs are being called. Another batch continues, and a replay brings the first one back.
func TestABatchIsCancelledInMidRunAndReplayed(t *testing.T) {
	t.Parallel()
	plainly(t, half, func(t *testing.T, r *rig) {
		r.putBatch("mistake", 400)
		r.putBatch("good", 20)
		r.serve()
		testkit.Eventually(t, 10*time.Second, "calls", func() bool { return r.count() > 10 })
		g := r.cfg.Gateways[0]
		books := Books(r.db.Client, g)
		if err := books.CancelBatch(t.Context(), "mistake", "me", "wrong file", time.Minute, anything); err != nil {
			t.Fatal(err)
		}
		b := r.batch("mistake")
		done, cancelled := b.Places[at(job.Done, "")].Jobs, b.Places[at(job.Parked, job.Cancelled)].Jobs
		if done+cancelled != 400 || cancelled == 0 {
			t.Errorf("%d are done and %d cancelled, of 400: %v", done, cancelled, b.Places)
		}
		testkit.Eventually(t, 10*time.Second, "the good batch", func() bool { return r.batch("good").Places[at(job.Done, "")].Jobs == 20 })
		if n := r.batch("mistake").Places[at(job.Done, "")].Jobs; n != done {
			t.Errorf("%d jobs of the cancelled batch were called, and then %d", done, n)
		}
		r.inOrder()

		store := deadletter.New(r.db.Client, g.Name)
		replay := deadletter.BulkRun{Store: store, Clock: clock.Real{}, Filter: deadletter.Filter{Reasons: []job.Reason{job.Cancelled}, Batch: "mistake"}}
		if _, err := replay.Replay(t.Context(), books, deadletter.Rules{Keys: true, KeyLifetime: time.Hour, Now: time.Now()}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 20*time.Second, "all of it", func() bool { return r.batch("mistake").Places[at(job.Done, "")].Jobs == 400 })
		if r.count() != 420 {
			t.Errorf("%d calls for 420 jobs", r.count())
		}
		r.inOrder()
	})
}

// While a batch is paused, another one is called and new jobs are admitted. When it is resumed, it continues.
func TestABatchIsPausedInMidRun(t *testing.T) {
	t.Parallel()
	plainly(t, half, func(t *testing.T, r *rig) {
		r.putBatch("slow", 400)
		r.serve()
		testkit.Eventually(t, 10*time.Second, "calls", func() bool { return r.count() > 10 })
		books := Books(r.db.Client, r.cfg.Gateways[0])
		if err := books.PauseBatch(t.Context(), "slow", "me", "bank closed", anything); err != nil {
			t.Fatal(err)
		}
		r.putBatch("slow", 450) // 50 new ones
		r.putBatch("quick", 20)
		testkit.Eventually(t, 10*time.Second, "the other batch", func() bool { return r.batch("quick").Places[at(job.Done, "")].Jobs == 20 })
		var done int64
		testkit.Eventually(t, 10*time.Second, "the calls under way to end", func() bool {
			b := r.batch("slow")
			done = b.Places[at(job.Done, "")].Jobs
			return done+b.Places[at(job.Parked, job.Paused)].Jobs == 450
		})
		if done > 390 {
			t.Errorf("%d of 450 are done: the pause came to nothing", done)
		}
		r.inOrder()
		if err := books.ResumeBatch(t.Context(), "slow", anything); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 20*time.Second, "all of it", func() bool { return r.batch("slow").Places[at(job.Done, "")].Jobs == 450 })
		if r.count() != 470 {
			t.Errorf("%d calls for 470 jobs", r.count())
		}
		r.inOrder()
	})
}

// The ETA of a batch is no earlier than admission allows, however fast the gateway is.
func TestTheEndOfABatchWaitsForAdmission(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [100/s]}\nadmission: {limits: [6/m], burst: 2}")
	r.putBatch("door", 12)
	r.sign(time.Hour)
	v, ok, err := LookBatch(t.Context(), r.db.Client, r.cfg.Gateways[0], "door")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if rejected := v.Places[at(job.Parked, job.Rejected)].Jobs; v.ETA < time.Duration(rejected)*10*time.Second || v.ETA > 2*time.Minute {
		t.Errorf("%d jobs wait for one place every 10 s, and the last one would be called in %s", rejected, v.ETA)
	}
}

// If the calls left for the day are too few for a batch, its ETA is tomorrow, however fast the last calls were.
func TestTheEndOfABatchWaitsForADailyLimit(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [20/d, 50/s]}\nadmission: {limits: [50/s], burst: 100}")
	look := func() time.Duration {
		t.Helper()
		v, err := Look(t.Context(), r.db.Client, r.cfg.Gateways[0])
		if err != nil {
			t.Fatal(err)
		}
		return v.ETA
	}
	r.putBatch("first", 15)
	r.sign(time.Hour)
	if eta := look(); eta <= 0 || eta > time.Second {
		t.Errorf("15 of the day's 20 calls wait, and the last one would be called in %s", eta)
	}
	if err := r.db.Client.Del(t.Context(), redisdb.NewKeys(r.cfg.Gateways[0].Name).Alive()).Err(); err != nil {
		t.Fatal(err)
	}
	r.serve()
	testkit.Eventually(t, 20*time.Second, "the calls of the first batch", func() bool { return r.batch("first").Places[at(job.Done, "")].Jobs == 15 })
	r.putBatch("second", 5)
	testkit.Eventually(t, 20*time.Second, "the calls of the second batch", func() bool { return r.batch("second").Places[at(job.Done, "")].Jobs == 5 })
	if eta := look(); eta != 0 {
		t.Errorf("nothing waits, and the last job would be called in %s", eta)
	}
	r.putBatch("third", 3)
	if eta := look(); eta < 23*time.Hour || eta > 25*time.Hour {
		t.Errorf("the day's calls are made, and the last of three jobs would be called in %s", eta)
	}
	r.putBatch("fourth", 60)
	if eta := look(); eta < 2*24*time.Hour || eta > 4*24*time.Hour {
		t.Errorf("63 jobs wait for 20 calls a day, and the last one would be called in %s", eta)
	}
}
