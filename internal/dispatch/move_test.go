package dispatch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/audit"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// mover is a Redis with a gateway that is to be renamed, and an HTTP server that counts calls by idempotency key.
type mover struct {
	t        *testing.T
	url      string
	db       *redisdb.DB
	old, new config.Gateway
	mu       sync.Mutex
	calls    map[string]int
}

func newMover(t *testing.T, redisURL string) *mover {
	t.Helper()
	m := &mover{t: t, calls: map[string]int{}}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls[r.Header.Get("Idempotency-Key")]++
	}))
	t.Cleanup(srv.Close)
	m.url = srv.URL
	m.name("up-"+strings.ToLower(rand.Text()[:6]), redisURL)
	return m
}

// name sets up the gateway, and the same one under its new name.
func (m *mover) name(old, redisURL string) {
	m.t.Helper()
	text := fmt.Sprintf("redis: %s\ngateways:\n", redisURL)
	for _, g := range []string{old, old + "-eu"} {
		text += fmt.Sprintf("  %s:\n    request: {url: %q, idempotency_prefix: \"\"}\n    amount: {field: amount, currency: currency}\n    leak: {limits: [2000/s]}\n    admission: {burst: 25}\n", g, m.url)
	}
	cfg, err := config.Parse("x.yaml", []byte(text), config.Options{Secrets: true})
	m.must(err)
	m.old, m.new = cfg.Gateways[0], cfg.Gateways[1]
	if m.db == nil {
		m.db, err = Open(m.t.Context(), cfg, patience)
		m.must(err)
		m.t.Cleanup(func() { _ = m.db.Close() })
	}
}

func (m *mover) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// put admits jobs: most are queued, some find no room, one is scheduled.
func (m *mover) put(g config.Gateway, n int) (answers []admission.Answer) {
	m.t.Helper()
	jobs := make([]job.Job, n)
	for i := range jobs {
		jobs[i] = job.Job{ID: fmt.Sprintf("C-%03d", i), Gateway: g.Name, Payload: []byte(`{"amount":1000,"currency":"EUR"}`), Cost: 1, Batch: "ren"}
		if i == 5 {
			jobs[i].At = time.Now().Add(time.Hour)
		}
	}
	answers, err := Door(m.db.Client, &config.Config{Gateways: []config.Gateway{g}}, patience).Admit(m.t.Context(), g.Name, jobs, admission.Park)
	m.must(err)
	return answers
}

func (m *mover) moving(c redis.UniversalClient) Moving {
	return Moving{Redis: c, Old: m.old.Name, New: m.new, Act: deadletter.Act{Who: "ann@host", What: "gateway rename", Why: "one name"}, once: 11}
}

// remembering runs a dispatcher, which saves what it sees in state, until so many jobs are done or the data is doubted.
func (m *mover) remembering(g config.Gateway, state string, done int64) (doubt error) {
	m.t.Helper()
	d, err := New(Params{DB: m.db, Gateways: []config.Gateway{g}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Patience: patience, State: state})
	m.must(err)
	defer stop(d)
	if err := d.Start(m.t.Context()); err != nil {
		return err
	}
	testkit.Eventually(m.t, patience, "the jobs, or a doubt", func() bool {
		s, err := Books(m.db.Client, g).Look(m.t.Context())
		doubt = d.Ready()
		return err == nil && s.Done == done || doubt != nil
	})
	return doubt
}

// dump returns all data of a gateway. restore replaces the present data with it, as if a minute had passed.
func (m *mover) dump(g config.Gateway) map[string]string {
	m.t.Helper()
	all, ctx := map[string]string{}, m.t.Context()
	for _, start := range redisdb.Starts(g.Name) {
		for _, key := range m.db.Client.Keys(ctx, start+"*").Val() {
			all[key] = m.db.Client.Dump(ctx, key).Val()
		}
	}
	return all
}

func (m *mover) restore(g config.Gateway, snapshot map[string]string) {
	m.t.Helper()
	ctx := m.t.Context()
	for key := range m.dump(g) {
		m.must(m.db.Client.Del(ctx, key).Err())
	}
	for key, text := range snapshot {
		m.must(m.db.Client.Restore(ctx, key, 0, text).Err())
	}
	m.alive(g, "at", fmt.Sprint(time.Now().Add(-time.Minute).UnixMicro()))
}

// Redis is restored from before the calls, and the gateway is renamed before it is served. No job is called again.
func TestAnOldSnapshotIsNoticedUnderANewName(t *testing.T) {
	t.Parallel()
	m, state := newMover(t, testkit.Server(t).URL()), t.TempDir()
	m.must(m.remembering(m.old, state, 0)) // the data gets its incarnation
	m.put(m.old, 10)
	snapshot := m.dump(m.old)
	m.must(m.remembering(m.old, state, 9))
	m.restore(m.old, snapshot)
	m.must(m.moving(m.db.Client).Rename(t.Context()))
	if err := m.remembering(m.new, state, 9); err == nil || !strings.Contains(err.Error(), "old snapshot") {
		t.Errorf("served under its new name: %v", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, n := range m.calls {
		if n > 1 {
			t.Errorf("%s was called %d times", key, n)
		}
	}
}

// stands returns a gateway's standing and the faults of its audit, as text.
func (m *mover) stands(g config.Gateway) string {
	m.t.Helper()
	b := Books(m.db.Client, g)
	a, err := audit.New(m.db.Client, g.Name, b).Audit(m.t.Context(), audit.Params{Most: 5})
	m.must(err)
	money, err := b.WaitingMoney(m.t.Context(), 10)
	m.must(err)
	return fmt.Sprintf("accepted %d scheduled %d queued %d done %d parked %v waiting %s faults %d %v", a.Accepted, a.Scheduled, a.Queued, a.Done, a.Parked, money, a.Faults.Total, a.Faults.List)
}

// keys returns the Redis keys of a gateway without its name, except those of its age and its trail.
func (m *mover) keys(g config.Gateway) []string {
	m.t.Helper()
	var all []string
	for _, start := range redisdb.Starts(g.Name) {
		found, err := m.db.Client.Keys(m.t.Context(), start+"*").Result()
		m.must(err)
		for _, key := range found {
			if rest := strings.TrimPrefix(key, start); !slices.Contains([]string{"alive", "trail", "journal", "head"}, rest) && !strings.HasPrefix(rest, "receipt:") {
				all = append(all, start[:5]+rest)
			}
		}
	}
	slices.Sort(all)
	return all
}

// queued checks that each task in the queue has the new gateway's name.
func (m *mover) queued() {
	m.t.Helper()
	k, of := redisdb.NewKeys(m.new.Name), queue.NewEncoder(m.new.Name)
	tasks, err := m.db.Client.LRange(m.t.Context(), k.Pending(), 0, -1).Result()
	m.must(err)
	for _, task := range tasks {
		want, err := of.Encode(task)
		m.must(err)
		if got := m.db.Client.HGet(m.t.Context(), k.Task(task), "msg").Val(); got != string(want) {
			m.t.Fatalf("task %s says %q, want %q", task, got, want)
		}
	}
}

// serve runs a dispatcher until so many jobs are done.
func (m *mover) serve(g config.Gateway, done int64) {
	m.t.Helper()
	m.must(m.remembering(g, "", done))
}

// A renamed gateway continues under its new name: each job is called once, with the key that it had, ids stay known, and the books are in order.
func TestARenamedGatewayGoesOn(t *testing.T) {
	t.Parallel()
	m := newMover(t, testkit.Server(t).URL())
	m.put(m.old, 40)
	before, keys := m.stands(m.old), m.keys(m.old)
	m.must(m.moving(m.db.Client).Rename(t.Context()))
	if got := m.stands(m.new); got != before || !strings.Contains(got, "queued 25") && !strings.Contains(got, "queued 24") || !strings.Contains(got, "faults 0") {
		t.Errorf("%s\nwas\n%s", got, before)
	}
	if got := m.keys(m.new); !slices.Equal(got, keys) || len(m.keys(m.old)) > 0 {
		t.Errorf("it has the keys %v, and had %v; left: %v", got, keys, m.keys(m.old))
	}
	if v, err := deadletter.New(m.db.Client, m.new.Name).Verify(t.Context(), deadletter.Head{}); err != nil || !v.OK || v.Entries == 0 || v.Unchained > 0 {
		t.Errorf("the trail: %+v %v", v, err)
	}
	m.queued()
	for _, a := range m.put(m.new, 40) {
		if a.Outcome != job.Duplicate {
			t.Fatalf("an id is not known any more: %+v", a)
		}
	}
	m.serve(m.new, 39)
	if len(m.calls) != 39 || slices.Max(slices.Collect(maps.Values(m.calls))) != 1 || m.calls["C-000"] != 1 {
		t.Errorf("calls by key: %v", m.calls)
	}
	if got := m.stands(m.new); !strings.Contains(got, "done 39") || !strings.Contains(got, "faults 0") {
		t.Error(got)
	}
	if left := m.db.Client.LLen(t.Context(), redisdb.NewKeys(m.new.Name).Active()).Val(); left != 0 {
		t.Errorf("asynq holds %d tasks", left)
	}
	acts, err := Store(m.db.Client, m.new).LastActs(t.Context(), 5)
	if err != nil || len(acts) != 1 || acts[0].What != "gateway rename" || acts[0].Ended == nil {
		t.Errorf("the trail: %+v, %v", acts, err)
	}
	if names, err := redisdb.Registered(t.Context(), m.db.Client); err != nil || slices.Contains(names, m.old.Name) || !slices.Contains(names, m.new.Name) {
		t.Errorf("registered: %v, %v", names, err)
	}
}

// The new name had a trail of its own. An entry says how that chain ended, and what was wrong with it.
func TestARenameSaysHowTheOtherChainEnded(t *testing.T) {
	t.Parallel()
	m := newMover(t, testkit.Server(t).URL())
	m.put(m.old, 1)
	there := deadletter.New(m.db.Client, m.new.Name)
	for range 2 {
		m.must(there.Entry(deadletter.Act{Who: "bob", What: "pause"}).Begin(t.Context()))
	}
	head, err := there.Head(t.Context())
	m.must(err)
	m.must(m.db.Client.LSet(t.Context(), redisdb.NewKeys(m.new.Name).Trail(), 1, "{}").Err())
	m.must(m.moving(m.db.Client).Rename(t.Context()))
	acts, err := there.LastActs(t.Context(), 9)
	m.must(err)
	last := acts[len(acts)-1]
	if len(acts) != 4 || last.What != joined || last.Who != "ann@host" || !strings.Contains(last.Why, "ended with link 2, "+head.Hash) || !strings.Contains(last.Why, "it had 1 faults: entry 2 of the trail was changed") {
		t.Errorf("%+v", acts)
	}
	if v, err := there.Verify(t.Context(), deadletter.Head{}); err != nil || !v.OK {
		t.Errorf("%+v %v", v, err)
	}
}

var errKilled = errors.New("the process was killed")

// cut kills a process after left commands, either before the next one or after it has run.
type cut struct {
	left  int
	after bool
	dead  bool
}

func (c *cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return c.do(func() error { return next(ctx, cmd) }, func() { cmd.SetErr(errKilled) })
	}
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c.do(func() error { return next(ctx, cmds) }, func() {
			for _, cmd := range cmds {
				cmd.SetErr(errKilled)
			}
		})
	}
}

func (c *cut) do(run func() error, fail func()) error {
	if !c.dead && c.left > 0 {
		c.left--
		return run()
	}
	if c.after && !c.dead {
		_ = run()
	}
	c.dead = true
	fail()
	return errKilled
}

// cutting returns a client that is killed after n commands.
func (m *mover) cutting(url string, n int, after bool) (redis.UniversalClient, *cut) {
	opt, err := redis.ParseURL(url)
	m.must(err)
	opt.MaxRetries = -1
	c, hook := redis.NewClient(opt), &cut{left: n, after: after}
	c.AddHook(hook)
	m.t.Cleanup(func() { _ = c.Close() })
	return c, hook
}

// A rename that was killed at any command loses nothing when it is run again. Until then, neither name admits jobs, and no dispatcher serves either.
func TestARenameThatIsKilledAnywhereGoesOn(t *testing.T) {
	t.Parallel()
	url := testkit.Server(t).URL()
	m := newMover(t, url)
	first := m.old.Name
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ { // the first asks for the time
			m.name(fmt.Sprintf("%s-%t-%d", first, after, n), url)
			m.put(m.old, 30)
			before, keys := m.stands(m.old), m.keys(m.old)
			c, hook := m.cutting(url, n, after)
			if err := m.moving(c).Rename(t.Context()); !hook.dead {
				m.must(err)
				break
			}
			m.shut()
			again := m.moving(m.db.Client)
			if m.left() {
				m.must(again.Rename(t.Context()))
			}
			if got := m.stands(m.new); got != before || !strings.Contains(got, "faults 0") {
				t.Fatalf("killed at command %d (ran: %t):\n%s\nwas\n%s", n, after, got, before)
			}
			if got := m.keys(m.new); !slices.Equal(got, keys) || len(m.keys(m.old)) > 0 {
				t.Fatalf("killed at command %d (ran: %t): it has the keys %v, and had %v; left: %v", n, after, got, keys, m.keys(m.old))
			}
		}
	}
}

// left reports whether the old gateway has any keys.
func (m *mover) left() bool {
	m.t.Helper()
	return m.db.Client.Exists(m.t.Context(), redisdb.NewKeys(m.old.Name).Alive()).Val() > 0 || len(m.keys(m.old)) > 0
}

// shut checks that an unfinished rename keeps jobs and dispatchers out.
func (m *mover) shut() {
	m.t.Helper()
	for _, g := range []config.Gateway{m.old, m.new} {
		what, err := redisdb.Moving(m.t.Context(), m.db.Client, g.Name)
		m.must(err)
		if what == "" {
			continue
		}
		_, err = Door(m.db.Client, &config.Config{Gateways: []config.Gateway{g}}, 0).Admit(m.t.Context(), g.Name, []job.Job{{ID: "X-1", Payload: []byte(`{}`)}}, admission.Park)
		if err == nil || !strings.Contains(err.Error(), "was begun and is not over") {
			m.t.Fatalf("a job went in at %s while it is being renamed: %v", g.Name, err)
		}
		d, err := New(Params{DB: m.db, Gateways: []config.Gateway{g}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
		m.must(err)
		if err = d.Start(m.t.Context()); err == nil || !strings.Contains(err.Error(), "was begun and is not over") {
			m.t.Fatalf("a dispatcher serves %s while it is being renamed: %v", g.Name, err)
		}
		stop(d)
		if err := Store(m.db.Client, g).Entry(deadletter.Act{}).Begin(m.t.Context()); err == nil {
			m.t.Fatal("an act begins meanwhile")
		}
	}
}

// A rename that could lose or double a payment is refused, and changes nothing.
func TestARenameIsRefused(t *testing.T) {
	t.Parallel()
	for want, given := range map[string]func(m *mover){
		"a dispatcher serves OLD":        func(m *mover) { m.put(m.old, 3); m.serve(m.old, 3) },
		"a dispatcher serves NEW":        func(m *mover) { m.put(m.old, 3); m.serve(m.new, 0) },
		"1 call of OLD may be in flight": func(m *mover) { m.put(m.old, 3); m.attempt() },
		"NEW has had jobs of its own":    func(m *mover) { m.put(m.old, 3); m.put(m.new, 2) },
		"Redis's data is doubted":        func(m *mover) { m.put(m.old, 3); m.alive(m.old, "df", "1") },
		"forget OLD\" was begun and is":  func(m *mover) { m.put(m.old, 3); m.alive(m.old, "moving", "forget "+m.old.Name) },
	} {
		m := newMover(t, testkit.Redis(t))
		given(m)
		before := m.keys(m.old)
		err := m.moving(m.db.Client).Rename(t.Context())
		if err == nil || !strings.Contains(strings.NewReplacer(m.new.Name, "NEW", m.old.Name, "OLD").Replace(err.Error()), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if got := m.keys(m.old); !slices.Equal(got, before) {
			t.Errorf("%s: it has the keys %v, and had %v", want, got, before)
		}
	}
	m := newMover(t, testkit.Redis(t))
	m.new.Encryption = &config.Encryption{}
	if err := m.moving(m.db.Client).Check(); err == nil {
		t.Error("sealed payloads get another name")
	}
	if err := m.moving(redis.NewClusterClient(&redis.ClusterOptions{})).Check(); err == nil || !strings.Contains(err.Error(), "cluster") {
		t.Errorf("in a cluster: %v", err)
	}
}

func (m *mover) alive(g config.Gateway, field, value string) {
	m.t.Helper()
	m.must(m.db.Client.HSet(m.t.Context(), redisdb.NewKeys(g.Name).Alive(), field, value).Err())
}

// attempt records an open attempt of the old gateway.
func (m *mover) attempt() {
	m.t.Helper()
	m.must(m.db.Client.ZAdd(m.t.Context(), redisdb.NewKeys(m.old.Name).Open(), redis.Z{Score: 1, Member: "C-000"}).Err())
}

// A forgotten gateway leaves only an entry.
func TestAForgottenGatewayLeavesAnEntry(t *testing.T) {
	t.Parallel()
	url := testkit.Server(t).URL()
	m := newMover(t, url)
	first := m.old.Name
	for n := 1; ; n++ {
		m.name(fmt.Sprintf("%s-%d", first, n), url)
		m.put(m.old, 30)
		c, hook := m.cutting(url, n, n%2 == 0)
		forget := m.moving(c)
		forget.New, forget.Act.Jobs = config.Gateway{}, 30
		err := forget.Forget(t.Context())
		if hook.dead {
			forget.Redis = m.db.Client
			if m.left() {
				m.must(forget.Forget(t.Context()))
			}
		} else {
			m.must(err)
		}
		if left := m.keys(m.old); len(left) > 0 {
			t.Fatalf("killed at command %d: left: %v", n, left)
		}
		all, err := AllForgotten(t.Context(), m.db.Client)
		i := slices.IndexFunc(all, func(f Forgotten) bool { return f.Gateway == m.old.Name })
		if err != nil || i < 0 || all[i].Jobs != 30 || all[i].Why != "one name" || all[i].Ended == nil || len(all) != n {
			t.Fatalf("killed at command %d: the entries: %+v, %v", n, all, err)
		}
		if !hook.dead {
			return
		}
	}
}

func TestAForgottenGatewayOfACluster(t *testing.T) {
	t.Parallel()
	m := newMover(t, testkit.Cluster(t).URL())
	m.put(m.old, 30)
	forget := m.moving(m.db.Client)
	forget.New = config.Gateway{}
	m.must(forget.Forget(t.Context()))
	if s, err := Books(m.db.Client, m.old).Look(t.Context()); err != nil || s.Accepted != 0 || s.Queued != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if names, err := redisdb.Registered(t.Context(), m.db.Client); err != nil || len(names) != 0 {
		t.Errorf("registered: %v, %v", names, err)
	}
}
