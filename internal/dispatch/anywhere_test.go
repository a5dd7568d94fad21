package dispatch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
	"spillway/internal/testkit"
)

// anywhere is a Redis with three gateways. The configuration has only the first two.
type anywhere struct {
	t          *testing.T
	c          redis.UniversalClient
	url        string
	a, b, gone string
	cfg        *config.Config
}

func newAnywhere(t *testing.T, url string, more ...string) *anywhere {
	t.Helper()
	w := &anywhere{t: t, url: url, a: testkit.Gateway(t), b: testkit.Gateway(t), gone: testkit.Gateway(t)}
	db, err := redisdb.Open(t.Context(), url, redisdb.Options{Wait: patience})
	w.must(err)
	t.Cleanup(func() { _ = db.Close() })
	w.c, w.cfg = db.Client, w.file("dedupe_scope: all\n"+strings.Join(more, ""), w.a, w.b)
	return w
}

func (w *anywhere) file(top string, gateways ...string) *config.Config {
	w.t.Helper()
	text := "redis: " + w.url + "\n" + top + "gateways:\n"
	for _, name := range gateways {
		text += "  " + name + ": {request: {url: \"http://127.0.0.1:1\", idempotency_prefix: \"\"}, leak: {limits: [100/s]}, admission: {limits: [1000/s], burst: 1000}}\n"
	}
	cfg, err := config.Parse("x.yaml", []byte(text), config.Options{Secrets: true, Payloads: true, Env: func(string) (string, bool) {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))), true
	}})
	w.must(err)
	return cfg
}

func (w *anywhere) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// door returns the door of another process.
func (w *anywhere) door() *admission.Door { return Door(w.c, w.cfg, patience) }

func payloads(text string, ids ...string) []job.Job {
	jobs := make([]job.Job, len(ids))
	for i, id := range ids {
		jobs[i] = job.Job{ID: id, Payload: json.RawMessage(text), Cost: 1}
	}
	return jobs
}

// admit returns the outcome of each job, such as "duplicate at b".
func (w *anywhere) admit(door *admission.Door, gateway string, jobs ...job.Job) string {
	w.t.Helper()
	answers, err := door.Admit(w.t.Context(), gateway, jobs, admission.Park)
	w.must(err)
	said := make([]string, len(answers))
	for i, a := range answers {
		if said[i] = string(a.Outcome); a.KnownAt != "" {
			said[i] += " at " + a.KnownAt
		}
		if a.Outcome == job.Conflict && a.KnownAt != "" && !strings.Contains(a.Err.Error(), "known at gateway "+a.KnownAt+" with another payload") {
			w.t.Errorf("the error names no gateway: %v", a.Err)
		}
	}
	return strings.Join(said, ", ")
}

// known returns how many gateways have a record of the job.
func (w *anywhere) known(id string) (n int64) {
	w.t.Helper()
	for _, name := range []string{w.a, w.b, w.gone} {
		is, err := w.c.Exists(w.t.Context(), redisdb.NewKeys(name).Job(id)).Result()
		w.must(err)
		n += is
	}
	return n
}

func (w *anywhere) claimed(ids ...string) (n int64) {
	w.t.Helper()
	for _, id := range ids {
		key, _ := redisdb.Claim(id)
		is, err := w.c.Exists(w.t.Context(), key).Result()
		w.must(err)
		n += is
	}
	return n
}

// everywhere runs a test on a single Redis and on a cluster.
func everywhere(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	t.Run("one Redis", func(t *testing.T) { t.Parallel(); test(t, testkit.Server(t).URL()) })
	t.Run("cluster", func(t *testing.T) { t.Parallel(); test(t, testkit.Cluster(t).URL()) })
}

func TestAnIDIsKnownOverAllGateways(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		w := newAnywhere(t, url)
		long := strings.Repeat("i", 199) + "}"
		is := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		// Queues of asynq may be other people's, with names that no gateway can have.
		w.must(w.c.SAdd(t.Context(), redisdb.AsynqQueues, "", "Mail}{", "{x}").Err())
		// What went in before the option was switched on is known, and so is what a gateway knows that the file does not have.
		before := Door(w.c, w.file("", w.a, w.gone), patience)
		is("before", w.admit(before, w.a, payloads(`{"n":1}`, "old", long)...), "enqueued, enqueued")
		is("another file", w.admit(before, w.gone, payloads(`{"n":1}`, "retired")...), "enqueued")
		if n := w.claimed("old", long, "retired"); n > 0 {
			t.Errorf("with the default, %d ids were claimed", n)
		}
		is("a", w.admit(w.door(), w.a, payloads(`{"n":1}`, "x", "old")...), "enqueued, duplicate")
		is("b", w.admit(w.door(), w.b, payloads(`{ "n": 1 }`, "x", "y", "old", long, "retired", "y")...),
			fmt.Sprintf("duplicate at %s, enqueued, duplicate at %s, duplicate at %s, duplicate at %s, duplicate", w.a, w.a, w.a, w.gone))
		is("another payload", w.admit(w.door(), w.b, payloads(`{"n":2}`, "x", "y", "z")...), "conflict at "+w.a+", conflict, enqueued")
		is("all known", w.admit(w.door(), w.a, payloads(`{"n":1}`, "y")...), "duplicate at "+w.b)
		for _, id := range []string{"x", "y", "z", "old", long, "retired"} {
			if n := w.known(id); n != 1 {
				t.Errorf("%s has %d records", id, n)
			}
		}
		if n := w.claimed("x", "y", "z", "old", long, "retired"); n > 0 {
			t.Errorf("%d ids are claimed by nobody who takes them in", n)
		}
		// An id is free again when its record is gone.
		w.must(w.c.PExpire(t.Context(), redisdb.NewKeys(w.a).Job("x"), time.Millisecond).Err())
		testkit.Eventually(t, 5*time.Second, "the record to be gone", func() bool { return w.known("x") == 0 })
		is("after its end", w.admit(w.door(), w.b, payloads(`{"n":3}`, "x")...), "enqueued")
	})
}

// Each gateway seals payloads and digests under its own name. An id is known over all gateways nevertheless.
func TestAnIDIsKnownOverAllGatewaysWhosePayloadsAreSealed(t *testing.T) {
	t.Parallel()
	w := newAnywhere(t, testkit.Server(t).URL(), "encryption: {active: k1, keys: {k1: \"${SPILLWAY_KEY}\"}}\n")
	w.admit(w.door(), w.a, payloads(`{"n":1}`, "x", "y")...)
	if got, want := w.admit(w.door(), w.b, append(payloads(`{"n":1}`, "x"), payloads(`{"n":2}`, "y")...)...), "duplicate at "+w.a+", conflict at "+w.a; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// When the same ids are sent to two gateways at the same time, each id is admitted at exactly one of them.
func TestTwoGatewaysNeverTakeTheSameIDIn(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, url string) {
		w := newAnywhere(t, url)
		doors := []*admission.Door{w.door(), w.door()}
		taken := map[string]int{}
		for round := range testkit.Often(40, 600) {
			ids := make([]string, 8)
			for i := range ids {
				ids[i] = fmt.Sprintf("r%d-%d", round, i)
			}
			var both sync.WaitGroup
			said := make([]string, 2)
			for i, name := range []string{w.a, w.b} {
				both.Go(func() { said[i] = w.admit(doors[i], name, payloads(`{}`, ids...)...) })
			}
			both.Wait()
			for i, id := range ids {
				one, other := strings.Split(said[0], ", ")[i], strings.Split(said[1], ", ")[i]
				if w.known(id) != 1 || (one == "enqueued") == (other == "enqueued") || one != "enqueued" && one != "duplicate at "+w.b || other != "enqueued" && other != "duplicate at "+w.a {
					t.Fatalf("%s: %d records; %s is told %s, and %s %s", id, w.known(id), w.a, one, w.b, other)
				}
				taken[one]++
			}
		}
		t.Logf("what the first one was told: %v", taken)
	})
}

// A process may die at any command: the ids it claimed can be admitted at once at the same gateway, and at another one when the claim has expired.
func TestAClaimOfADeadProcessBlocksNoID(t *testing.T) {
	t.Parallel()
	w := newAnywhere(t, testkit.Server(t).URL())
	var points sync.WaitGroup
	var mu sync.Mutex
	became := map[string]int{}
	for n := 0; ; n++ {
		alive := 0
		for _, after := range []bool{false, true} {
			x, y := fmt.Sprintf("x-%d-%t", n, after), fmt.Sprintf("y-%d-%t", n, after)
			c, hook := cutting(t, w.url, n, after)
			if _, err := Door(c, w.cfg, 0).Admit(t.Context(), w.a, payloads(`{}`, x, y), admission.Park); !hook.dead {
				w.must(err)
				alive++
				continue
			}
			door, start := w.door(), time.Now() // not beside the others, which would make it take longer
			if said := w.admit(door, w.a, payloads(`{}`, x)...); said != "enqueued" && said != "duplicate" {
				t.Errorf("dead at command %d (ran: %t), and again at the same gateway: %s", n, after, said)
			}
			if waited := time.Since(start); waited > 10*time.Second {
				t.Errorf("dead at command %d (ran: %t): the same gateway waited %v for its own claim", n, after, waited)
			}
			points.Go(func() {
				said := w.admit(door, w.b, payloads(`{}`, x, y)...)
				if want := "duplicate at " + w.a; said != want+", enqueued" && said != want+", "+want {
					t.Errorf("dead at command %d (ran: %t), and then at another gateway: %s", n, after, said)
				}
				if w.known(x) != 1 || w.known(y) != 1 {
					t.Errorf("dead at command %d (ran: %t): %d and %d records", n, after, w.known(x), w.known(y))
				}
				mu.Lock()
				defer mu.Unlock()
				became[said[strings.Index(said, ", ")+2:]]++
			})
		}
		if alive == 2 {
			break
		}
	}
	points.Wait()
	if len(became) != 2 {
		t.Errorf("it died either before or after it took them in, never both: %v", became)
	}
}

func cutting(t *testing.T, url string, n int, after bool) (redis.UniversalClient, *cut) {
	t.Helper()
	opt, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	opt.MaxRetries = -1
	c, hook := redis.NewClient(opt), &cut{left: n, after: after}
	c.AddHook(hook)
	t.Cleanup(func() { _ = c.Close() })
	return c, hook
}

// stalled is books before which an offer stalls while it holds its claims. The first offer is lost.
type stalled struct {
	ledger.Offerer
	here, open chan struct{}
	lost       atomic.Bool
}

func (g *stalled) Offer(jobs []job.Newcomer) (job.Offer, error) {
	offer, err := g.Offerer.Offer(jobs)
	return func(ctx context.Context, ticket job.Ticket, mode string) ([]job.Admittance, job.Room, error) {
		if !g.lost.Swap(true) {
			return nil, job.Room{}, io.EOF
		}
		g.here <- struct{}{}
		<-g.open
		return offer(ctx, ticket, mode)
	}, err
}

// An offer that stalled until its claims had expired is not carried out, but repeated: another gateway may have admitted its ids meanwhile.
func TestAnOfferBehindItsClaimsIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	w := newAnywhere(t, testkit.Server(t).URL())
	all := ledger.NewAnywhere(w.c, w.cfg.Names(), func(string) *seal.Box { return nil })
	g := &stalled{Offerer: Books(w.c, w.cfg.Gateways[0]), here: make(chan struct{}), open: make(chan struct{})}
	offer, err := all.Of(w.a, g).Offer([]job.Newcomer{{Job: payloads(`{}`, "x")[0]}, {Job: payloads(`{}`, "y")[0]}})
	w.must(err)
	type told struct {
		answers []job.Admittance
		room    job.Room
		err     error
	}
	said := make(chan told, 1)
	start := time.Now() // before the claims, which last for 12 s
	put := func() {
		answers, room, err := offer(t.Context(), job.Ticket{Sequence: "l", Number: 1}, "park")
		said <- told{answers, room, err}
	}
	go put()
	if got := <-said; got.err != io.EOF {
		t.Fatalf("lost, and it comes to %+v", got)
	}
	go put()
	<-g.here
	if n := w.claimed("x", "y"); n != 2 {
		t.Fatalf("%d claims", n)
	}
	if got := w.admit(w.door(), w.b, payloads(`{}`, "x")...); got != "enqueued" {
		t.Fatalf("when the claim has ended: %s", got)
	}
	if waited := time.Since(start); waited < 11*time.Second {
		t.Fatalf("it went in after %v, under another's claim", waited)
	}
	g.open <- struct{}{} // for the answer that may have been lost
	<-g.here             // and again
	if n := w.known("y"); n != 0 {
		t.Fatal("it was carried out too late")
	}
	g.open <- struct{}{}
	if got := <-said; got.err != nil || got.answers[0] != job.Conflict || got.room.Elsewhere[0] != w.b || got.answers[1] != job.Enqueued {
		t.Errorf("once more: %+v", got) // a conflict, as the test's digests are empty
	}
	if w.known("x") != 1 || w.known("y") != 1 {
		t.Errorf("%d and %d records", w.known("x"), w.known("y"))
	}
}

// between calls do once, when all gateways have been asked.
type between struct {
	cut
	do func()
}

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil && b.do != nil {
			b.do()
			b.do = nil
		}
		return err
	}
}

// While a gateway is renamed, the keys of its jobs change. A job may be under neither name at the moment it is looked for.
func TestAJobIsKnownWhileItsGatewayIsRenamed(t *testing.T) {
	t.Parallel()
	for _, over := range []bool{false, true} {
		w := newAnywhere(t, testkit.Server(t).URL())
		ctx, old, next := t.Context(), redisdb.NewKeys(w.gone), redisdb.NewKeys("next")
		w.must(redisdb.Register(ctx, w.c, w.gone))
		door := w.door()
		w.admit(door, w.a, payloads(`{}`, "other")...)
		if !over {
			w.must(w.c.HSet(ctx, old.Alive(), "moving", "rename "+w.gone+" next").Err())
			w.must(redisdb.Register(ctx, w.c, "next"))
			w.admit(door, w.a, payloads(`{}`, "another")...) // it knows of the new name from here on
		}
		w.c.(*redis.Client).AddHook(&between{cut: cut{left: 1 << 30}, do: func() {
			w.must(w.c.HSet(ctx, next.Job("x"), record.Short("digest"), "another").Err())
			if over {
				w.must(redisdb.Register(ctx, w.c, "next"))
				w.must(redisdb.Unregister(ctx, w.c, w.gone))
			}
		}})
		if got := w.admit(door, w.a, payloads(`{}`, "x")...); got != "conflict at next" {
			t.Errorf("the rename is over: %t, and the job is %s", over, got)
		}
	}
}
