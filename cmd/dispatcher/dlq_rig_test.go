package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// rig is a configuration of two gateways with a real Redis. In the output of commands, it replaces the names of the gateways with
// one and two, and each time with TIME.
type rig struct {
	t        *testing.T
	ctx      context.Context
	c        redis.UniversalClient
	file     string
	url      string
	cfg      *config.Config
	one, two string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	url, c := testkit.Database(t)
	r := &rig{t: t, ctx: t.Context(), c: c, url: url, file: filepath.Join(t.TempDir(), "dispatcher.yaml"),
		one: testkit.Gateway(t), two: testkit.Gateway(t)}
	r.configure(url)
	return r
}

func (r *rig) configure(url string) {
	r.t.Helper()
	text := fmt.Sprintf(`redis: %s
gateways:
  %s:
    request: {url: "https://one.example/charge", key_lifetime: 24h}
    amount: {field: amount, currency: currency}
    leak: {limits: [100/s]}
    replay: manual
  %s:
    request: {url: "https://two.example/charge", idempotency_header: ""}
    leak: {limits: [100/s]}
`, url, r.one, r.two)
	r.must(os.WriteFile(r.file, []byte(text), 0o600))
	cfg, err := config.Load(r.file, config.Options{})
	r.must(err)
	r.cfg = cfg
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// ran is the output of a command, and its exit code.
type ran struct {
	out, err string
	code     int
}

var moment = regexp.MustCompile(`\d{4}-\d\d-\d\d(T[0-9:.]+Z| \d\d:\d\d(:\d\d)? [A-Z0-9+-]+)`)

var stamp = regexp.MustCompile(`\b(one|two)/\d{10,}`)

func (r *rig) tidy(text string) string {
	text = strings.NewReplacer(r.one, "one", r.two, "two", r.file, "FILE").Replace(text)
	return stamp.ReplaceAllString(moment.ReplaceAllString(text, "TIME"), "$1/STAMP")
}

// run runs dispatcher dlq without a terminal.
func (r *rig) run(args ...string) ran {
	return r.runWith(cli.Streams{In: strings.NewReader("")}, args...)
}

func (r *rig) runWith(s cli.Streams, args ...string) ran {
	r.t.Helper()
	var out, err bytes.Buffer
	s.Out, s.Err = &out, &err
	code := cli.Main(name, newCommand, append([]string{"dlq", "-c", r.file}, args...), s)
	return ran{r.tidy(out.String()), r.tidy(err.String()), code}
}

// expect compares the exit code and the whole output of a command.
func (r *rig) expect(got ran, code int, out, err string) {
	r.t.Helper()
	if got.code != code {
		r.t.Errorf("exit code %d, want %d", got.code, code)
	}
	if got.out != out {
		r.t.Errorf("standard output:\n%s\nwant:\n%s", got.out, out)
	}
	if got.err != err {
		r.t.Errorf("standard error:\n%s\nwant:\n%s", got.err, err)
	}
}

func (r *rig) gateway(name string) config.Gateway {
	r.t.Helper()
	g, ok := r.cfg.Gateway(name)
	if !ok {
		r.t.Fatalf("no gateway %q", name)
	}
	return g
}

// served writes signs of life of a dispatcher that count for the next hour.
func (r *rig) served() {
	r.t.Helper()
	now, err := r.c.Time(r.ctx).Result()
	r.must(err)
	for _, g := range []string{r.one, r.two} {
		r.must(r.c.HSet(r.ctx, redisdb.NewKeys(g).Alive(), "at", now.Add(time.Hour).UnixMicro()).Err())
	}
}

// reject parks jobs as rejected: each costs 2, and the bucket has room for 1.
func (r *rig) reject(gateway string, jobs ...job.Job) {
	r.t.Helper()
	g := r.gateway(gateway)
	g.Admission.Burst = 1
	for i := range jobs {
		jobs[i].Cost = 2
	}
	r.accept(g, job.ParkedNow, jobs...)
}

func (r *rig) accept(g config.Gateway, expect job.Admittance, jobs ...job.Job) {
	r.t.Helper()
	chunk := make([]job.Newcomer, len(jobs))
	for i, j := range jobs {
		chunk[i] = job.Newcomer{Job: j, Digest: producer.Digest(j.Payload)}
	}
	answers, _, err := testkit.Accept(r.ctx, dispatch.Books(r.c, g), job.Ticket{Sequence: rand.Text(), Number: 1}, chunk, "park")
	r.must(err)
	for i, a := range answers {
		if a != expect {
			r.t.Fatalf("job %s: %s, want %s", jobs[i].ID, a, expect)
		}
	}
}

// park accepts a job, calls its gateway, and parks it.
func (r *rig) park(gateway string, j job.Job, reason job.Reason, status int, text string) {
	r.t.Helper()
	g := r.gateway(gateway)
	g.Replay = config.ReplayManual // it passes those that are parked
	r.accept(g, job.Enqueued, j)
	r.call(gateway, j.ID, reason, status, text)
}

// again makes the call of a replayed job; it is refused again.
func (r *rig) again(gateway, id string) {
	r.t.Helper()
	r.call(gateway, id, job.Refused, 402, "HTTP 402")
}

// call makes the next call of a gateway's queue and parks the job. It must be the job with this id.
func (r *rig) call(gateway, want string, reason job.Reason, status int, text string) {
	r.t.Helper()
	g := r.gateway(gateway)
	id, generation, _ := job.ParseTaskID(testkit.Pop(r.t, r.c, redisdb.NewKeys(gateway).Lines()))
	a, opening, err := dispatch.Books(r.c, g).Open(r.ctx, id, generation, "w1", time.Minute)
	r.must(err)
	if id != want || opening != job.OpenGo {
		r.t.Fatalf("pulled %s, and opened: %s", id, opening)
	}
	e := job.Ending{Called: true, Spent: true, Status: status, Verdict: job.VerdictRefused, Error: text, At: time.UnixMicro(1),
		Unsure: reason == job.UnknownOutcome, Took: 250 * time.Millisecond}
	if e.Unsure {
		e.Verdict = job.VerdictUnknown
	}
	store := deadletter.New(r.c, gateway)
	store.Feed = g.Outcomes != nil
	r.must(store.Park(r.ctx, a, e, reason))
}

func (r *rig) record(gateway, id string) job.Record {
	r.t.Helper()
	rec, ok, err := dispatch.Books(r.c, r.gateway(gateway)).Find(r.ctx, id)
	if err != nil || !ok {
		r.t.Fatalf("record of %s: found %v, error %v", id, ok, err)
	}
	return rec
}

func (r *rig) trail(gateway string) string {
	r.t.Helper()
	lines, err := r.c.LRange(r.ctx, redisdb.NewKeys(gateway).Trail(), 0, -1).Result()
	r.must(err)
	who, err := cli.WhoAmI()
	r.must(err)
	return strings.ReplaceAll(proof.ReplaceAllString(r.tidy(strings.Join(lines, "\n")), ""), who, "WHO")
}

// proof is the field of the trail that says how a person was identified. TestTheTrailSaysHowItIsKnownWho checks it.
var proof = regexp.MustCompile(`,"via":"(redis|shared_token)"`)

func charge(id, amount, batch string) job.Job {
	return job.Job{ID: id, Payload: []byte(`{"amount":` + amount + `,"currency":"eur"}`), Batch: batch}
}

// stock parks a few jobs of every kind.
func (r *rig) stock() {
	r.t.Helper()
	r.park(r.one, charge("a", "1050", "b1"), job.Refused, 402, `HTTP 402: {"error":"card <declined>"}`)
	r.reject(r.one, charge("b", `"99"`, "b1"), charge("c", "9223372036854775807", ""))
	r.park(r.one, charge("d", "1", ""), job.UnknownOutcome, 0, "timed out")
	r.park(r.two, job.Job{ID: "e", Payload: []byte(`{"n":1}`)}, job.UnknownOutcome, 0, "timed out")
	r.must(deadletter.New(r.c, r.two).ParkUnreadable(r.ctx, "f", []byte("hello"), "foreign"))
}
