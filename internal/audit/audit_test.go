package audit_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/audit"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

func (b *bench) audit(most int) audit.Report {
	b.t.Helper()
	a, err := b.g.Audit(b.ctx, audit.Params{Most: most, Patience: -1})
	b.must(err)
	return a
}

// said returns an audit's findings as sorted text.
func said(list []audit.Finding) string {
	var all []string
	for _, f := range list {
		all = append(all, strings.TrimPrefix(f.ID+": "+f.Describe(), ": "))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func TestBooksInOrderAreFoundInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, 12)
	if a := b.clean("empty"); a.Records != 0 || a.Accepted != 0 {
		t.Errorf("an empty gateway: %+v", a)
	}
	b.stock()
	store := deadletter.New(b.c, b.name)
	b.must(store.ParkUnreadable(b.ctx, "not-a-job", []byte("hello"), "foreign"))
	a := b.clean("in order")
	want(t, "records", a.Records, 9)
	want(t, "accepted", a.Accepted, 9)
	want(t, "notes", a.Notes.Total, 0)
	want(t, "counts", fmt.Sprint(a.Scheduled, a.Queued, a.InFlight, a.Retrying, a.Done, a.Discarded, a.Parked), "1 2 2 1 1 0 map[rejected:1 unreadable:1]")
	_, err := store.Discard(b.ctx, []job.Return{{ID: "rejected", Generation: 1, Reason: job.Rejected}}, time.Minute)
	b.must(err)
	a = b.clean("one discarded")
	want(t, "discarded", a.Discarded, 1)
	b.c.Del(b.ctx, b.keys.Job("done"), b.keys.Job("rejected")) // their time is over: the counters go on knowing of them
	a = b.clean("two forgotten")
	want(t, "records", a.Records, 7)
}

// Everything that can be wrong, one at a time: each fault is found by id and named, and there is no other finding.
func TestAnAuditFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	first := job.TaskID("j1", 1)
	for name, tc := range map[string]struct {
		breaks func(b *bench)
		say    string
	}{
		"a deleted task": {func(b *bench) {
			b.c.LRem(b.ctx, b.keys.Pending(), 0, first)
			b.c.Del(b.ctx, b.keys.Task(first))
		}, "accepted: 8, found: 7\nj1: queued, but no task of it is in the queue or with a worker"},
		"a task that only the list has lost": {func(b *bench) { b.c.LRem(b.ctx, b.keys.Pending(), 0, first) },
			"accepted: 8, found: 7\nj1: queued, but no task of it is in the queue or with a worker"},
		"a task without a message": {func(b *bench) { b.c.HDel(b.ctx, b.keys.Task(first), "msg") },
			"j1: queued, but its task in pending has no message"},
		"an evicted task": {func(b *bench) { b.c.Del(b.ctx, b.keys.Task(first)) },
			"j1: queued, but its task in pending has no message"},
		"a task that is not active": {func(b *bench) { b.c.HSet(b.ctx, b.keys.Task(first), "state", "active") },
			"j1: queued, but no task of it is in the queue or with a worker"},
		"a task with another generation": {func(b *bench) {
			b.c.LRem(b.ctx, b.keys.Pending(), 0, first)
			b.c.RPush(b.ctx, b.keys.Pending(), "j1~7")
		}, "j1: queued, but no task of it is in the queue or with a worker"},
		"an archived task": {func(b *bench) {
			b.c.LRem(b.ctx, b.keys.Pending(), 0, first)
			b.c.HSet(b.ctx, b.keys.Task(first), "state", "archived")
			b.c.ZAdd(b.ctx, b.keys.AsynqArchive(), redis.Z{Score: 1, Member: first})
		}, "accepted: 8, found: 7\nj1: its task is in asynq's archived set"},
		"no entry in scheduled": {func(b *bench) { b.c.Del(b.ctx, b.keys.Scheduled()) },
			"accepted: 8, found: 7\nscheduled: scheduled, but not in scheduled"},
		"no entry in retrying": {func(b *bench) { b.c.Del(b.ctx, b.keys.Retrying()) },
			"accepted: 8, found: 7\nretrying: retrying, but not in retrying"},
		"no entry in open": {func(b *bench) { b.c.Del(b.ctx, b.keys.Open()) },
			"accepted: 8, found: 7\nin-flight: in_flight, but not in open"},
		"parked under another reason": {func(b *bench) { b.c.Rename(b.ctx, b.keys.Parked("rejected"), b.keys.Parked("refused")) },
			"rejected: parked, but not in parked:rejected\nthe sums of what is parked as rejected are 2 bytes, those of its records none"},
		"parked twice": {func(b *bench) { b.c.ZAdd(b.ctx, b.keys.Parked("refused"), redis.Z{Score: 1, Member: "rejected"}) },
			"accepted: 8, found: 9\nrejected: parked, but in parked:refused too"},
		"queued and open": {func(b *bench) { b.c.ZAdd(b.ctx, b.keys.Open(), redis.Z{Score: 1, Member: "j2"}) },
			"accepted: 8, found: 9\nj2: queued, but in open too"},
		"no entry in asking": {func(b *bench) {
			b.pending()
			b.c.Del(b.ctx, b.keys.Asking())
		}, "accepted: 8, found: 7\nj1: pending, but not in asking"},
		"done with leftovers": {func(b *bench) { b.c.ZAdd(b.ctx, b.keys.Retrying(), redis.Z{Score: 1, Member: "done"}) },
			"accepted: 8, found: 9\ndone: done, but in retrying too"},
		"a member without a record": {func(b *bench) { b.c.ZAdd(b.ctx, b.keys.Parked("expired"), redis.Z{Score: 1, Member: "ghost"}) },
			"accepted: 8, found: 9\nghost: in parked:expired, but it has no record"},
		"a task without a record": {func(b *bench) { b.c.Del(b.ctx, b.keys.Job("j1")) }, "j1: in pending, but it has no record"},
		"a pulled task without a record": {func(b *bench) { b.c.Del(b.ctx, b.keys.Job("pulled")) },
			"accepted: 8, found: 7\npulled: in active, but it has no record"},
		"a record that is not a hash": {func(b *bench) { b.c.Set(b.ctx, b.keys.Job("j1"), "x", 0) },
			"j1: its record can't be read"},
		"a state that nobody knows": {func(b *bench) { b.c.HSet(b.ctx, b.keys.Job("j1"), "s", "lost") },
			"j1: its record can't be read"},
		"a live record that expires": {func(b *bench) { b.c.Expire(b.ctx, b.keys.Job("rejected"), time.Hour) },
			"rejected: parked, but its record expires"},
		"a counter that is behind": {func(b *bench) { b.c.HIncrBy(b.ctx, b.keys.Counters(), "accepted", -1) },
			"accepted: 7, found: 8"},
		"more done than counted": {func(b *bench) {
			b.c.HIncrBy(b.ctx, b.keys.Counters(), "done", -1)
			b.c.HIncrBy(b.ctx, b.keys.Counters(), "accepted", -1)
		}, "1 records say done, the counter says 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 12)
			b.stock()
			tc.breaks(b)
			b.now++
			a := b.audit(100)
			if got := said(a.Faults.List); got != tc.say {
				t.Errorf("faults:\n%s\nwant:\n%s", got, tc.say)
			}
			want(t, "total", a.Faults.Total, int64(len(a.Faults.List)))
			for _, f := range a.Faults.List {
				if f.Hint() == "" {
					t.Errorf("nothing is said on what to do about %q", f.What)
				}
			}
		})
	}
}

// Tasks of jobs that have moved on, and tasks that are not ours, are no faults.
func TestOldTasksAreNotes(t *testing.T) {
	t.Parallel()
	b := setup(t, 12)
	b.stock()
	b.c.LPush(b.ctx, b.keys.Pending(), "done~1", "email-1")
	b.c.LPush(b.ctx, b.keys.Active(), "retrying~1")
	b.c.ZAdd(b.ctx, b.keys.AsynqRetry(), redis.Z{Score: 1, Member: "email-2"})
	a := b.clean("with old paper")
	if got, expect := said(a.Notes.List), strings.Join([]string{"done~1: in pending: a task of a job that has moved on",
		"email-1: in pending: a task that is not a job's", "email-2: in asynq's retry: a task that is not a job's",
		"retrying~1: in active: a task of a job that has moved on"}, "\n"); got != expect {
		t.Errorf("notes:\n%s\nwant:\n%s", got, expect)
	}
	want(t, "missing", a.Missing(), -2)
}

// Stale tasks in the queue are counted as queued. They hide neither that jobs are missing, nor, once they are gone, that there are too many.
func TestStaleTasksHideNoWrongTotal(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	b.accept("park", numbered(1, 100)...)
	stale := []any{"email-1", "email-2", "j1~7"}
	count := func(of string, by int64) { b.must(b.c.HIncrBy(b.ctx, b.keys.Counters(), of, by).Err()) }
	b.c.LPush(b.ctx, b.keys.Pending(), stale...)
	b.clean("with stale tasks")
	count("accepted", 3)
	want(t, "as many too few", said(b.audit(10).Faults.List), "accepted: 103, found: 103 (stale tasks: 3)")
	count("accepted", -6)
	gone := sync.OnceFunc(func() {
		for _, task := range stale {
			b.c.LRem(b.ctx, b.keys.Pending(), 0, task)
		}
	})
	a, err := b.g.Audit(b.ctx, audit.Params{Most: 10, Patience: -1, Progress: func(int64) { gone() }})
	b.must(err)
	want(t, "as many too many", said(a.Faults.List), "accepted: 97, found: 100")
	count("accepted", 3)
	b.clean("as it was")
}

// The list of faults is bounded, but their number is not.
func TestManyFaultsAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, 3000)
	b.accept("park", numbered(1, 2500)...)
	b.c.Del(b.ctx, b.keys.Pending())
	b.now++
	a := b.audit(10)
	want(t, "kept", len(a.Faults.List), 10)
	want(t, "counted", a.Faults.Total, 2501) // and the totals
}

// What is repaired while an audit runs is no fault: when it is judged again, it is gone.
func TestWhatIsPutRightMeanwhileIsNoFault(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.accept("park", numbered(1, 1)...)
	b.c.LRem(b.ctx, b.keys.Pending(), 0, "j1~1")
	b.c.HSet(b.ctx, b.keys.Task("j1~1"), "state", "retry")
	b.c.ZAdd(b.ctx, b.keys.AsynqRetry(), redis.Z{Score: 1, Member: "j1~1"})
	a := b.audit(10)
	want(t, "without a sweep", said(a.Faults.List), "accepted: 1, found: 0\nj1: its task is in asynq's retry set")
	swept := 0
	sweep := sync.OnceFunc(func() {
		_, err := b.books.Sweep(b.ctx)
		b.must(err)
		swept++
	})
	for i := range 100 { // the first hundred records are read before anything is judged again
		b.accept("park", job.Job{ID: fmt.Sprint("more-", i), Cost: 90})
	}
	a, err := b.g.Audit(b.ctx, audit.Params{Most: 10, Progress: func(int64) { sweep() }})
	b.must(err)
	want(t, "sweeps", swept, 1)
	want(t, "with a sweep", said(a.Faults.List), "")
}

// Workers pull, finish, fail, park and replay, and jobs come in, while audit after audit finds the books in order.
func TestAnAuditWhileWorkGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, 100_000)
	b.cfg.NowMicros = nil // Redis's own time
	b.on(b.c)
	b.accept("park", numbered(1, 400)...)
	stop, stopped := make(chan struct{}), make(chan error, 3)
	for w := range 3 {
		go func() { stopped <- b.work(w, stop) }()
	}
	audits, worked := 0, false
	for began := time.Now(); time.Since(began) < time.Second || !worked && time.Since(began) < time.Minute; audits++ {
		for i := range 20 {
			b.accept("park", job.Job{ID: fmt.Sprintf("new-%d-%d", audits, i)})
		}
		a := b.clean("while work goes on")
		worked = a.Done >= 50 && a.Retrying+a.Parked[job.Refused] > 0
	}
	close(stop)
	for range 3 {
		b.must(<-stopped)
	}
	a := b.clean("afterwards")
	want(t, "missing", a.Missing(), 0)
	if !worked {
		t.Errorf("hardly any work went on: %+v", a.Standing)
	}
	t.Logf("%d audits of up to %d records", audits, a.Records)
}

// dequeue does what asynq's does.
var dequeue = redis.NewScript(`
local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[2])
if not id then return nil end
redis.call('HSET', ARGV[1] .. id, 'state', 'active')
redis.call('HDEL', ARGV[1] .. id, 'pending_since')
redis.call('ZADD', KEYS[3], ARGV[2], id)
return id`)

// work does what workers do, until it is told to stop.
func (b *bench) work(w int, stop <-chan struct{}) error {
	store := deadletter.New(b.c, b.name)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		task, err := dequeue.Run(b.ctx, b.c, []string{b.keys.Pending(), b.keys.Active(), b.keys.Lease()},
			b.keys.TaskPrefix(), time.Now().Unix()+30).Text()
		if errors.Is(err, redis.Nil) {
			continue
		} else if err != nil {
			return err
		}
		id, g, _ := job.ParseTaskID(task)
		a, o, err := b.books.Open(b.ctx, id, g, fmt.Sprint(w, i), time.Minute)
		if err != nil || o != job.OpenGo {
			return fmt.Errorf("opening of %s: %s, %w", task, o, err)
		}
		e := job.Ending{Called: true, Spent: true, Status: 200, Verdict: job.VerdictDone, At: time.Now()}
		switch i % 4 {
		case 0:
			err = b.books.Done(b.ctx, a, e)
		case 1:
			err = b.books.Back(b.ctx, a, e, 20*time.Millisecond)
		case 2:
			err = store.Park(b.ctx, a, e, job.Refused)
		case 3:
			err = b.books.Back(b.ctx, a, job.Ending{}, 0)
		}
		if err != nil {
			return err
		}
		b.finish(id, g)
		if _, _, err := b.books.MoveDue(b.ctx); err != nil {
			return err
		}
		if _, err := b.books.Sweep(b.ctx); err != nil {
			return err
		}
	}
}

// A gateway's keys are on one node of a cluster, and the other nodes have keys of other gateways.
func TestAnAuditOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testkit.Cluster(t)
	db, err := redisdb.Open(t.Context(), cluster.URL(), redisdb.Options{Wait: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for range 4 { // gateways, by their names on any of the nodes
		b := setup(t, 500)
		b.on(db.Client)
		b.accept("park", numbered(1, 300)...)
		b.c.LRem(b.ctx, b.keys.Pending(), 0, "j7~1")
		b.now++
		a := b.audit(10)
		want(t, "records", a.Records, 300)
		want(t, "faults", said(a.Faults.List), "accepted: 300, found: 299\nj7: queued, but no task of it is in the queue or with a worker")
		want(t, "did", b.mend(b.g.Mender()), audit.Mended{Requeued: 1})
		b.clean("mended")
	}
}

// A queue that is too long for one index is audited in parts, with each job in one of them. Its tasks are read once, whatever the number of parts.
func TestALongQueueIsAuditedInParts(t *testing.T) {
	t.Parallel()
	b := setup(t, 2000)
	b.accept("park", numbered(1, 1050)...)
	b.c.LRem(b.ctx, b.keys.Pending(), 0, "j77~1")
	b.now++
	looks := 0
	client := testkit.Client(t)
	client.(*redis.Client).AddHook(testkit.Around(func(cmds []redis.Cmder, send func() error) error {
		for _, cmd := range cmds {
			if args := cmd.Args(); cmd.Name() == "evalsha" && args[3] == b.keys.Pending() && args[4] == "LRANGE" {
				looks++
			}
		}
		return send()
	}))
	b.on(client)
	a, err := b.g.Audit(b.ctx, audit.Params{Most: 10, Indexed: 100, Patience: -1})
	b.must(err)
	want(t, "records", a.Records, 1050)
	want(t, "faults", a.Faults.Total, 2)
	if once := 1050/200 + 1; looks < once || looks > 5*once { // some times more, as the sum is wrong
		t.Errorf("the tasks were looked at in %d scripts, want %d for each time", looks, once)
	}
}

// One answer that does not come must not end an audit of hours: what is read is read again, from where it was.
func TestAnAuditReadsAgainWhatIsNotAnswered(t *testing.T) {
	t.Parallel()
	b := setup(t, 2000)
	b.accept("park", numbered(1, 1050)...)
	b.accept("park", numbered(1051, 1060)...)
	b.c.LRem(b.ctx, b.keys.Pending(), 0, "j77~1")
	b.now++
	client, lost := testkit.Client(t), map[string]int{}
	reads := []string{"tasks", "records", "scan", "zscan", "lrange"}
	client.(*redis.Client).AddHook(testkit.Around(func(cmds []redis.Cmder, send func() error) error {
		err, args := send(), cmds[0].Args()
		what := cmds[0].Name()
		switch last := fmt.Sprint(args[len(args)-1]); {
		case what != "evalsha":
		case args[4] == "LRANGE":
			what = "tasks"
		case strings.HasPrefix(last, "j"):
			what = "records"
		}
		if !slices.Contains(reads, what) || lost[what] > 1 {
			return err
		}
		lost[what]++
		cmds[0].SetErr(os.ErrDeadlineExceeded)
		return os.ErrDeadlineExceeded
	}))
	b.on(client)
	a, err := b.g.Audit(b.ctx, audit.Params{Most: 10, Indexed: 500, Patience: -1})
	b.must(err)
	want(t, "records", a.Records, 1060)
	want(t, "faults", said(a.Faults.List), "accepted: 1060, found: 1059\nj77: queued, but no task of it is in the queue or with a worker")
	for _, what := range reads {
		if lost[what] != 2 {
			t.Errorf("%d answers to %s were lost: %v", lost[what], what, lost)
		}
	}
}
