package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/provider"
	"spillway/internal/testkit"
)

const oldKey, newKey = "sk_canary_old", "sk_canary_new"

// locked is a gateway that accepts calls with a known key.
type locked struct {
	mu     sync.Mutex
	known  []string
	shown  []string // keys of the calls, in order
	closed int      // calls that it refused
}

// ServeHTTP answers a call.
func (l *locked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	l.shown = append(l.shown, key)
	if !slices.Contains(l.known, key) {
		l.closed++
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func (l *locked) learn(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = append(l.known, key)
}

func (l *locked) calls(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, k := range l.shown {
		if k == key {
			n++
		}
	}
	return n
}

// keyed is how many jobs are for the locked gateway.
const keyed = 400

// running is a run of two gateways in this process: a locked one, and a strict provider.
type running struct {
	t            *testing.T
	c            redis.UniversalClient
	dir, file    string
	keys, strict string // names of the gateways
	lock         *locked
	judge        *provider.Provider
	urls         [2]string
	log          *testkit.Log
	cfg          *config.Config
	stop         func()
	admission    string   // of the gateway with a lock
	terminal     bool     // the log goes to a person
	only         []string // -g and its gateway
	flags        []string // more arguments
}

func newRunning(t *testing.T) *running {
	t.Helper()
	r := &running{t: t, c: testkit.Client(t), dir: t.TempDir(), keys: testkit.Gateway(t), strict: testkit.Gateway(t), lock: &locked{known: []string{oldKey}},
		judge: provider.New(provider.Config{}), log: &testkit.Log{}, admission: "{limits: [100000/s]}"}
	r.file = filepath.Join(r.dir, "dispatcher.yaml")
	srv := httptest.NewServer(r.lock)
	t.Cleanup(srv.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.judge.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-served })
	r.urls = [2]string{srv.URL, "http://" + ln.Addr().String()}
	return r
}

func (r *running) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// write replaces a file atomically: a reload may come at any time.
func (r *running) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	r.must(os.WriteFile(path+".new", []byte(text), 0o600))
	r.must(os.Rename(path+".new", path))
}

// configure writes the configuration, with this limit for the strict provider.
func (r *running) configure(limit, more string) {
	r.t.Helper()
	r.write("dispatcher.yaml", fmt.Sprintf(`redis: %s
gateways:
  %s:
    request: {url: "%s/", headers: {Authorization: "Bearer ${file:gateway.key}"}}
    leak: {limits: [200/s]}
    admission: %s
  %s:
    request: {url: "%s/"}
    leak: {limits: [%s], jitter: 10ms}
    admission: {limits: [100000/s]}
%s`, testkit.Redis(r.t), r.keys, r.urls[0], r.admission, r.strict, r.urls[1], limit, more))
}

// put accepts n jobs, whose numbers begin at first.
func (r *running) put(gateway string, first, n int) {
	r.t.Helper()
	var err error
	r.cfg, err = config.Load(r.file, config.Options{Secrets: true})
	r.must(err)
	var jobs []job.Job
	for i := range n {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("j%04d", first+i), Gateway: gateway, Payload: []byte(`{}`), Cost: 1})
	}
	db, err := dispatch.Open(r.t.Context(), r.cfg, time.Minute)
	r.must(err)
	defer db.Close()
	_, err = dispatch.Door(db.Client, r.cfg, time.Second).Admit(r.t.Context(), gateway, jobs, admission.Park)
	r.must(err)
}

// done returns how many jobs of a gateway are done.
func (r *running) done(gateway string) int64 {
	g, _ := r.cfg.Gateway(gateway)
	s, err := dispatch.Books(r.c, g).Look(r.t.Context())
	r.must(err)
	return s.Done
}

func (r *running) run() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	cmd := newCommand(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: r.log, ErrTerminal: r.terminal})
	cmd.SetArgs(slices.Concat([]string{"run", "-c", r.file, "--listen", "127.0.0.1:0"}, r.only, r.flags))
	cmd.SetErr(r.log)
	go func() { over <- cmd.ExecuteContext(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			r.t.Errorf("run ended with %v", err)
		}
	})
	r.t.Cleanup(r.stop)
	r.says("msg=serving", max(1, 2-len(r.only)))
}

// says waits until the log has a text so many times.
func (r *running) says(what string, times int) {
	r.t.Helper()
	testkit.Eventually(r.t, 30*time.Second, "the log: "+what, func() bool { return strings.Count(r.log.String(), what) >= times })
}

// reload makes all runs of this process read their files again.
func (r *running) reload() {
	r.t.Helper()
	r.must(syscall.Kill(os.Getpid(), syscall.SIGHUP))
}

func (r *running) url() string {
	return "http://" + regexp.MustCompile(`listen=(\S+)`).FindStringSubmatch(r.log.String())[1]
}

// post posts n jobs one by one to the locked gateway, and returns how many were accepted.
func (r *running) post(n int) (taken int) {
	r.t.Helper()
	for i := range n {
		resp, err := http.Post(r.url()+"/v1/gateways/"+r.keys+"/jobs", "application/json", strings.NewReader(fmt.Sprintf(`{"id":"posted%d"}`, i)))
		r.must(err)
		resp.Body.Close()
		if policy := resp.Header.Get("RateLimit-Policy"); !strings.Contains(policy, "q=3;") {
			r.t.Errorf("a job posted is told of the policy %s", policy)
		}
		switch resp.StatusCode {
		case http.StatusAccepted:
			taken++
		case http.StatusTooManyRequests:
		default:
			r.t.Errorf("a job posted: %s", resp.Status)
		}
	}
	return taken
}

// metric returns the line of /metrics with this name.
func (r *running) metric(name string) string {
	r.t.Helper()
	resp, err := http.Get(r.url() + "/metrics")
	r.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	r.must(err)
	return regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` .*$`).FindString(string(text))
}

// Under load, SIGHUP rotates a secret, lowers a limit, and refuses a file with an error. Run does not stop, and loses no job.
func TestSIGHUPTakesTheFileOver(t *testing.T) {
	t.Parallel()
	r := newRunning(t)
	r.write("gateway.key", oldKey+"\n")
	r.configure("50/s", "")
	const paced = 150
	r.put(r.keys, 0, keyed/2)
	r.put(r.strict, 0, paced)
	r.run()

	testkit.Eventually(t, 30*time.Second, "calls with the old key", func() bool { return r.lock.calls(oldKey) > 60 })
	r.lock.learn(newKey)
	r.write("gateway.key", newKey+"\n")
	r.reload()
	r.says("configuration reloaded", 1)
	r.put(r.keys, keyed/2, keyed/2)
	testkit.Eventually(t, 30*time.Second, "a call with the new key", func() bool { return r.lock.calls(newKey) > 0 })

	testkit.Eventually(t, 30*time.Second, "calls at the old limit", func() bool { return r.judge.Stats().Calls > 60 })
	r.configure("20/s", "")
	r.reload()
	r.says("configuration reloaded", 2)
	from := time.Now()
	r.configure("20/sec", "")
	r.reload()
	r.says("the old one stays in force", 1)
	for name, want := range map[string]string{
		`spillway_config_reloads_total{result="refused"}`: "1", `spillway_config_reloads_total{result="done"}`: "2",
		`spillway_config_last_reload_successful`: "0", fmt.Sprintf(`spillway_limit_rate{gateway="%s",limit="20/s"}`, r.strict): "20",
	} {
		testkit.EventuallyEvery(t, 100*time.Millisecond, time.Minute, name+" "+want, func() bool { return r.metric(name) == name+" "+want })
	}
	r.configure("20/s", "listen: 127.0.0.1:9999\n")
	r.reload()
	r.says(`kept=listen`, 1)

	r.admission = "{limits: [1/h], burst: 3}"
	r.configure("20/s", "")
	r.reload()
	r.says("configuration reloaded", 4)
	posted := r.post(6)
	if posted > 3 {
		t.Errorf("%d of 6 jobs were taken in, admission has room for 3 at most", posted)
	}

	testkit.EventuallyEvery(t, 50*time.Millisecond, 5*time.Minute, "every job", func() bool { return r.done(r.keys) == int64(keyed+posted) && r.done(r.strict) == paced })
	r.stop()
	r.check(from, keyed+posted)
}

// check compares the calls that the gateways got with what they allow.
func (r *running) check(from time.Time, keyed int) {
	r.t.Helper()
	if old, now := r.lock.calls(oldKey), r.lock.calls(newKey); old+now != keyed || r.lock.closed > 0 {
		r.t.Errorf("%d calls with the old key and %d with the new one, %d not let in; want %d, and none", old, now, r.lock.closed, keyed)
	}
	if last := r.lock.shown[len(r.lock.shown)-50:]; slices.Contains(last, oldKey) {
		r.t.Error("one of the last 50 calls has the old key")
	}
	if most := r.fullest(time.Time{}); most > 50 {
		r.t.Errorf("%d calls in a second, the limit was 50", most)
	}
	if most := r.fullest(from); most > 20 {
		r.t.Errorf("%d calls in a second after the file had said 20/s", most)
	}
	for _, secret := range []string{oldKey, newKey} {
		if strings.Contains(r.log.String(), secret) {
			r.t.Errorf("the log shows %s", secret)
		}
	}
}

// fullest returns the most calls that the strict provider got in any second that began at from or later.
func (r *running) fullest(from time.Time) int {
	var at []int64
	for _, c := range r.judge.Calls() {
		if from.IsZero() || c.At >= from.UnixMicro() {
			at = append(at, c.At)
		}
	}
	slices.Sort(at)
	most, first := 0, 0
	for i := range at {
		for at[i]-at[first] >= time.Second.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// A key of the file that has only moved to another line is no difference.
func TestAMovedLineIsNoDifference(t *testing.T) {
	t.Parallel()
	now := config.Config{Redis: "redis://h:1/0", RedisAt: config.Position{File: "x.yaml", Line: 7, Column: 8}}
	if got := differences(config.Config{Redis: "redis://h:1/0"}, now); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}
