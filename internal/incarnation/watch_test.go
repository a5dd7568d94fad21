package incarnation

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// world is the data of one gateway, in a Redis whose clock the test sets. The dispatchers have the same clock.
type world struct {
	t       *testing.T
	c       redis.UniversalClient
	gateway string
	key     string
	now     atomic.Int64 // µs
}

func newWorld(t *testing.T, c redis.UniversalClient) *world {
	w := &world{t: t, c: c, gateway: testkit.Gateway(t)}
	w.key = redisdb.NewKeys(w.gateway).Alive()
	w.now.Store(moment)
	return w
}

// Now and After implement the dispatchers' clock.
func (w *world) Now() time.Time { return time.UnixMicro(w.now.Load()) }

func (w *world) After(time.Duration) <-chan time.Time { return make(chan time.Time) }

func (w *world) pass(seconds int64) { w.now.Add(seconds * second) }

// dispatcher returns a dispatcher that remembers m.
type dispatcher struct {
	*Watch
	w   *world
	log *bytes.Buffer
	reg *prometheus.Registry
}

func (w *world) dispatcher(m Memory) *dispatcher {
	w.t.Helper()
	d := &dispatcher{w: w, log: &bytes.Buffer{}, reg: prometheus.NewRegistry()}
	d.Watch = NewWatch(w.c, Params{Gateway: w.gateway, Past: NewPast(map[string]Memory{w.gateway: m}), NowMicros: w.now.Load, Clock: w,
		Metrics: NewMetrics(d.reg, []string{w.gateway}), Log: slog.New(slog.NewTextHandler(d.log, nil))})
	if err := d.Meet(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return d
}

var beat = redisdb.NewScript(redisdb.NowLua, redisdb.AliveLua, "return alive_beat(KEYS[1], ARGV[2], ARGV[3], now_us(ARGV[1]))")

// pulse is what every dispatcher does twice a second.
func (d *dispatcher) pulse() {
	d.w.t.Helper()
	version, least, _ := d.Age()
	at, err := beat.Run(d.w.t.Context(), d.w.c, []string{d.w.key}, d.w.now.Load(), version, least).Int64()
	if err != nil {
		d.w.t.Fatal(err)
	}
	if err := d.Felt(d.w.t.Context(), at); err != nil {
		d.w.t.Fatal(err)
	}
}

// live advances the clock by a second and runs a pulse of each dispatcher, n times.
func (w *world) live(n int, all ...*dispatcher) {
	for range n {
		w.pass(1)
		for _, d := range all {
			d.pulse()
		}
	}
}

// snapshot returns the present data; restore puts it back.
func (w *world) snapshot() map[string]string {
	h, err := w.c.HGetAll(w.t.Context(), w.key).Result()
	if err != nil || len(h) == 0 {
		w.t.Fatalf("no data to keep: %v", err)
	}
	return h
}

func (w *world) restore(h map[string]string) {
	w.t.Helper()
	w.c.Del(w.t.Context(), w.key)
	if err := w.c.HSet(w.t.Context(), w.key, h).Err(); len(h) > 0 && err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) free(want bool, all ...*dispatcher) {
	w.t.Helper()
	for i, d := range all {
		if d.Free() != want {
			w.t.Fatalf("dispatcher %d: calls may go: %v, want %v\n%s", i, d.Free(), want, d.log)
		}
	}
}

func (d *dispatcher) confirm(want bool) {
	d.w.t.Helper()
	done, err := d.Confirm(d.w.t.Context())
	if err != nil || done != want {
		d.w.t.Fatalf("confirmed: %v, %v, want %v", done, err, want)
	}
}

func TestAFreshGatewayIsServedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	b := w.dispatcher(Memory{})
	w.free(true, a, b)
	w.live(30, a, b)
	w.free(true, a, b)
	if a.Memory() != b.Memory() || a.Memory().At != w.now.Load() || strings.Contains(a.Memory().Line, " ") {
		t.Errorf("they have seen %+v and %+v at %d", a.Memory(), b.Memory(), w.now.Load())
	}
	a.confirm(false) // nothing is in doubt, and somebody is at work
	if a.log.Len() > 0 || len(w.snapshot()) != 4 {
		t.Errorf("%v\n%s", w.snapshot(), a.log)
	}
}

func TestAnOldSnapshotStopsEverybodyUntilItIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(20, a)
	old, from := w.snapshot(), w.now.Load()
	w.live(60, a)
	seen := w.now.Load()
	w.restore(old)
	w.live(1, a)
	w.free(false, a)
	w.live(60, a)
	if n := strings.Count(a.log.String(), "restored from an old snapshot"); n != 2 {
		t.Errorf("said %d times in a minute, want at once and after a minute\n%s", n, a.log)
	}
	newcomer := w.dispatcher(Memory{}) // has never seen anything
	w.free(false, newcomer)
	message, hint := Doubted([]*Watch{newcomer.Watch})
	for _, want := range []string{w.gateway, clockTime(from), clockTime(seen), "--after-restore"} {
		if !strings.Contains(message+hint, want) {
			t.Errorf("%q is not in %q, %q", want, message, hint)
		}
	}
	if s, err := Look(t.Context(), w.c, w.gateway); err != nil || !strings.Contains(s.Doubt, clockTime(from)) {
		t.Errorf("why: %q, %v", s.Doubt, err)
	}
	if got := testutil.ToFloat64(newcomer.p.Metrics.doubted); got != 1 {
		t.Errorf("the gauge says %v", got)
	}
	if after := w.snapshot()["at"]; after != old["at"] {
		t.Errorf("doubted data got a sign of life: %s after %s", after, old["at"])
	}
	newcomer.confirm(true)
	w.free(true, newcomer)
	w.live(1, a)
	w.free(true, a)
	_, _, marks := a.Age()
	if got := spans(marks); len(got) != 1 || got[0] != (span{from, w.now.Load() - second}) {
		t.Errorf("marks %q, want from %d until the confirmation", marks, from)
	}
	if s, err := Look(t.Context(), w.c, w.gateway); err != nil || s.Doubt != "" {
		t.Errorf("why: %q, %v", s.Doubt, err)
	}
	if got := testutil.ToFloat64(a.p.Metrics.doubted); got != 0 {
		t.Errorf("the gauge says %v", got)
	}
	w.free(true, w.dispatcher(Memory{Line: a.Memory().Line[:10], At: seen})) // who was away meanwhile goes along
}

// A dispatcher that has never seen this Redis writes a sign of life before those that have can look.
func TestAnOldSnapshotThatSomebodyTookForThePresentIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(5, a)
	old, from := w.snapshot(), w.now.Load()
	w.live(60, a)
	w.restore(old)
	w.pass(1)
	newcomer := w.dispatcher(Memory{})
	w.free(false, newcomer) // after a silence others may object
	w.live(2, newcomer, a)
	w.free(false, newcomer, a)
	w.live(5, newcomer, a)
	w.free(false, newcomer, a)
	newcomer.confirm(true)
	w.live(1, newcomer, a)
	w.free(true, newcomer, a)
	if _, _, marks := newcomer.Age(); len(spans(marks)) != 1 || spans(marks)[0].from != from {
		t.Errorf("marks %q, want one from %d", marks, from)
	}
}

func TestAfterASilenceOthersMayObjectForThreeSeconds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(5, a)
	early := a.Memory()
	w.live(20, a)
	w.pass(3600)
	b := w.dispatcher(early) // away before the silence began
	w.free(false, b)
	w.live(2, b)
	w.free(false, b)
	w.live(1, b)
	w.free(true, b)
	if b.log.Len() > 0 {
		t.Errorf("the log says\n%s", b.log)
	}
}

// A dispatcher that stopped last and starts first does not wait.
func TestAfterASilenceWhoSawTheDataLastGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(5, a)
	w.pass(3600)
	b := w.dispatcher(a.Memory())
	w.free(true, b)
	w.live(1, b, a)
	w.free(true, b, a)
}

func TestAFailOverThatLosesTwoSecondsIsNoRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(20, a)
	old := w.snapshot()
	w.live(2, a)
	w.restore(old)
	w.live(1, a)
	w.free(true, a)
	w.restore(old)
	w.free(true, w.dispatcher(a.Memory()))
}

// Jobs that are gone can't be called again. So work begins at once in a Redis that was emptied or replaced, and the log says what is gone.
func TestAnEmptiedRedisIsBegunAnewAndSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(60, a)
	first := a.Memory()
	w.restore(nil)
	w.live(1, a)
	b := w.dispatcher(first)
	w.free(true, a, b)
	if said := a.log.String(); strings.Count(said, "level=ERROR") != 1 || !strings.Contains(said, "it was emptied") || !strings.Contains(said, clockTime(first.At)) {
		t.Errorf("it says %q", said)
	}
	w.live(5, a, b)
	if a.Memory() != b.Memory() || !strings.HasPrefix(a.Memory().Line, first.Line+" ") {
		t.Errorf("they remember %+v and %+v of it, and %+v before", a.Memory(), b.Memory(), first)
	}
	w.restore(nil)
	newcomer := w.dispatcher(Memory{}) // first, and it remembers nothing
	w.live(1, newcomer, a, newcomer)
	w.free(true, a, newcomer)
}

// Redis starts empty, work continues, and then last night's backup is restored.
func TestABackupAfterAnEmptyStartIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(5, a)
	backup := w.snapshot()
	w.live(3600, a)
	w.restore(nil)
	w.live(60, a)
	w.free(true, a)
	w.restore(backup)
	w.live(1, a)
	w.free(false, a, w.dispatcher(a.Memory()))
}

// The same, and a dispatcher that had never seen this Redis began the new data.
func TestABackupAfterSomebodyElseBeganAnewIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(5, a)
	backup, from := w.snapshot(), w.now.Load()
	w.live(60, a)
	w.restore(nil)
	newcomer := w.dispatcher(Memory{})
	w.live(20, newcomer, a)
	w.free(true, a, newcomer)
	w.restore(backup)
	w.live(1, newcomer, a)
	w.live(1, newcomer, a)
	w.free(false, newcomer, a)
	a.confirm(true)
	w.live(20, a)
	w.free(true, a)
	if _, _, marks := a.Age(); len(spans(marks)) != 1 || spans(marks)[0].from != from {
		t.Errorf("marks %q, want one from %d", marks, from)
	}
}

func TestOnlySoManyIncarnationsAreRemembered(t *testing.T) {
	t.Parallel()
	var m Memory
	for i := range 100 {
		m = m.with(fmt.Sprint("n", i), int64(i))
	}
	if names := strings.Fields(m.Line); len(names) != linesMost || names[linesMost-1] != "n99" || m.At != 99 {
		t.Errorf("remembered: %+v", m)
	}
}

// Redis is restored from before the confirmation of an earlier restore. Only the incarnations show that.
func TestASnapshotFromBeforeAnEarlierRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(5, a)
	first, from := w.snapshot(), w.now.Load()
	w.live(60, a)
	w.restore(first)
	w.live(1, a)
	a.confirm(true)
	w.live(2, a)
	second, until := w.snapshot(), w.now.Load()
	w.live(2, a)
	w.restore(first)
	w.live(1, a)
	w.free(false, a)
	a.confirm(true)
	w.live(60, a)
	w.free(true, a)
	if _, _, marks := a.Age(); len(spans(marks)) != 1 || spans(marks)[0].from != from {
		t.Errorf("marks %q, want one from %d", marks, from)
	}
	w.restore(second)
	w.live(1, a)
	a.confirm(true)
	if _, _, marks := a.Age(); len(spans(marks)) != 2 || spans(marks)[1].from != until {
		t.Errorf("marks %q, want a second one from %d", marks, until)
	}
}

// The right data returns: no confirmation is needed.
func TestTheDataThatWasSeenComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(5, a)
	old := w.snapshot()
	w.live(60, a)
	newest := w.snapshot()
	w.restore(old)
	w.live(1, a)
	w.free(false, a)
	w.restore(newest)
	w.live(1, a)
	w.free(true, a)
}

// The clock of the restored Redis is behind the clock that dated its jobs. The mark covers the jobs nevertheless.
func TestAMarkReachesAsFarAsAnyJobsDate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(5, a)
	old := w.snapshot()
	w.live(60, a)
	seen := w.now.Load()
	w.restore(old)
	w.pass(-30)
	a.pulse()
	a.confirm(true)
	if _, _, marks := a.Age(); len(spans(marks)) != 1 || spans(marks)[0].to != seen {
		t.Errorf("marks %q, want one until %d", marks, seen)
	}
}

// If no dispatcher remembers anything, an operator who has restored Redis says so before the first sign of life.
func TestAnOperatorsWordIsTakenWhereNobodyRemembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	w.live(5, w.dispatcher(Memory{}))
	from := w.now.Load()
	w.pass(600)
	pace := redisdb.NewKeys(w.gateway).Pace()
	if err := w.c.HSet(t.Context(), pace, "r", "the run that wrote it").Err(); err != nil {
		t.Fatal(err)
	}
	d := NewWatch(w.c, Params{Gateway: w.gateway, NowMicros: w.now.Load, Clock: w, Metrics: NewMetrics(prometheus.NewRegistry(), nil),
		Log: slog.New(slog.DiscardHandler)})
	done, err := d.Confirm(t.Context())
	if r := w.c.HGet(t.Context(), pace, "r").Val(); r != fmt.Sprint("restored ", from) {
		t.Errorf("the pacer is told %q, want that nothing is known since %d", r, from)
	}
	if err != nil || !done || !d.Free() {
		t.Fatalf("confirmed: %v, %v, free: %v", done, err, d.Free())
	}
	if _, _, marks := d.Age(); len(spans(marks)) != 1 || spans(marks)[0] != (span{from, w.now.Load()}) {
		t.Errorf("marks %q, want from %d until now", marks, from)
	}
}

func TestManyRestoresAndSilencesStayFew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	first := w.now.Load()
	for range 20 {
		w.pass(60)
		a.confirm(true)
	}
	_, _, marks := a.Age()
	if got := spans(marks); len(got) != 16 || got[0] != (span{first, first + 5*60*second}) || got[15].to != w.now.Load() {
		t.Errorf("marks %v", got)
	}
	for range 20 {
		w.pass(60)
		a.pulse()
	}
	if got := spans(w.snapshot()["gaps"]); len(got) != 16 || got[15].to != w.now.Load() {
		t.Errorf("gaps %v", got)
	}
}

// Waiting ends when an operator confirms, and when the waiter is stopped.
func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	a := w.dispatcher(Memory{})
	w.live(1, a)
	old := w.snapshot()
	w.live(60, a)
	w.restore(old)
	w.live(1, a)
	waits := make(chan error, 1)
	go func() { waits <- a.Wait(context.Background()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Wait(ctx); err == nil {
		t.Error("a stopped waiter waits on")
	}
	select {
	case err := <-waits:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	a.confirm(true)
	if err := <-waits; err != nil {
		t.Error(err)
	}
}

// Dispatchers still look at a Redis that refuses writes, and do not remember a sign of life that was not written.
func TestAFullRedisKeepsTheSignOfLifeThatItHas(t *testing.T) {
	t.Parallel()
	server := testkit.Server(t)
	w := newWorld(t, server.Client())
	a := w.dispatcher(Memory{})
	w.live(2, a)
	seen := a.Memory()
	server.Client().ConfigSet(t.Context(), "maxmemory", "1")
	w.live(5, a)
	if a.Memory() != seen {
		t.Errorf("seen %+v, written was %+v", a.Memory(), seen)
	}
}

func TestTheEmbeddedRedisUnderstandsIt(t *testing.T) {
	t.Parallel()
	db, err := redisdb.Open(t.Context(), redisdb.Embedded, redisdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w := newWorld(t, db.Client)
	a := w.dispatcher(Memory{})
	w.live(5, a)
	old := w.snapshot()
	w.live(30, a)
	w.restore(old)
	w.live(1, a)
	w.free(false, a)
	a.confirm(true)
	w.free(true, a)
}

// The pacer's state gets the time since when slots may be missing. It is unknown if the clock is behind what it wrote last.
func TestAConfirmedRestoreIsToldToThePacer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead int64 // of now: when the state was written, in s
		run   string
		known bool
	}{
		"the clock goes on":             {-70, "a run id", true},
		"the clock is behind":           {30, "a run id", false},
		"the clock was found to be so":  {-1, "behind 0", false},
		"an older restore is confirmed": {-70, "restored 5", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.Client(t))
			a := w.dispatcher(Memory{})
			w.live(20, a)
			old, from := w.snapshot(), w.now.Load()
			w.live(60, a)
			w.restore(old)
			w.live(1, a)
			pace := redisdb.NewKeys(w.gateway).Pace()
			w.c.HSet(t.Context(), pace, "c", w.now.Load()+c.ahead*second, "r", c.run)
			a.confirm(true)
			want := "restored 0"
			if c.known {
				want = fmt.Sprint("restored ", from)
			}
			if got := w.c.HGet(t.Context(), pace, "r").Val(); got != want {
				t.Errorf("it is told %q, want %q", got, want)
			}
		})
	}
}

// Outcomes after a restore sort after all earlier ones: a doubt begins a new epoch of the outcome feed, and so does the confirmation.
func TestARestoreBeginsAnEpochOfTheFeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t))
	d := w.dispatcher(Memory{})
	feed := redisdb.NewKeys(w.gateway).Feed()
	epoch := func() int64 { n, _ := w.c.HGet(t.Context(), feed, "epoch").Int64(); return n }
	if err := w.c.HSet(t.Context(), feed, "epoch", moment).Err(); err != nil { // of a clock that was far ahead
		t.Fatal(err)
	}
	seen := d.Memory()
	seen.At += 60 * second
	other := w.dispatcher(seen)
	if !other.Doubted() || epoch() != moment+1 {
		t.Errorf("the epoch is %d after a doubt, want %d", epoch(), int64(moment)+1)
	}
	if confirmed, err := other.Confirm(t.Context()); err != nil || !confirmed || epoch() != moment+2 {
		t.Errorf("the epoch is %d after %v %v, want %d", epoch(), confirmed, err, int64(moment)+2)
	}
}
