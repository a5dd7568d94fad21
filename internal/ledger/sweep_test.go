package ledger_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/testkit"
)

// pulse takes the gateway's pulse, as a dispatcher does twice a second, and returns what it says.
func (b *bench) pulse() ledger.Pulse {
	b.t.Helper()
	p, err := ledger.Pulses(b.ctx, b.c, []*ledger.Books{b.books}, ledger.Slow{})
	b.must(err)
	return p[0]
}

// live lets virtual time pass in half seconds, as a dispatcher does: a pulse each, and a sweep if the pulse asks for one. before is called
// at each step. It returns what the sweeps did, and when the first of them did something.
func (b *bench) live(d time.Duration, before func(elapsed time.Duration)) (did ledger.Swept, first time.Duration) {
	b.t.Helper()
	const step = 500 * time.Millisecond
	for at := step; at <= d; at += step {
		b.now += step.Microseconds()
		if before != nil {
			before(at)
		}
		if !b.pulse().Sweep {
			continue
		}
		s, err := b.books.Sweep(b.ctx)
		b.must(err)
		if first == 0 && s != (ledger.Swept{}) {
			first = at
		}
		did.Reclaimed += s.Reclaimed
		did.Requeued += s.Requeued
		did.Removed += s.Removed
	}
	return did, first
}

// beat does what the heartbeat of a living asynq server does for its tasks, skew being what its clock is off.
func (b *bench) beat(skew time.Duration, tasks ...string) {
	for _, task := range tasks {
		end := (b.now + skew.Microseconds()) / 1e6
		b.must(b.c.ZAddXX(b.ctx, b.keys.Lease(), redis.Z{Score: float64(end + 30), Member: task}).Err())
	}
}

// A worker pulls a task and dies before it has opened the attempt. Another never gets the answer to its dequeue.
func TestAPulledTaskOfADeadWorkerComesBackLongBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	for _, lived := range []time.Duration{0, 700 * time.Millisecond, 5 * time.Second} { // from the last heartbeat to the death
		b := setup(t, 10, nil)
		b.accept("park", numbered(1, 2)...)
		b.pull()
		b.now += lived.Microseconds()
		did, first := b.live(40*time.Second, nil)
		want(t, "did", did, ledger.Swept{Requeued: 1})
		if first += lived; first < 11*time.Second || first > 13*time.Second {
			t.Errorf("back %v after the last heartbeat, want 11 to 13 s", first)
		}
		id, g := b.pull()
		want(t, "pulled next", fmt.Sprint(id, g), "j12")
		_, o := b.open(id, g, "w")
		want(t, "opening", o, job.OpenGo)
		_, o = b.open("j1", 1, "the dead one after all")
		want(t, "opening by the one thought dead", o, job.OpenStale)
	}
}

// Jobs that a dead worker had pulled or opened go on in their original order, ahead of the jobs that wait.
func TestADeadWorkersJobsComeBackInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, opens := range map[string]bool{"pulled": false, "opened": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 20, nil)
			b.accept("park", numbered(1, 14)...)
			var order []string
			for range 12 { // so many that names and order differ: j10 comes before j2 by its name
				id, g := b.pull()
				order = append(order, id)
				if opens {
					b.open(id, g, "w")
					b.now += 1000
				}
			}
			b.live(3*time.Minute, nil)
			for i, want := range append(order, "j13", "j14") {
				if id, _ := b.pull(); id != want {
					t.Fatalf("pulled %s as number %d, want %s", id, i+1, want)
				}
			}
		})
	}
}

func TestALivingWorkersTasksAreLeftToIt(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, -25 * time.Second, -3 * time.Second, 10 * time.Second} { // its clock against Redis's
		b := setup(t, 10, nil)
		b.accept("park", numbered(1, 3)...)
		for range 3 {
			b.pull()
		}
		tasks := []string{"j1~1", "j2~1", "j3~1"}
		b.beat(skew, tasks...)
		did, _ := b.live(2*time.Minute, func(at time.Duration) {
			if at%(5*time.Second) == 0 {
				b.beat(skew, tasks...)
			}
		})
		want(t, fmt.Sprintf("did, with a clock %v off", skew), did, ledger.Swept{})
		want(t, "pending", b.c.LLen(b.ctx, b.keys.Pending()).Val(), 0)
	}
}

// While nothing is astray, pulses call for no sweep.
func TestAHealthyGatewayIsNotSwept(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 3)...)
	id, g := b.pull()
	b.pull()
	b.open(id, g, "w")
	want(t, "sweep", b.pulse().Sweep, false)
	b.now += (6 * time.Second).Microseconds()
	want(t, "sweep when a heartbeat is a little late", b.pulse().Sweep, false)
	b.now += time.Second.Microseconds()
	want(t, "sweep when it was left out", b.pulse().Sweep, true)
	b.beat(0, "j1~1", "j2~1")
	want(t, "sweep when it came", b.pulse().Sweep, false)
	b.now += (34 * time.Second).Microseconds()
	b.beat(0, "j1~1", "j2~1")
	want(t, "sweep when an attempt is past its deadline", b.pulse().Sweep, true)
}

// Redis stalls for 45 s. All leases have run out, and living workers get the time to extend theirs.
func TestAfterAStallTheLivingAreAskedFirst(t *testing.T) {
	t.Parallel()
	for _, alive := range []bool{true, false} {
		b := setup(t, 10, nil)
		b.accept("park", numbered(1, 1)...)
		b.pull()
		b.live(2*time.Second, nil)
		b.now += (45 * time.Second).Microseconds()
		did, first := b.live(30*time.Second, func(at time.Duration) {
			if alive && at >= 10*time.Second && at%(5*time.Second) == 0 {
				b.beat(0, "j1~1")
			}
		})
		switch {
		case alive && did != (ledger.Swept{}):
			t.Errorf("a living worker's task was taken after %v: %+v", first, did)
		case !alive && (did != (ledger.Swept{Requeued: 1}) || first < 12*time.Second || first > 14*time.Second):
			t.Errorf("a dead worker's task: %+v after %v, want it back after 12 to 14 s", did, first)
		}
	}
}

// meddling does something between a sweep's look and what it does about it.
func meddling(record string, meddle func()) testkit.Hook {
	return testkit.Hook{Alone: func(cmd redis.Cmder, send func() error) error {
		if a := cmd.Args(); len(a) > 3 && a[3] == record {
			meddle()
		}
		return send()
	}}
}

// The heartbeat comes at the last moment: settle.lua looks once more.
func TestAHeartbeatAtTheLastMomentCounts(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 1)...)
	b.pull()
	asked := false
	b.c.AddHook(meddling(b.keys.Job("j1"), func() { asked = true; b.beat(0, "j1~1") }))
	did, _ := b.live(15*time.Second, nil)
	want(t, "the sweep was about to take it", asked, true)
	want(t, "did", did, ledger.Swept{})
	want(t, "active", b.c.LLen(b.ctx, b.keys.Active()).Val(), 1)
}

// A process that has just begun finds leases that ended long ago: it need not watch them first.
func TestLeasesThatEndedLongAgoNeedNoWatching(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 1)...)
	b.pull()
	b.now += (36 * time.Second).Microseconds()
	did, _ := b.live(500*time.Millisecond, nil)
	want(t, "did", did, ledger.Swept{Requeued: 1})
}

// The worker dies during the call. Its task may stay where it is until the attempt is judged by its own deadline.
func TestAnOpenAttemptIsJudgedByItsOwnDeadlineAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 1)...)
	id, g := b.pull()
	b.open(id, g, "dies") // for 40 s
	look := func(at time.Duration) {
		s, err := b.books.Look(b.ctx)
		b.must(err)
		if s.Queued+s.InFlight != 1 || s.Missing() != 0 {
			t.Fatalf("after %v: %d queued, %d in flight, %d missing", at, s.Queued, s.InFlight, s.Missing())
		}
		if papers := b.c.LLen(b.ctx, b.keys.Active()).Val(); at < 35*time.Second && papers != 1 {
			t.Fatalf("after %v: %d tasks active: the worker may be alive", at, papers)
		}
	}
	did, first := b.live(60*time.Second, look)
	want(t, "reclaimed", did.Reclaimed, 1)
	want(t, "requeued without a verdict", did.Requeued, 0)
	if first := b.record(id).History[0].At.Sub(time.UnixMicro(b.now)) + 60*time.Second; first > 40500*time.Millisecond {
		t.Errorf("it goes on %v after it was opened for 40 s", first)
	}
	want(t, "something happened", first > 0, true)
	want(t, "papers left", b.c.LLen(b.ctx, b.keys.Active()).Val(), 0)
	want(t, "attempts", b.record(id).Spent, 1)
}

// A process with a thousand calls in flight is killed. One sweep takes all of them up, in the order of their deadlines.
func TestOneSweepTakesUpEveryAttemptThatIsOverdue(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	b := setup(t, 2000, nil)
	const n = 1100
	b.accept("park", numbered(1, n)...)
	for range n {
		id, g := b.pull()
		b.open(id, g, "dies")
		b.now++
	}
	b.now += (41 * time.Second).Microseconds()
	s, err := b.books.Sweep(b.ctx)
	b.must(err)
	want(t, "reclaimed", s.Reclaimed, n)
	for i := 1; i <= n; i++ {
		if id, _ := b.pull(); id != "j"+strconv.Itoa(i) {
			t.Fatalf("pulled as number %d: %s", i, id)
		}
	}
}

// Somebody archives, or schedules, a task of ours with one of asynq's own tools.
func TestNoTaskOfOursStaysInAsynqsOwnSets(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 4)...)
	for i, set := range []string{b.keys.AsynqRetry(), b.keys.AsynqArchive(), b.keys.AsynqScheduled(), b.keys.AsynqCompleted()} {
		task := job.TaskID(fmt.Sprintf("j%d", i+1), 1)
		b.c.LRem(b.ctx, b.keys.Pending(), 0, task)
		b.c.ZAdd(b.ctx, set, redis.Z{Score: float64(b.now/1e6 + 3600), Member: task})
		did, first := b.live(time.Second, nil)
		want(t, "did for "+set, did, ledger.Swept{Requeued: 1})
		want(t, "when", first, 500*time.Millisecond)
		want(t, "left in "+set, b.c.ZCard(b.ctx, set).Val(), 0)
		want(t, "state", b.record(fmt.Sprintf("j%d", i+1)).State, job.Queued)
	}
	want(t, "due", b.c.LLen(b.ctx, b.keys.Due()).Val(), 4)
}

// The record has gone. A worker that pulls the task drops it, and makes no call.
func TestATaskWithoutARecordIsDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 2)...)
	b.c.Del(b.ctx, b.keys.Job("j1"))
	id, g := b.pull()
	_, o := b.open(id, g, "w")
	want(t, "opening", o, job.OpenStale)
	want(t, "record", b.c.Exists(b.ctx, b.keys.Job("j1")).Val(), 0)
}

// Members of the sets of waiting jobs that have no record are dropped when they are due, and open attempts when they are overdue.
func TestEntriesWithoutARecordGo(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	for _, set := range []string{b.keys.Scheduled(), b.keys.Retrying(), b.keys.Open()} {
		b.c.ZAdd(b.ctx, set, redis.Z{Score: float64(b.now - 1), Member: "ghost"})
	}
	_, _, err := b.books.MoveDue(b.ctx)
	b.must(err)
	_, err = b.books.Sweep(b.ctx)
	b.must(err)
	for _, set := range []string{b.keys.Scheduled(), b.keys.Retrying(), b.keys.Open()} {
		want(t, set, b.c.ZCard(b.ctx, set).Val(), 0)
	}
	want(t, "pending", b.c.LLen(b.ctx, b.keys.Pending()).Val(), 0)
}

// The entry says that the deadline has passed, and the record says that it has not. The record is right.
func TestAnEntryThatIsTooEarlyIsSetRight(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 1)...)
	id, g := b.pull()
	b.open(id, g, "w")
	b.c.ZAdd(b.ctx, b.keys.Open(), redis.Z{Score: float64(b.now - 1), Member: id})
	s, err := b.books.Sweep(b.ctx)
	b.must(err)
	want(t, "reclaimed", s.Reclaimed, 0)
	want(t, "deadline", int64(b.c.ZScore(b.ctx, b.keys.Open(), id).Val()), b.now+(40*time.Second).Microseconds())
}
