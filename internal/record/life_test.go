package record_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// The table under the picture of a record's life has the changes of state that the scripts make, and no others.
func TestTheLifeOfARecordIsDrawnAsItIs(t *testing.T) {
	t.Parallel()
	drawn, picture := life(t)
	for _, s := range []job.State{job.Scheduled, job.Queued, job.InFlight, job.Retrying, job.Pending, job.Done, job.Parked, job.Discarded} {
		if !strings.Contains(picture, string(s)) {
			t.Errorf("the picture lacks the state %s", s)
		}
	}
	for _, r := range job.Reasons() {
		if !strings.Contains(picture, string(r)) {
			t.Errorf("the picture lacks the reason %s", r)
		}
	}
	seen := map[string]bool{}
	for i, live := range lives {
		for _, feed := range []bool{false, true} {
			l := newLiving(t, seen, feed)
			live(l)
			if told := l.c.Exists(l.ctx, l.keys.Outcomes(), l.keys.Feed()).Val(); told > 0 && !feed {
				t.Errorf("life %d has outcomes of a gateway without a feed", i)
			}
		}
	}
	for _, arrow := range slices.Sorted(maps.Keys(seen)) {
		if !drawn[arrow] {
			t.Errorf("docs/architecture.md does not have %q, which happens", arrow)
		}
	}
	for _, arrow := range slices.Sorted(maps.Keys(drawn)) {
		if !seen[arrow] {
			t.Errorf("docs/architecture.md has %q, which no script was seen to do", arrow)
		}
	}
}

// life reads the table and the picture of docs/architecture.md. Each arrow is "from → to: script".
func life(t *testing.T) (arrows map[string]bool, picture string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## The life of a record\n")
	section, _, _ = strings.Cut(section, "\n## ")
	picture, _, _ = strings.Cut(section, "\n| from |")
	arrows = map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([a-z_, —]+) \\| ([a-z_, ]+) \\| ([a-z_`, ]+) \\|").FindAllStringSubmatch(section, -1) {
		for _, from := range strings.Split(row[1], ", ") {
			for _, to := range strings.Split(row[2], ", ") {
				for _, script := range strings.Split(row[3], ", ") {
					arrows[fmt.Sprintf("%s → %s: %s", from, to, strings.Trim(script, "`"))] = true
				}
			}
		}
	}
	delete(arrows, "from → to: script")
	if len(arrows) < 20 {
		t.Fatalf("docs/architecture.md has %d changes of state under the picture", len(arrows))
	}
	return arrows, picture
}

// check is the admission check of these tests.
var check = bucket.TokenBucket{Limits: []job.Limit{{N: 100, Window: time.Second}}, Burst: 2}

// both are the scripts that change a record in two forms, and which of them tell the outcome feed.
var both = map[string]record.Script{"open": record.Open, "done": record.Done, "back": record.Back, "park": record.Park, "due": record.Due, "reclaim": record.Reclaim,
	"shelve": record.Shelve, "lapse": record.Lapse, "withdraw": record.Withdraw, "discard": record.Discard, "resolve": record.Resolve, "expire": record.Expire,
	"unreadable": record.Unreadable, "aside": record.Aside, "look_end": record.LookEnd, "unask": record.Unask, "replace": record.Replace}

// named is the scripts that change a record, by the hash that Redis knows them by.
var named = func() map[string]string {
	all := map[string]string{}
	note := func(name string, s *redisdb.Script) {
		s.Run(context.Background(), hashes(func(sha string) { all[sha] = name }), []string{"k"})
	}
	for name, s := range map[string]*redisdb.Script{"readmit": record.Readmit(check.Lua(), true), "settle": record.Settle,
		"look_claim": record.LookClaim, "ask": record.Ask} {
		note(name, s)
	}
	for _, feed := range []bool{false, true} {
		note("readmit", record.Readmit(check.Lua(), false))
		note("accept", record.Accept(check.Lua(), record.Form{Feed: feed}))
		note("accept", record.Accept(check.Lua(), record.Form{Feed: feed, Flows: true}))
		note("accept", record.Accept(check.Lua(), record.Form{Feed: feed, Approvals: true}))
		for name, s := range both {
			note(name, s.For(feed))
		}
	}
	return all
}()

// hashes is a client that is given the hash of each script, and runs none.
type hashes func(sha string)

func (h hashes) EvalSha(ctx context.Context, sha string, _ []string, _ ...any) *redis.Cmd {
	h(sha)
	return redis.NewCmd(ctx)
}
func (h hashes) Eval(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return redis.NewCmd(ctx)
}
func (h hashes) EvalRO(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return redis.NewCmd(ctx)
}
func (h hashes) EvalShaRO(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return redis.NewCmd(ctx)
}
func (h hashes) ScriptExists(ctx context.Context, _ ...string) *redis.BoolSliceCmd {
	return redis.NewBoolSliceCmd(ctx)
}
func (h hashes) ScriptLoad(ctx context.Context, _ string) *redis.StringCmd {
	return redis.NewStringCmd(ctx)
}

// living is a gateway with one job, whose changes of state are seen.
type living struct {
	t     *testing.T
	ctx   context.Context
	c     redis.UniversalClient // of the test
	books *ledger.Books
	asked *ledger.Books // of the same gateway, where look-ups are configured, and a key lives for half a minute
	store *deadletter.Store
	keys  redisdb.Keys
	now   int64
	age   ledger.Age // what asked has seen of the data's age; zero: it does not look
	seen  map[string]bool
	feed  *feed.Feed // nil: the gateway has none
	read  feed.Cursor
}

func newLiving(t *testing.T, seen map[string]bool, told bool) *living {
	t.Helper()
	name := testkit.Gateway(t)
	l := &living{t: t, ctx: t.Context(), c: testkit.Client(t), keys: redisdb.NewKeys(name), now: 1_700_000_000_000_000, seen: seen}
	if told {
		l.feed = feed.New(l.c, feed.Config{Gateway: name})
	}
	watched := testkit.Client(t)
	watched.AddHook(l)
	l.books = ledger.New(watched, ledger.Config{Gateway: name, Keys: true, KeyLifetime: 24 * time.Hour, Attempts: 3, Dedupe: time.Hour, Bucket: check, Feed: told,
		Encode: queue.NewEncoder(name).Encode, NowMicros: func() int64 { return l.now }})
	l.asked = ledger.New(watched, ledger.Config{Gateway: name, Keys: true, KeyLifetime: 30 * time.Second, Attempts: 3, Dedupe: time.Hour, Bucket: check, Feed: told, Asks: asks,
		Age:    func() ledger.Age { return l.age },
		Encode: queue.NewEncoder(name).Encode, NowMicros: func() int64 { return l.now }})
	l.store = deadletter.New(watched, name)
	l.store.Feed = told
	l.store.NowMicros = func() int64 { return l.now }
	return l
}

// state is what the job's record says; it is a dash if there is no record.
func (l *living) state() string {
	if state := l.c.HGet(l.ctx, l.keys.Job("j"), record.Short("state")).Val(); state != "" {
		return state
	}
	return "—"
}

// DialHook implements redis.Hook.
func (l *living) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (l *living) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook notes what each script makes of the job.
func (l *living) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		before, stood, live := l.state(), l.stands(), l.live()
		err := next(ctx, cmd)
		script := fmt.Sprint(cmd.Args()[1:2])
		if script = script[1 : len(script)-1]; cmd.Name() == "eval" {
			script = redis.NewScript(script).Hash()
		}
		l.told(fmt.Sprintf("%s → %s: %s", stood, l.stands(), named[script]), stood, live)
		if after := l.state(); after != before {
			l.seen[fmt.Sprintf("%s → %s: %s", before, after, named[script])] = true
		}
		return err
	}
}

func (l *living) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// accept takes the job in. Its cost says whether there is room: there is for 2.
func (l *living) accept(j job.Job) {
	j.ID, j.Batch = "j", "b"
	_, _, err := testkit.Accept(l.ctx, l.books, job.Ticket{Sequence: rand.Text(), Number: 1}, []job.Newcomer{{Job: j, Digest: "d"}}, "park")
	l.must(err)
}

// open pulls the job and begins an attempt.
func (l *living) open() job.Attempt {
	l.t.Helper()
	for _, line := range l.keys.Lines() {
		l.c.Del(l.ctx, line)
	}
	generation, err := l.c.HGet(l.ctx, l.keys.Job("j"), record.Short("generation")).Int64()
	l.must(err)
	a, opening, err := l.books.Open(l.ctx, "j", generation, rand.Text(), 40*time.Second)
	if l.must(err); opening != job.OpenGo && opening != job.OpenStale {
		l.t.Fatal(opening)
	}
	return a
}

// called is the result of an attempt that called, and failed.
func (l *living) called() job.Ending {
	return job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: time.UnixMicro(l.now), Unsure: true}
}

// queued is a job in the queue.
func (l *living) queued() { l.accept(job.Job{}) }

// retrying is a job that waits out a back-off. It returns the attempt before.
func (l *living) retrying() job.Attempt {
	l.queued()
	a := l.open()
	l.must(l.books.Back(l.ctx, a, l.called(), time.Minute))
	return a
}

// parked is a job that was called, and is parked. It returns the attempt.
func (l *living) parked(reason job.Reason) job.Attempt {
	l.queued()
	a := l.open()
	l.must(l.store.Park(l.ctx, a, l.called(), reason))
	return a
}

// dead is a job whose worker was given up. It returns the attempt, which the worker may still end.
func (l *living) dead() job.Attempt {
	l.queued()
	a := l.open()
	l.now += time.Minute.Microseconds()
	l.sweep()
	return a
}

func (l *living) sweep() {
	_, err := l.books.Sweep(l.ctx)
	l.must(err)
}

func (l *living) due() {
	l.now += time.Hour.Microseconds()
	_, _, err := l.books.MoveDue(l.ctx)
	l.must(err)
}

// as is the job as it is parked, or waits.
func (l *living) as(reason job.Reason, key job.KeyChange) []job.Return {
	r, _, err := l.books.Find(l.ctx, "j")
	l.must(err)
	return []job.Return{{ID: "j", Generation: r.Generation, Reason: reason, Key: key}}
}

func (l *living) readmit(reason job.Reason) {
	_, _, err := l.books.Readmit(l.ctx, l.as(reason, job.KeepKey))
	l.must(err)
}

// late ends an attempt that was given up: its call has succeeded.
func (l *living) late(a job.Attempt) { l.must(l.books.Done(l.ctx, a, l.called())) }

// twice makes the job be called, given up, and called again; then the first call turns out to have succeeded. It returns the second attempt.
func (l *living) twice() job.Attempt {
	first := l.dead()
	second := l.open()
	l.late(first)
	return second
}

// asks says when the gateway is first asked, if look-ups are configured.
var asks = job.Asks{Unknown: time.Second, Accepted: time.Second}

// pending is a job whose outcome is being asked for. It returns the attempt.
func (l *living) pending() job.Attempt {
	l.store.Asks = asks
	return l.parked(job.UnknownOutcome)
}

// look asks for the outcome of the job, and gets the finding.
func (l *living) look(f job.Finding) {
	l.t.Helper()
	l.now += time.Minute.Microseconds()
	look, _, ok, err := l.asked.ClaimLook(l.ctx, ledger.Claim{Owner: rand.Text(), For: time.Minute})
	if l.must(err); !ok {
		l.t.Fatal("no look-up is due")
	}
	_, err = l.asked.EndLook(l.ctx, look, ledger.LookEnd{Finding: f, At: time.UnixMicro(l.now), Next: -1})
	l.must(err)
}

// absent asks twice, and the gateway has no such payment.
func (l *living) absent() {
	l.look(job.Finding{Verdict: job.LookNotDone})
	l.look(job.Finding{Verdict: job.LookNotDone})
}

func noted(ledger.Shelved) error { return nil }

// lives are sequences of acts that together go over each arrow at least once.
var lives = []func(l *living){
	func(l *living) { // scheduled, and cancelled with its batch
		l.accept(job.Job{At: time.UnixMicro(l.now).Add(time.Minute)})
		l.must(l.books.CancelBatch(l.ctx, "b", "me", "mistake", 0, noted))
		l.readmit(job.Cancelled)
		_, err := l.books.Withdraw(l.ctx, l.as("", ""), "by hand")
		l.must(err)
	},
	func(l *living) { // expired in the queue
		l.accept(job.Job{Expires: time.UnixMicro(l.now).Add(time.Second)})
		l.now += time.Minute.Microseconds()
		did, err := l.books.Lapse(l.ctx, "j")
		l.must(err)
		if !slices.Equal(did.Expired, []string{"j"}) || l.c.LLen(l.ctx, l.keys.Pending()).Val() != 0 {
			l.t.Errorf("of the expired jobs %q were parked, and %d tasks are left", did.Expired, l.c.LLen(l.ctx, l.keys.Pending()).Val())
		}
	},
	func(l *living) { // of before a restore, without a key that covers another call: the gateway is asked
		l.accept(job.Job{})
		l.must(l.c.HSet(l.ctx, l.keys.Alive(), "v", "7", "at", l.now, "line", "a").Err())
		l.now += time.Minute.Microseconds()
		l.age = ledger.Age{Version: "7", Marks: fmt.Sprintf("%d-%d", l.now-2*time.Minute.Microseconds(), l.now)}
		l.now += time.Minute.Microseconds()
		_, err := l.asked.Lapse(l.ctx, "j")
		l.must(err)
	},
	func(l *living) { // scheduled, and withdrawn for good
		l.accept(job.Job{At: time.UnixMicro(l.now).Add(time.Minute)})
		_, err := l.books.WithdrawForGood(l.ctx, l.as("", ""), ledger.Discarding{Dedupe: time.Hour})
		l.must(err)
	},
	func(l *living) { // done, when its time has come
		l.accept(job.Job{At: time.UnixMicro(l.now).Add(time.Minute)})
		l.due()
		l.must(l.books.Done(l.ctx, l.open(), l.called()))
	},
	func(l *living) { // no room; replayed, withdrawn, and discarded
		l.accept(job.Job{Cost: 2})
		l.c.Del(l.ctx, l.keys.Job("j"))
		l.accept(job.Job{Cost: 2})
		l.now += time.Minute.Microseconds()
		l.readmit(job.Rejected)
		_, err := l.books.Withdraw(l.ctx, l.as("", ""), "by hand")
		l.must(err)
		_, err = l.store.Discard(l.ctx, l.as(job.Cancelled, ""), time.Hour)
		l.must(err)
	},
	func(l *living) { // withdrawn from the queue for good
		l.queued()
		_, err := l.books.WithdrawForGood(l.ctx, l.as("", ""), ledger.Discarding{Dedupe: time.Hour})
		l.must(err)
	},
	func(l *living) { // paused in the queue
		l.queued()
		l.must(l.books.PauseBatch(l.ctx, "b", "me", "wait", noted))
	},
	func(l *living) { // a slot missed, then a back-off
		l.queued()
		l.must(l.books.Back(l.ctx, l.open(), job.Ending{}, 0))
		l.must(l.books.Back(l.ctx, l.open(), l.called(), time.Minute))
		l.due()
	},
	func(l *living) { // cancelled while it waits out a back-off
		l.retrying()
		l.must(l.books.CancelBatch(l.ctx, "b", "me", "mistake", 0, noted))
	},
	func(l *living) { // withdrawn from there
		l.retrying()
		_, err := l.books.Withdraw(l.ctx, l.as("", ""), "by hand")
		l.must(err)
	},
	func(l *living) { // and for good
		l.retrying()
		_, err := l.books.WithdrawForGood(l.ctx, l.as("", ""), ledger.Discarding{Dedupe: time.Hour, MayBeCharged: true})
		l.must(err)
	},
	func(l *living) { // its attempts are used up, as is known when its back-off is over
		l.retrying()
		l.c.HSet(l.ctx, l.keys.Job("j"), record.Short("failures"), fmt.Sprint(l.now, " "), record.Short("spent"), 3)
		l.due()
	},
	func(l *living) { l.late(l.retrying()) },
	func(l *living) { l.late(l.dead()) },
	func(l *living) { // a success that comes after a replay to its own time, which a clock that was set back has made a later one
		l.accept(job.Job{At: time.UnixMicro(l.now).Add(time.Hour)})
		l.due()
		a := l.open()
		l.must(l.store.Park(l.ctx, a, l.called(), job.Exhausted))
		l.now -= 30 * time.Minute.Microseconds()
		l.readmit(job.Exhausted)
		l.late(a)
	},
	func(l *living) { l.late(l.parked(job.UnknownOutcome)) },
	func(l *living) { // and one that was discarded
		a := l.parked(job.UnknownOutcome)
		_, err := l.store.Discard(l.ctx, l.as(job.UnknownOutcome, ""), time.Hour)
		l.must(err)
		l.late(a)
	},
	func(l *living) { // a person knows
		l.parked(job.UnknownOutcome)
		_, err := l.store.Resolve(l.ctx, l.as(job.UnknownOutcome, ""), time.Hour, "")
		l.must(err)
	},
	func(l *living) { // its worker died, and died again, at the last attempt
		l.dead()
		l.c.HSet(l.ctx, l.keys.Job("j"), record.Short("spent"), 2)
		l.open()
		l.now += time.Minute.Microseconds()
		l.sweep()
	},
	func(l *living) { l.must(l.books.Back(l.ctx, l.twice(), l.called(), time.Minute)) },
	func(l *living) { l.must(l.store.Park(l.ctx, l.twice(), l.called(), job.Refused)) },
	func(l *living) { // the second worker dies too: a sweep finds out
		l.twice()
		l.now += time.Minute.Microseconds()
		l.sweep()
	},
	func(l *living) { // or a third one
		l.twice()
		l.now += time.Minute.Microseconds()
		l.open()
	},
	func(l *living) { // the gateway is asked, and says what came of it
		l.pending()
		l.look(job.Finding{Verdict: job.LookDone})
	},
	func(l *living) {
		l.pending()
		l.look(job.Finding{Verdict: job.LookRefused, Error: "declined"})
	},
	func(l *living) { // it can't say, and can when a person has it asked again
		l.pending()
		l.look(job.Finding{Verdict: job.LookLater})
		_, err := l.asked.AskAgain(l.ctx, l.as(job.UnknownOutcome, ""))
		l.must(err)
		l.absent()
	},
	func(l *living) { // not charged, and its attempts are used up
		l.pending()
		l.c.HSet(l.ctx, l.keys.Job("j"), record.Short("spent"), 3)
		l.absent()
	},
	func(l *living) { // a success that comes while the gateway is being asked
		l.late(l.pending())
	},
	func(l *living) { // a person parks it
		l.pending()
		_, err := l.books.Withdraw(l.ctx, l.as("", ""), "by hand")
		l.must(err)
	},
	func(l *living) { // no process asks any more
		l.pending()
		_, _, err := l.asked.Unask(l.ctx, "no look-up is configured")
		l.must(err)
	},
	func(l *living) { // its worker died
		l.queued()
		l.open()
		l.now += time.Minute.Microseconds()
		_, err := l.asked.Sweep(l.ctx)
		l.must(err)
	},
	func(l *living) { // cancelled while it waits out a back-off
		l.retrying()
		l.must(l.asked.CancelBatch(l.ctx, "b", "me", "mistake", 0, noted))
	},
	func(l *living) { // or after a pause of its batch
		l.retrying()
		l.must(l.asked.PauseBatch(l.ctx, "b", "me", "wait", noted))
		l.must(l.asked.CancelBatch(l.ctx, "b", "me", "mistake", 0, noted))
	},
	func(l *living) { // its attempts are used up, as is known when its back-off is over
		l.retrying()
		l.c.HSet(l.ctx, l.keys.Job("j"), record.Short("failures"), fmt.Sprint(l.now, " "), record.Short("spent"), 3)
		l.c.HSet(l.ctx, l.keys.Job("j"), record.Short("first_call_at"), l.now+time.Minute.Microseconds()) // its key lives
		l.now += time.Minute.Microseconds()
		_, _, err := l.asked.MoveDue(l.ctx)
		l.must(err)
	},
	func(l *living) { l.must(l.store.ParkUnreadable(l.ctx, "j", []byte("x"), "not a job")) },
	func(l *living) { // something else wrote into its record
		l.c.Set(l.ctx, l.keys.Job("j"), "garbage", 0)
		l.c.ZAdd(l.ctx, l.keys.Retrying(), redis.Z{Score: 1, Member: "j"})
		l.due()
	},
}
