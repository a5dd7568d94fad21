package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// ward is a run of many gateways in this process. All but the last have one key that another program has written to.
type ward struct {
	*rig
	sick  []patient
	well  string
	log   *testkit.Log
	calls sync.Map // by gateway: *atomic.Int64
	stop  func()
	turn  int  // how many damaged gateways were looked at, plus 0 to 3
	named bool // an error because of a damaged key has to name the key
}

// patient is a gateway with a damaged key.
type patient struct {
	gateway, key string
	jobs         int // how many jobs must be called all the same
}

const eachHas = 6 // jobs of each gateway

// newWard returns a ward with one gateway for each key that a gateway has once, and one for each kind of key that a gateway has several of.
func newWard(t *testing.T) *ward {
	t.Helper()
	server := testkit.Server(t)
	w := &ward{rig: &rig{t: t, ctx: t.Context(), c: server.Client(), file: filepath.Join(t.TempDir(), "dispatcher.yaml"), one: "\x00", two: "\x01"}, log: &testkit.Log{}, turn: rand.IntN(4)}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := w.calls.LoadOrStore(strings.Trim(r.URL.Path, "/"), &atomic.Int64{})
		n.(*atomic.Int64).Add(1)
	}))
	t.Cleanup(srv.Close)
	var text strings.Builder
	fmt.Fprintf(&text, "redis: %s\ngateways:\n", server.URL())
	gateways := 100
	add := func() string {
		gateways++
		g := fmt.Sprintf("g%d", gateways)
		fmt.Fprintf(&text, "  %s:\n    request: {url: %q, idempotency_prefix: %q}\n    leak: {limits: [200/s]}\n", g, srv.URL+"/"+g, g)
		return g
	}
	for i := range len(redisdb.NewKeys("g").Whole()) {
		g := add()
		keys := redisdb.NewKeys(g).Whole()
		slices.Sort(keys)
		if key := keys[i]; !slices.Contains([]string{redisdb.NewKeys(g).Nobodys(), redisdb.NewKeys(g).Paused()}, key) { // nobody reads what is in them
			w.sick = append(w.sick, patient{gateway: g, key: key})
		}
	}
	for _, of := range []func(redisdb.Keys) string{
		func(k redisdb.Keys) string { return k.Job("j3") }, func(k redisdb.Keys) string { return k.Task("j3~1") },
		func(k redisdb.Keys) string { return k.Batch("hurt") }, func(k redisdb.Keys) string { return k.BatchIDs("hurt") },
		func(k redisdb.Keys) string { return k.ParkedBatch("refused", "hurt") },
	} {
		g := add()
		w.sick = append(w.sick, patient{g, of(redisdb.NewKeys(g)), eachHas - 1})
	}
	for _, of := range []func(redisdb.Keys) string{
		func(k redisdb.Keys) string { return k.PaceWindow(1) }, func(k redisdb.Keys) string { return k.Parked("rejected") }, func(k redisdb.Keys) string { return k.Parked("refused") },
	} {
		g := add()
		w.sick = append(w.sick, patient{gateway: g, key: of(redisdb.NewKeys(g))})
	}
	w.well = add()
	w.write(text.String())
	return w
}

// takeTurns shares the keys between the tests: each keeps its part of them. All tests keep the keys of single jobs.
func (w *ward) takeTurns(test, tests int) {
	i := 0
	w.sick = slices.DeleteFunc(w.sick, func(p patient) bool {
		i++
		return p.jobs == 0 && i%tests != test%tests
	})
}

func (w *ward) write(text string) {
	w.t.Helper()
	w.must(os.WriteFile(w.file, []byte(text), 0o600))
	cfg, err := config.Load(w.file, config.Options{Secrets: true})
	w.must(err)
	w.cfg = cfg
}

// put accepts jobs that are due at a time. The fourth of them is in a batch.
func (w *ward) put(gateway, name string, at time.Time) {
	w.t.Helper()
	var jobs []job.Job
	for i := range eachHas {
		j := job.Job{ID: fmt.Sprintf("%s%d", name, i), Gateway: gateway, Payload: []byte(`{}`), Cost: 1, At: at}
		if i == 3 {
			j.Batch = "hurt"
		}
		jobs = append(jobs, j)
	}
	db, err := dispatch.Open(w.ctx, w.cfg, time.Minute)
	w.must(err)
	defer db.Close()
	_, err = dispatch.Door(db.Client, w.cfg, time.Second).Admit(w.ctx, gateway, jobs, admission.Park)
	w.must(err)
}

// spoil writes to a key as another program would, and keeps its type.
func (w *ward) spoil(key string) {
	w.t.Helper()
	const cutOff = `{"who":"somebo`
	switch redisdb.TypeOf(key) {
	case "hash":
		fields := w.c.HKeys(w.ctx, key).Val()
		for _, field := range append(fields, "s", "version", "stamp", "accepted", "beat", "last") {
			w.must(w.c.HSet(w.ctx, key, field, "garbage").Err())
		}
	case "list":
		w.must(w.c.LPush(w.ctx, key, cutOff).Err())
		w.must(w.c.RPush(w.ctx, key, cutOff).Err())
	case "zset":
		w.must(w.c.ZAdd(w.ctx, key, redis.Z{Member: cutOff}).Err())
	default:
		w.must(w.c.Set(w.ctx, key, cutOff, 0).Err())
	}
}

// damage replaces a key with one of another type.
func (w *ward) damage(key string) {
	w.t.Helper()
	w.must(w.c.Del(w.ctx, key).Err())
	if redisdb.TypeOf(key) == "string" {
		w.must(w.c.HSet(w.ctx, key, "f", "garbage").Err())
		return
	}
	w.must(w.c.Set(w.ctx, key, "garbage", 0).Err())
}

func (w *ward) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	cmd := newCommand(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: w.log})
	cmd.SetArgs([]string{"run", "-c", w.file, "--listen", "127.0.0.1:0"})
	cmd.SetErr(w.log)
	go func() { over <- cmd.ExecuteContext(ctx) }()
	w.stop = sync.OnceFunc(func() {
		begun := time.Now()
		cancel()
		select {
		case err := <-over:
			if err != nil {
				w.t.Errorf("run ended with %v", err)
			}
		case <-time.After(5 * time.Minute):
			w.t.Fatal("run has not ended within 5 minutes")
		}
		w.t.Logf("run took %s to end", time.Since(begun).Round(time.Millisecond))
	})
	w.t.Cleanup(w.stop)
	testkit.Eventually(w.t, time.Minute, "run to serve", func() bool { return strings.Contains(w.log.String(), "msg=serving") })
}

func (w *ward) called(gateway string) int64 {
	n, ok := w.calls.Load(gateway)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// For each kind of key, one gateway has a damaged one: before run starts, or while it runs. The other gateways are called as before. If the key
// belongs to one job, the other jobs of its gateway are called too. Errors name the damaged key, and run ends when it is told to.
func TestADamagedKeyOfAnyKindCostsItsOwnerAlone(t *testing.T) {
	for i, c := range []struct {
		when   string
		damage func(*ward, string)
		named  bool
	}{{"before", (*ward).damage, true}, {"while", (*ward).damage, true}, {"before", (*ward).spoil, false}, {"while", (*ward).spoil, false}} {
		when := c.when
		t.Run(fmt.Sprintf("%s, another type %t", when, c.named), func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			w.named = c.named
			w.takeTurns(i, testkit.Often(4, 1))
			at := time.Time{}
			if when == "while" { // the jobs are scheduled
				w.run()
				at = time.Now().Add(5 * time.Second)
			}
			for _, p := range w.sick {
				w.put(p.gateway, "j", at)
			}
			for _, p := range w.sick {
				c.damage(w, p.key)
			}
			if when == "before" {
				w.run()
			}
			w.goesOn("k")
			for _, p := range w.sick {
				if !testkit.Within(3*time.Minute, 50*time.Millisecond, func() bool { return w.called(p.gateway) >= int64(p.jobs) }) {
					t.Errorf("%s: %d of the other jobs were called, of %d", p.key, w.called(p.gateway), p.jobs)
				}
				w.reach(p)
				w.look(p)
			}
			w.goesOn("l")
			w.stop()
			for _, p := range w.sick {
				if c.named && slices.Contains(loud, p.key[strings.Index(p.key, "}:")+2:]) && !strings.Contains(w.log.String(), p.key) {
					t.Errorf("%s: the log says nothing of it", p.key)
				}
			}
			if text := w.log.String(); strings.Contains(text, "panic") || strings.Contains(text, "goroutine ") {
				t.Errorf("something panicked:\n%s", text)
			}
		})
	}
}

// reach sends requests about a gateway, as producers and browsers do.
func (w *ward) reach(p patient) {
	w.t.Helper()
	base := "http://" + regexp.MustCompile(`listen=(\S+)`).FindStringSubmatch(w.log.String())[1]
	client := http.Client{Timeout: 2 * time.Minute}
	for _, path := range []string{"/gateways/" + p.gateway, "/jobs/j3?gateway=" + p.gateway, "/v1/gateways/" + p.gateway + "/jobs/j3"} {
		resp, err := client.Get(base + path)
		w.must(err)
		resp.Body.Close()
	}
	resp, err := client.Post(base+"/v1/gateways/"+p.gateway+"/jobs", "application/json", strings.NewReader(`{"id":"posted"}`))
	w.must(err)
	text, err := io.ReadAll(resp.Body)
	w.must(err)
	resp.Body.Close()
	if w.named && resp.StatusCode >= 500 && !strings.Contains(w.log.String()+string(text), p.key) {
		w.t.Errorf("%s: a post is answered %s %s, and nobody says which key it is", p.key, resp.Status, text)
	}
}

// goesOn checks that the undamaged gateway is called, for jobs that are due at once and for scheduled ones.
func (w *ward) goesOn(name string) {
	w.t.Helper()
	before := w.called(w.well)
	w.put(w.well, name, time.Time{})
	w.put(w.well, name+"-later", time.Now().Add(time.Second))
	if !testkit.Within(3*time.Minute, 50*time.Millisecond, func() bool { return w.called(w.well) == before+2*eachHas }) {
		w.t.Errorf("%d of the well gateway's jobs were called, of %d", w.called(w.well)-before, 2*eachHas)
	}
}

// loud are the keys without which a gateway is not called. The log names them if they are damaged.
var loud = []string{"pace", "hold", "pending", "active", "lease", "alive", "open", "counters", "limits", "due", "retries", "replays", "scheduled", "retrying"}

// looks are commands about one gateway.
var looks = [][]string{
	{"status", "-g"}, {"status", "-o", "json", "-g"}, {"job", "j3", "-g"}, {"job", "j1", "-g"}, {"batch", "hurt", "-g"}, {"batch", "hurt", "--export", "-g"},
	{"dlq", "list", "-g"}, {"dlq", "show", "j3", "-g"}, {"dlq", "stats", "-g"}, {"dlq", "export", "-g"}, {"dlq", "history", "-g"},
	{"dlq", "replay", "--yes", "-g"}, {"dlq", "discard", "--yes", "--why", "x", "-g"}, {"dlq", "resolve", "--not-done", "--yes", "--why", "x", "-g"},
	{"park", "j1", "--why", "x", "-g"}, {"limit", "-g"}, {"pause", "--why", "x", "-g"}, {"resume", "-g"}, {"audit", "-g"},
}

// look runs these commands for a damaged gateway. Each of them ends, and names the key if it fails.
func (w *ward) look(p patient) {
	w.t.Helper()
	w.turn++
	for i, args := range looks {
		if (i+w.turn)%testkit.Often(4, 1) != 0 { // in the short form, a gateway meets every fourth command; several runs have all
			continue
		}
		begun := time.Now()
		got := w.command(append(slices.Clone(args), p.gateway)...)
		if took := time.Since(begun); took > time.Minute {
			w.t.Errorf("%s: %v took %s", p.key, args, took)
		}
		its := p.jobs > 0 || args[0] == "park" // a job's record that was set aside, and a job that is called just then
		if w.named && (got.code == 1 && !its || got.code == 5) && !strings.Contains(got.err+got.out, p.key) {
			w.t.Errorf("%s: %v ends with %d and says\n%s", p.key, args, got.code, got.err)
		}
	}
}
