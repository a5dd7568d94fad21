package ledger_test

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// A brakesWorld plays one schedule of calls, crashes, losses of Redis, files and people, in virtual time, and checks what was called against the brakes by brute force.
type brakesWorld struct {
	*bench
	r       *rand.Rand
	procs   []*brakesProc
	files   []job.Brakes // each process has one of the last two
	open    []openCall
	calls   []moneyCall
	lifts   [][2]int64
	copied  map[string]string // of Redis, to go back to
	copyAt  int64
	deaths  int // since the copy
	started int
	jobs    int
	opened  int // attempts
	refused int // openings that a brake kept back
	several int // runs of a script for several openings
	rig     brakesRig
	disk    *brakesDisk // nil: Redis keeps nothing on disk
}

// brakesRig is a Redis, and how a process reaches it.
type brakesRig struct {
	c        redis.UniversalClient
	together redis.UniversalClient // runs a script for several callers at once
	crowd    *crowd                // nil: what is to be opened at once is opened in turn, so that a seed always makes the same schedule
}

// rigOf connects to a Redis.
func rigOf(t *testing.T, url string, c redis.UniversalClient) brakesRig {
	db, err := redisdb.Open(t.Context(), url, redisdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	rig := brakesRig{c: c, together: db.Together(), crowd: &crowd{}}
	db.Client.AddHook(testkit.Around(rig.crowd.see))
	return rig
}

type brakesProc struct {
	name  string
	file  int
	books *ledger.Books
	seen  *ledger.Counted
	tries int
	stop  bool // it does not tell what it has seen
}

type openCall struct {
	p      *brakesProc
	a      job.Attempt
	opened int64
	lead   time.Duration // until it is written at the latest
	file   int
	order  int // of the openings
}

// moneyCall is a call that was made, or may have been.
type moneyCall struct {
	opened, at int64
	order      int
	currency   string
	minor      int64
	file       int
}

const brakeLead = 10 * time.Second // until a call is written at the latest

var moneyOf = func(payload []byte) string { return job.MoneyField(payload, "amount", "currency") }

func newBrakesWorld(t *testing.T, rig brakesRig, seed uint64) *brakesWorld {
	c := rig.c
	w := &brakesWorld{r: rand.New(rand.NewPCG(seed, 21)), bench: &bench{t: t, ctx: t.Context(), c: c, name: "braked", now: 1_700_000_000_000_000}, rig: rig} //nolint:gosec // a schedule
	w.must(c.FlushDB(w.ctx).Err())
	w.keys = redisdb.NewKeys(w.name)
	w.cfg = ledger.Config{Gateway: w.name, Keys: true, KeyLifetime: 1000 * time.Hour, Attempts: 1000, Dedupe: 1000 * time.Hour, Money: moneyOf,
		Bucket: tokens{bucket.TokenBucket{Limits: []job.Limit{{N: 1000, Window: time.Second}}, Burst: 100000}}, Encode: queue.NewEncoder(w.name).Encode, NowMicros: func() int64 { return w.now }}
	w.bench.books = ledger.New(c, w.cfg)
	w.files = []job.Brakes{w.drawFile()}
	w.files[0].RefuseUnknown = true // money is counted from the first file with brakes on
	for range 3 {
		w.begin()
	}
	return w
}

// drawFile makes a file with brakes of windows up to a day.
func (w *brakesWorld) drawFile() (b job.Brakes) {
	windows := []time.Duration{10 * time.Second, time.Minute, 7 * time.Minute, 24 * time.Hour}
	for _, currency := range []string{"EUR", "USD"} {
		for _, i := range w.r.Perm(len(windows))[:w.r.IntN(3)] {
			most := 300 + w.r.Int64N(2000)
			b.Limits = append(b.Limits, job.MoneyLimit{Most: money(most*int64(1+i), currency), Window: windows[i]})
		}
	}
	if w.r.IntN(3) == 0 {
		b.Single = []job.Money{money(350+w.r.Int64N(100), "EUR")}
	}
	b.RefuseUnknown = w.r.IntN(2) == 0
	return b
}

func money(minor int64, currency string) job.Money {
	return job.Money{Minor: big.NewInt(minor), Currency: currency}
}

// begin starts a process, with the newest file.
func (w *brakesWorld) begin() {
	p := &brakesProc{seen: &ledger.Counted{}}
	w.procs = append(w.procs, p)
	w.reads(p)
}

// reads makes a process read the newest file: its workers have another name from then on.
func (w *brakesWorld) reads(p *brakesProc) {
	w.started++
	cfg := w.cfg
	p.name = fmt.Sprintf("host.%d.x", w.started)
	p.file = len(w.files) - 1
	cfg.Brakes, cfg.Counted = w.files[p.file], p.seen
	p.books = ledger.New(w.rig.together, cfg)
}

func (w *brakesWorld) proc() *brakesProc { return w.procs[w.r.IntN(len(w.procs))] }

// pass lets time go by. Processes tell what they have seen once a second.
func (w *brakesWorld) pass(us int64) {
	for _, p := range w.procs {
		if us >= 1e6 && !p.stop {
			w.must(p.books.TellCounted(w.ctx))
		}
	}
	w.now += us
}

func (w *brakesWorld) step() {
	switch n := w.r.IntN(100); {
	case n < 22:
		w.accept("park", w.job())
	case n < 56:
		w.call(w.proc())
	case n < 60:
		w.callSeveral()
	case n < 78:
		w.end()
	case n < 90:
		w.pass(w.r.Int64N([]int64{2e5, 3e6, 20e6, 100e6}[w.r.IntN(4)]))
	case n < 92:
		w.replay()
	case n < 94:
		_, err := w.books.Sweep(w.ctx)
		w.must(err)
		_, _, err = w.books.MoveDue(w.ctx)
		w.must(err)
	case n < 95:
		w.kill()
	case n < 96:
		w.files = append(w.files, w.drawFile())
		w.reads(w.proc())
	case n < 97:
		w.reads(w.proc())
	case n < 98:
		w.lift()
	case n < 99:
		w.lose()
	default:
		w.pass(w.r.Int64N(3600e6) * w.r.Int64N(8))
	}
}

func (w *brakesWorld) job() job.Job {
	w.jobs++
	currency := []string{"EUR", "EUR", "EUR", "USD", "CHF"}[w.r.IntN(5)]
	payload := fmt.Sprintf(`{"amount":%d,"currency":%q}`, 1+w.r.Int64N(400), currency)
	if w.r.IntN(20) == 0 {
		payload = `{"note":"none"}`
	}
	return job.Job{ID: fmt.Sprintf("j%d", w.jobs), Payload: []byte(payload)}
}

// call makes a process pull a task, unless the gateway waits and the process has had no slot before, and open it.
func (w *brakesWorld) call(p *brakesProc) {
	brake, _ := w.c.HGet(w.ctx, w.keys.Hold(), "brake").Int64()
	if brake > w.now && w.r.IntN(10) > 0 || len(w.waiting()) == 0 {
		return
	}
	id, generation := w.pull()
	p.tries++
	owner := fmt.Sprintf("%s.%d", p.name, p.tries)
	open := func() (job.Attempt, job.Opening) {
		a, o, err := p.books.Open(w.ctx, id, generation, owner, brakeLead)
		w.must(err)
		return a, o
	}
	a, opening := open()
	if opening == job.OpenGo && w.r.IntN(10) == 0 { // the answer was lost
		w.pass(w.r.Int64N(2e6))
		a, opening = open()
	}
	w.came(p, id, generation, brakeLead, a, opening)
}

// callSeveral makes processes with one file open several tasks at once, in few runs of a script. The answers to some of them are lost.
func (w *brakesWorld) callSeveral() {
	first := w.proc()
	n := min(2+w.r.IntN(5), len(w.waiting()))
	brake, _ := w.c.HGet(w.ctx, w.keys.Hold(), "brake").Int64()
	if brake > w.now && w.r.IntN(3) > 0 || n < 2 {
		return
	}
	type opening struct {
		p          *brakesProc
		id, owner  string
		generation int64
		lead       time.Duration
		a          job.Attempt
		what       job.Opening
		err        error
	}
	all := make([]opening, n)
	for i := range all {
		o := &all[i]
		for o.p = first; i > 0 && w.r.IntN(2) == 0; {
			if o.p = w.proc(); o.p.file == first.file {
				break
			}
			o.p = first
		}
		o.id, o.generation = w.pull()
		o.p.tries++
		o.owner, o.lead = fmt.Sprintf("%s.%d", o.p.name, o.p.tries), brakeLead-time.Duration(w.r.Int64N(1e9))
	}
	open := func(some []int) {
		one := func(ctx context.Context, i int) {
			o := &all[some[i]]
			o.a, o.what, o.err = o.p.books.Open(ctx, o.id, o.generation, o.owner, o.lead)
		}
		if w.rig.crowd != nil {
			w.rig.crowd.at(w.t, len(some), one)
			return
		}
		for i := range some {
			one(w.ctx, i)
		}
	}
	var every, again []int
	for i := range all {
		every = append(every, i)
	}
	open(every)
	for i, o := range all {
		if o.err == nil && o.what == job.OpenGo && w.r.IntN(10) == 0 { // the answer was lost
			again = append(again, i)
		}
	}
	if len(again) > 0 {
		open(again)
	}
	w.several++
	for _, o := range all {
		w.must(o.err)
		w.came(o.p, o.id, o.generation, o.lead, o.a, o.what)
	}
}

// came continues after an opening.
func (w *brakesWorld) came(p *brakesProc, id string, generation int64, lead time.Duration, a job.Attempt, opening job.Opening) {
	switch opening {
	case job.OpenGo:
		w.opened++
		w.open = append(w.open, openCall{p, a, w.now, lead, p.file, w.opened})
	case job.OpenBraked:
		w.refused++
		if w.r.IntN(20) > 0 { // else it dies before it gives the job back
			w.must(p.books.Back(w.ctx, a, job.Ending{}, 0))
		}
	case job.OpenOver:
		w.must(deadletter.New(w.c, w.name).Park(w.ctx, a, job.Ending{Error: a.LastError}, job.Refused))
	default:
		w.finish(id, generation)
	}
}

// made notes that a call was made, at a moment at which it may have been.
func (w *brakesWorld) made(c openCall) {
	m, ok := job.Booked(moneyOf(c.a.Job.Payload))
	if !ok {
		return
	}
	at := c.opened + w.r.Int64N(c.lead.Microseconds()+1)
	switch w.r.IntN(4) {
	case 0:
		at = c.opened
	case 1:
		at = c.opened + c.lead.Microseconds()
	}
	w.calls = append(w.calls, moneyCall{c.opened, at, c.order, m.Currency, m.Minor.Int64(), c.file})
}

// end ends a call that is under way: it was made, or surely not.
func (w *brakesWorld) end() {
	if len(w.open) == 0 {
		return
	}
	i := w.r.IntN(len(w.open))
	c := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	n := w.r.IntN(10)
	e := job.Ending{Called: true, Spent: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(w.now)}
	switch {
	case n < 2: // not called
		w.must(c.p.books.Back(w.ctx, c.a, job.Ending{}, 0))
		return
	case n < 6:
		w.must(c.p.books.Done(w.ctx, c.a, e))
	case n < 8: // called, and again
		e.Status, e.Verdict, e.Unsure = 500, job.VerdictRetry, true
		w.must(c.p.books.Back(w.ctx, c.a, e, time.Duration(w.r.Int64N(2))*time.Second))
	case n < 9:
		e.Status, e.Verdict = 402, job.VerdictRefused
		w.must(deadletter.New(w.c, w.name).Park(w.ctx, c.a, e, job.Refused))
	}
	w.made(c) // also where its end is never written down
}

// replay readmits parked jobs.
func (w *brakesWorld) replay() {
	ids, err := w.c.ZRange(w.ctx, w.keys.Parked("refused"), 0, 9).Result()
	w.must(err)
	var all []job.Return
	for _, id := range ids {
		all = append(all, job.Return{ID: id, Generation: w.record(id).Generation, Reason: job.Refused})
	}
	if len(all) > 0 {
		_, _, err = w.books.Readmit(w.ctx, all)
		w.must(err)
	}
}

// kill ends a process, whose calls in flight were made or not, and begins another one.
func (w *brakesWorld) kill() {
	i := w.r.IntN(len(w.procs))
	p := w.procs[i]
	w.procs = slices.Delete(w.procs, i, i+1)
	w.open = slices.DeleteFunc(w.open, func(c openCall) bool {
		if c.p == p && w.r.IntN(2) == 0 {
			w.made(c)
		}
		return c.p == p
	})
	w.deaths++
	w.begin()
}

func (w *brakesWorld) lift() {
	d := w.r.Int64N(120e6)
	w.must(w.books.LiftBrakes(w.ctx, ledger.Lift{For: time.Duration(d) * time.Microsecond, Who: "me", Why: "month's end"}))
	w.lifts = append(w.lifts, [2]int64{w.now, w.now + d})
}

// lose empties Redis, or takes it back to its state some seconds ago, as a fail-over does.
func (w *brakesWorld) lose() {
	switch {
	case w.r.IntN(3) == 0:
		w.must(w.c.FlushDB(w.ctx).Err())
		w.c.HSet(w.ctx, w.keys.Alive(), "emptied", w.now) // as begin.lua does, where anybody knows what was
		w.forget()
	case w.disk != nil && w.r.IntN(2) == 0:
		w.disk.kill(w)
	case w.mayGoBack():
		w.goneBack()
	default:
		w.copy()
	}
}

// goneBack takes Redis back to the copy.
func (w *brakesWorld) goneBack() {
	w.goBack()
	w.c.HSet(w.ctx, w.keys.Hold(), "lost", w.now) // as the pacer does before it gives another slot
	w.forget()
	for _, p := range w.procs {
		p.stop = false
	}
	// Lifts live on in the check only where they do in Redis.
	w.lifts = slices.DeleteFunc(w.lifts, func(l [2]int64) bool { return l[0] >= w.copyAt })
	for _, c := range w.open { // who had them can't end them, and they may have been made
		w.made(c)
	}
	w.open = nil
}

// mayGoBack reports whether there is a copy so young that the processes that know what came since are alive.
func (w *brakesWorld) mayGoBack() bool {
	return (w.copied != nil || w.disk != nil && w.disk.size > 0) && w.deaths == 0 && w.now-w.copyAt < 8e6
}

func (w *brakesWorld) forget() {
	if w.copied = nil; w.disk != nil {
		w.disk.size = 0
	}
}

func (w *brakesWorld) copy() {
	w.copyAt, w.deaths = w.now, 0
	if w.disk != nil {
		w.disk.copy(w)
		return
	}
	w.copied = map[string]string{}
	for _, key := range w.c.Keys(w.ctx, "*").Val() {
		w.copied[key] = w.c.Dump(w.ctx, key).Val()
	}
}

func (w *brakesWorld) goBack() {
	if w.disk != nil {
		w.disk.cut(w)
		return
	}
	w.must(w.c.FlushDB(w.ctx).Err())
	for key, dump := range w.copied {
		w.must(w.c.Restore(w.ctx, key, 0, dump).Err())
	}
}

// over returns a window in which more was called than a brake allowed that was in the file of the process that opened the last call of the window, or "".
func (w *brakesWorld) over() string {
	all := slices.Clone(w.calls)
	for _, c := range w.open { // those still under way may have been made as well
		w.made(c)
	}
	all, w.calls = w.calls, all
	slices.SortFunc(all, func(a, b moneyCall) int { return int(a.at - b.at) })
	for _, window := range w.windows() {
		for i, first := range all {
			sum, last := int64(0), first
			for _, c := range all[i:] {
				if c.at >= first.at+window.Microseconds() {
					break
				}
				if c.currency != first.currency {
					continue
				}
				sum += c.minor
				if c.opened > last.opened || c.opened == last.opened && c.order > last.order {
					last = c
				}
				if text := w.above(last, window, sum); text != "" {
					return text
				}
			}
		}
	}
	return ""
}

func (w *brakesWorld) above(last moneyCall, window time.Duration, sum int64) string {
	for _, l := range w.lifts {
		if last.opened >= l[0] && last.opened <= l[1] {
			return ""
		}
	}
	for _, l := range w.files[last.file].Limits {
		if l.Window == window && l.Most.Currency == last.currency && sum > l.Most.Minor.Int64() {
			return fmt.Sprintf("%d of %s called, the last of them opened at %d", sum, l, last.opened)
		}
	}
	return ""
}

func (w *brakesWorld) windows() []time.Duration {
	all := map[time.Duration]bool{}
	for _, f := range w.files {
		for _, l := range f.Limits {
			all[l.Window] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// play plays a schedule and returns what went wrong.
func (w *brakesWorld) play(steps int) string {
	for range steps {
		w.step()
	}
	if text := w.over(); text != "" {
		return text
	}
	return w.settles()
}

// settles lets the world go on without trouble: every job must come to an end by itself.
func (w *brakesWorld) settles() string {
	for range 1000 {
		for _, c := range w.open {
			w.made(c)
			w.must(c.p.books.Done(w.ctx, c.a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(w.now)}))
		}
		w.open = nil
		_, err := w.books.Sweep(w.ctx)
		w.must(err)
		_, _, err = w.books.MoveDue(w.ctx)
		w.must(err)
		brake, _ := w.c.HGet(w.ctx, w.keys.Hold(), "brake").Int64()
		switch {
		case len(w.waiting()) > 0 && brake <= w.now:
			w.call(w.procs[0])
		case len(w.waiting()) > 0:
			till, _ := w.c.HGet(w.ctx, w.keys.Hold(), "brake_until").Int64()
			w.now = max(w.now, till)
		case w.c.ZCard(w.ctx, w.keys.Open()).Val()+w.c.ZCard(w.ctx, w.keys.Retrying()).Val()+w.c.LLen(w.ctx, w.keys.Active()).Val() == 0:
			return ""
		default:
			w.pass(5e6)
		}
	}
	return fmt.Sprintf("%d jobs wait for ever", len(w.waiting()))
}

// No window of any brake holds more money than the brake allows, whatever is replayed, killed, changed live, lifted or lost. Jobs wait no longer than that takes.
func TestBrakesHoldInEveryWindow(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	url, c := testkit.Database(t)
	rig := rigOf(t, url, c)
	refused, calls, several := 0, 0, 0
	for seed := range uint64(testkit.Often(24, 300)) {
		w := newBrakesWorld(t, rig, seed)
		if text := w.play(160); text != "" {
			t.Fatalf("seed %d: %s", seed, text)
		}
		refused, calls, several = refused+w.refused, calls+len(w.calls), several+w.several
	}
	t.Logf("%d calls, %d openings kept back, %d times several at once", calls, refused, several)
	if refused < 20 || calls < 200 || several < 20 {
		t.Errorf("%d openings were kept back, %d calls made, %d times several at once: that shows nothing", refused, calls, several)
	}
}

// Each part of the brakes is needed: without it, some schedule goes above a limit, or stops.
func TestMutantsOfBrakes(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, m := range map[string]struct {
		seed uint64 // of the first schedule that goes wrong
		bent [2]string
	}{
		"a call counts when it is opened, not when it is written": {43, [2]string{"local at = c.now + c.lead", "local at = c.now"}},
		"a part counts from its beginning":                        {22, [2]string{"return math.ceil(at / w.width) * w.width", "return math.floor(at / w.width) * w.width"}},
		"a window is too short":                                   {33, [2]string{"math.floor((now - w.span) / w.width)", "math.floor((now - 0.5 * w.span) / w.width)"}},
		"calls that were made are given back":                     {0, [2]string{"if line == '' and not job.given_up then money_back", "if not job.given_up then money_back"}},
		"a dead worker's call is given back":                      {154, [2]string{"redis.call('HDEL', record, 'mc')", ""}},
		"files without brakes do not count":                       {518, [2]string{"if ARGV[14] ~= '' or stands[2] or ARGV[16] ~= '' then", "if ARGV[14] ~= '' then"}},
		"a window that is new in the file begins empty":           {22, [2]string{"brakes_begin(key, w, more, now, before)", ""}},
		"what Redis lost is not told":                             {144, [2]string{"if missing > 0 then", "if missing > 2 ^ 60 then"}},
		"an emptied Redis begins anew":                            {3, [2]string{"local lost = full and full + lead + w.span or 0", "local lost = 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c := testkit.Database(t)
			c.AddHook(bentScripts(t, m.bent))
			rig := brakesRig{c: c, together: c}
			for seed := m.seed; seed < m.seed+uint64(testkit.Often(20, 300)); seed++ {
				if text := newBrakesWorld(t, rig, seed).play(160); text != "" {
					t.Logf("seed %d: %s", seed, text)
					return
				}
			}
			t.Error("the mutant lives")
		})
	}
}

// bentScripts makes Redis run, instead of each script that contains the first text, the script with the second text in its place.
func bentScripts(t *testing.T, pair [2]string) testkit.Hook {
	bent := map[string]string{}
	for _, text := range redisdb.Texts() {
		if is := strings.ReplaceAll(text, pair[0], pair[1]); is != text {
			hash := sha1.Sum([]byte(text)) //nolint:gosec // Redis's name of a script
			bent[hex.EncodeToString(hash[:])] = is
		}
	}
	if len(bent) == 0 {
		t.Fatalf("the mutant changes nothing: %q stands in no script", pair[0])
	}
	return testkit.Hook{Alone: func(cmd redis.Cmder, send func() error) error {
		args := cmd.Args()
		if name, _ := args[0].(string); strings.EqualFold(name, "evalsha") {
			if is, ok := bent[fmt.Sprint(args[1])]; ok {
				args[0], args[1] = "eval", is
			}
		}
		return send()
	}}
}
