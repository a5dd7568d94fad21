package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/double"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/outcome"
	"spillway/internal/packs"
	"spillway/internal/testkit"
	"spillway/internal/worker"
)

// crash is when a job's worker dies.
type crash struct {
	when string // diesBefore or diesAfter; empty: never
	call int    // of the job, from 1
}

const (
	diesBefore = "before the write" // the attempt is written down, and no call goes out
	diesAfter  = "after the write"  // the call has its answer, and the outcome is not written down
)

var allCrashes = []crash{{}, {diesBefore, 1}, {diesAfter, 1}, {diesBefore, 2}, {diesAfter, 2}}

func (c crash) String() string {
	if c.when == "" {
		return "no crash"
	}
	return fmt.Sprintf("crash %s of call %d", c.when, c.call)
}

// handClock is a clock that moves when it is told to, or when somebody who is patient waits by it.
type handClock struct {
	mu      sync.Mutex
	now     time.Time
	hurried int    // how many of those who wait next are cut off instead
	cut     func() // cuts off the call under way
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After returns a channel that has fired already: the wait is over when it begins. For one in a hurry it never fires, and his call is cut off.
func (c *handClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hurried > 0 {
		c.hurried--
		c.cut()
		return nil
	}
	c.now = c.now.Add(max(d, 0))
	over := make(chan time.Time, 1)
	over <- c.now
	return over
}

func (c *handClock) calling(cut func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

// until moves the clock on to a moment, if that is still to come.
func (c *handClock) until(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now) {
		c.now = t
	}
}

func (c *handClock) micros() int64 { return c.Now().UnixMicro() }

// eager hands out slots at once, and notes for how long an answer wants all calls held.
type eager struct {
	clock *handClock
	held  time.Duration
}

func (p *eager) Take(_ context.Context, cost int64, _ string) (job.Slot, error) {
	return job.Slot{At: 1, Cost: cost}, nil
}
func (p *eager) Retake(ctx context.Context, cost int64, id string) (job.Slot, error) {
	return p.Take(ctx, cost, id)
}
func (p *eager) Passed(job.Slot, time.Time) bool                               { return false }
func (p *eager) Behind(job.Slot, time.Time) (time.Duration, bool)              { return 0, true }
func (p *eager) Due(job.Slot) time.Time                                        { return time.Now() }
func (p *eager) TooLate(job.Slot, time.Time) bool                              { return false }
func (p *eager) Ready(job.Slot, time.Time)                                     {}
func (p *eager) Written(job.Slot, time.Time)                                   {}
func (p *eager) Release(context.Context, ...job.Slot) error                    { return nil }
func (p *eager) Trim(_ context.Context, s job.Slot, _ int64) (job.Slot, error) { return s, nil }
func (p *eager) End(context.Context, job.Slot)                                 {}
func (p *eager) Fewer(context.Context) (int64, error)                          { return 1, nil }
func (p *eager) Succeeded(context.Context, job.Slot, bool) bool                { return false }

// Failed holds everybody where the gateway asks for it. A failure alone is no outage, and spends its job's attempt.
func (p *eager) Failed(_ context.Context, f job.Failure) (job.Fallout, error) {
	if f.Kind == job.Fail {
		return job.Fallout{}, nil
	}
	p.held = max(f.For, time.Second)
	now := p.clock.Now()
	return job.Fallout{At: now, Outage: now, Held: p.held, Opened: true}, nil
}

// cell is one gateway as its pack has it, in front of the double of the same name, and the life of one job there.
type cell struct {
	t      *testing.T
	row    row
	crash  crash
	g      config.Gateway
	table  *double.Table
	double *double.Double
	clock  *handClock
	books  *ledger.Books
	store  *deadletter.Store
	client *gateway.Client
	pacer  *eager
	judge  outcome.Table

	calling int  // deliveries so far
	died    bool // the cell's crash has been
	waited  bool
	unread  int // the place of the call, among all, whose answer died with its worker; -1: there is none
}

func newCell(t *testing.T, c redis.UniversalClient, plays *double.Table, like config.Gateway, r row, how crash) *cell {
	t.Helper()
	l := &cell{t: t, row: r, crash: how, table: plays, unread: -1, clock: &handClock{now: time.Now()}}
	l.pacer = &eager{clock: l.clock}
	var err error
	if l.double, err = double.New(plays, double.Options{Clock: l.clock, Choose: r.choices()}); err != nil {
		t.Fatal(err)
	}
	if r.hurried() {
		l.clock.hurried = 1
	}
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	l.g = like
	l.g.Name, l.g.Request.URL = testkit.Gateway(t), config.Secret(srv.URL+"/pay")
	request, err := callConfig(l.g)
	if err == nil {
		l.client, err = gateway.New(request)
	}
	if err == nil {
		l.judge, err = table(l.g)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.client.Close)
	kept := bookkeeping(c, l.g)
	kept.NowMicros = l.clock.micros
	l.books = ledger.New(c, kept)
	l.store = Store(c, l.g)
	l.store.NowMicros = l.clock.micros
	return l
}

// ServeHTTP hands a call to the double, and cuts it off where the clock says that its caller does not wait.
func (l *cell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	l.clock.calling(cut)
	l.double.ServeHTTP(w, r.WithContext(ctx))
}

// own are the lines that the file has to write for a pack, since the pack asks for them in its caveats.
var own = map[string]string{
	"stripe/v2": "answers: {done_needs: {status: [succeeded]}, rules: [{event: action, status: 2xx, body: {status: requires_action}, then: refused}]}",
}

// written is what a user has to write of a gateway that is like the pack: its part of the file. Where no limit is published it is 100/s. It asks for nothing
// afterwards: what calls come to is one thing, and what look-ups make of it another.
func written(t *testing.T, table *double.Table) string {
	t.Helper()
	text := fmt.Sprintf("    like: %s\n    lookup: off\n    request: {url: \"http://127.0.0.1/pay\", headers: {%s: Bearer sk_1}}\n", table.Gateway, table.Auth.Header)
	pack, err := packs.Get(table.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	if pack.Gateway["leak"] == nil {
		text += "    leak: {limits: [100/s]}\n"
	}
	if lines := own[table.Gateway]; lines != "" {
		text += "    " + lines + "\n"
	}
	return text
}

// configured is a gateway that is like the pack.
func configured(t *testing.T, table *double.Table) config.Gateway {
	t.Helper()
	cfg, err := config.Parse("x.yaml", []byte("gateways:\n  shop:\n"+written(t, table)), config.Options{Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Gateways[0]
}

// payload is a payment as the gateway takes it, of 12.50 euros.
func payload(table *double.Table, id string) []byte { return payment(table, id, 1250) }

// payment is a payment as the gateway takes it, of so many cents. It has them in minor units as well, for gateways that take no such.
func payment(table *double.Table, id string, cents int) []byte {
	q := table.Request
	var doc any
	put := func(path string, value any) {
		if path != "" {
			doc = place(doc, strings.Split(strings.ReplaceAll(path, "*", "job"), "."), value)
		}
	}
	decimal := fmt.Sprintf("%d.%02d", cents/100, cents%100)
	put(q.Amount, map[string]any{"minor": cents, "string": decimal, "number": json.Number(decimal)}[q.Unit])
	put(inCents, cents)
	put(q.Currency, "EUR")
	put(q.Reference[0], id)
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // maps, lists, texts and numbers can be written
	}
	return text
}

// inCents is a field of payments that no gateway knows.
const inCents = "in_cents"

// place puts a value at a path into a document of maps, and of lists where a step of the path is 0.
func place(doc any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "0" {
		list, _ := doc.([]any)
		if list == nil {
			list = make([]any, 1)
		}
		list[0] = place(list[0], path[1:], value)
		return list
	}
	m, _ := doc.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	m[path[0]] = place(m[path[0]], path[1:], value)
	return m
}

// mostRounds is how often a job is delivered at most: more than it has attempts.
const mostRounds = 14

// play lets a job live until it is done or parked, or could not come in, and returns its record then.
func (l *cell) play(id string) (rec job.Record, refused error) {
	l.t.Helper()
	if err := l.g.Request.Key.Check(id); err != nil {
		return job.Record{}, err
	}
	j := job.Job{ID: id, Gateway: l.g.Name, Payload: payload(l.table, id), Cost: 1}
	if _, _, err := testkit.Accept(l.t.Context(), l.books, job.Ticket{Sequence: rand.Text(), Number: 1}, []job.Newcomer{{Job: j, Digest: "d"}}, "park"); err != nil {
		l.t.Fatal(err)
	}
	w := l.worker()
	for range mostRounds {
		if rec = l.record(id); rec.State == job.Done || rec.State == job.Parked {
			break
		}
		l.pass(rec)
		if rec = l.record(id); rec.State == job.Queued && !l.deliver(w, rec) {
			w = l.worker() // in another process
		}
	}
	return l.record(id), nil
}

func (l *cell) record(id string) job.Record {
	l.t.Helper()
	rec, ok, err := l.books.Find(l.t.Context(), id)
	if err != nil || !ok {
		l.t.Fatalf("job %s: found %v, %v", id, ok, err)
	}
	return rec
}

func (l *cell) worker() *worker.Worker {
	g := l.g
	first := g.Retry.First
	return worker.New(worker.Config{
		Gateway: g.Name, Pacer: l.pacer, Ledger: mortalBooks{l.books, l}, DeadLetters: mortalStore{l.store, l}, Sender: mortalSender{l}, Judge: l.judge,
		Backoff:  func(n int) time.Duration { return min(first<<min(n-1, 20), g.Retry.Max) },
		Attempts: g.Retry.Attempts, Timeout: g.Request.Timeout, Keys: g.Request.Key.Any(), KeyLifetime: g.Request.KeyCovers(), Sent: sent(g),
		Owner: newOwner(), Stopping: l.t.Context(), Clock: clock.Real{}, Metrics: worker.NewMetrics(prometheus.NewRegistry(), []string{g.Name}),
		Log: slog.New(slog.DiscardHandler),
	})
}

// deliver hands a job to the worker, and returns whether the worker has lived through it.
func (l *cell) deliver(w *worker.Worker, rec job.Record) (lived bool) {
	l.t.Helper()
	l.calling++
	over := make(chan error, 1)
	go func() {
		defer close(over)
		over <- w.Handle(l.t.Context(), job.Delivery{JobID: rec.Job.ID, Generation: rec.Generation, Slot: job.Slot{At: 1, Cost: 1}})
	}()
	err, lived := <-over
	if err != nil {
		l.t.Fatal(err)
	}
	return lived
}

// pass lets the time pass until the job can be called again, and does what the dispatcher does then.
func (l *cell) pass(rec job.Record) {
	l.t.Helper()
	l.linger(rec)
	switch rec.State {
	case job.InFlight: // of a worker that has died
		l.clock.until(rec.Deadline.Add(time.Millisecond))
	case job.Retrying:
		l.clock.until(rec.Due)
	}
	l.clock.until(l.clock.Now().Add(l.pacer.held))
	l.pacer.held = 0
	if _, err := l.books.Sweep(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	if _, _, err := l.books.MoveDue(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// linger lets the job wait once, after its first call, as its row says.
func (l *cell) linger(rec job.Record) {
	if l.waited || len(l.calls(rec.Job.ID)) == 0 {
		return
	}
	l.waited = true
	switch l.row.options["wait"] {
	case "late": // as late as Spillway still trusts the key
		l.clock.until(rec.FirstCall.Add(l.g.Request.KeyCovers() - time.Second))
	case "past": // the gateway has forgotten the key
		l.clock.until(l.clock.Now().Add(max(l.g.Request.KeyLifetime, l.lives()) + time.Second))
	case "window": // what others have used up is free again
		l.clock.until(l.clock.Now().Add(longest(l.table)/10 + time.Second))
	}
}

// lives is how long the double knows a key at most, in a row of this fate.
func (l *cell) lives() (most time.Duration) {
	for _, k := range l.table.Keys {
		life := k.Life
		if strings.HasPrefix(l.row.fate, "life-") {
			life = k.Short
		}
		most = max(most, time.Duration(life))
	}
	return most
}

// longest is the longest window that counts calls.
func longest(table *double.Table) (window time.Duration) {
	for _, limit := range table.Limits {
		if limit.Limit != nil && limit.Over != "lookups" {
			window = max(window, limit.Limit.Window)
		}
	}
	return window
}

// calls are those of a job, as the double has them.
func (l *cell) calls(id string) []double.Call {
	return slices.DeleteFunc(l.double.Calls(), func(c double.Call) bool { return c.Job != id })
}

// die ends the worker of the cell's crash, once: nothing that it was about to do is done.
func (l *cell) die(when string) {
	if l.crash.when != when || l.crash.call != l.calling || l.died {
		return
	}
	l.died = true
	if when == diesAfter {
		l.unread = len(l.double.Calls()) - 1
	}
	runtime.Goexit()
}

type mortalSender struct{ l *cell }

func (s mortalSender) Send(ctx context.Context, r job.Request) job.Result {
	s.l.die(diesBefore)
	return s.l.client.Send(ctx, r)
}

type mortalBooks struct {
	*ledger.Books
	l *cell
}

func (b mortalBooks) Done(ctx context.Context, a job.Attempt, e job.Ending) error {
	b.l.die(diesAfter)
	return b.Books.Done(ctx, a, e)
}

func (b mortalBooks) Back(ctx context.Context, a job.Attempt, e job.Ending, wait time.Duration) error {
	b.l.die(diesAfter)
	return b.Books.Back(ctx, a, e, wait)
}

type mortalStore struct {
	*deadletter.Store
	l *cell
}

func (s mortalStore) ParkOrAsk(ctx context.Context, a job.Attempt, e job.Ending, reason job.Reason) (bool, error) {
	s.l.die(diesAfter)
	return s.Store.ParkOrAsk(ctx, a, e, reason)
}
