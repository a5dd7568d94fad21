package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// ward is a gateway of its own on the shared Redis, with its books.
type ward struct {
	*patient
	c redis.UniversalClient
	k redisdb.Keys
	g config.Gateway
}

func newWard(t *testing.T, gateway ...string) *ward {
	t.Helper()
	name := testkit.Gateway(t)
	p := newNamed(t, testkit.Redis(t), name, append([]string{`request: {url: "http://127.0.0.1:1/"}`, limits}, gateway...)...)
	return &ward{p, testkit.Client(t), redisdb.NewKeys(name), p.p.Gateways[0]}
}

func (w *ward) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) accept(ids ...string) {
	w.t.Helper()
	var chunk []job.Newcomer
	for _, id := range ids {
		payload := []byte(`{"secret":"hunter2"}`)
		chunk = append(chunk, job.Newcomer{Job: job.Job{ID: id, Payload: payload, Cost: 1}, Digest: producer.Digest(payload)})
	}
	_, _, err := testkit.Accept(w.t.Context(), dispatch.Books(w.c, w.g), job.Ticket{Sequence: w.g.Name, Number: 1}, chunk, "park")
	w.must(err)
}

// pacer acts on the gateway as a dispatcher or an operator does.
func (w *ward) pacer(act func(p *bucket.Pacer) error) {
	w.t.Helper()
	p, err := dispatch.Pacer(w.c, w.g, bucket.NewMetrics(nil))
	w.must(err)
	defer p.Close(w.t.Context())
	w.must(act(p))
}

func (w *ward) expect(name string, level Level, message, hint string) {
	w.t.Helper()
	expect(w.t, w.examine(), name, level, message, hint)
}

func TestPaused(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.pacer(func(p *bucket.Pacer) error { return p.Pause(t.Context(), "maintenance") })
	w.expect("paused", Warn, "paused, maintenance", "dispatcher resume -g "+w.g.Name)
}

func TestALostVersionOfTheLimits(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.must(w.c.HSet(t.Context(), w.k.Pace(), "v", 7, "c", time.Now().Add(-3*time.Second).UnixMicro()).Err())
	w.expect("limits_lost", Fail, "Redis has lost the version of the limits", "limit reset -g "+w.g.Name)
}

func TestHeldAndOpenCircuit(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.pacer(func(p *bucket.Pacer) error {
		_, err := p.Failed(t.Context(), job.Circuit{}, job.Failure{Kind: job.Wait, For: time.Hour, Written: true, Why: "HTTP 429"})
		return err
	})
	w.expect("held", Warn, "HTTP 429", "nothing, unless it comes back")
	w.must(w.c.HSet(t.Context(), w.k.Hold(), "circuit", "1", "reason", "circuit open: HTTP 503 from 5 calls in a row").Err())
	w.expect("circuit", Warn, "circuit open: HTTP 503", "closes by itself")
}

// A gateway that refuses access is not in order, also while it is about to be tried again.
func TestDeniedAccess(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.pacer(func(p *bucket.Pacer) error {
		_, err := p.Failed(t.Context(), w.g.Circuit, job.Failure{Kind: job.Deny, Written: true, Why: "HTTP 401"})
		return err
	})
	w.must(w.c.HSet(t.Context(), w.k.Hold(), "until", 1).Err())
	w.expect("held", Warn, "HTTP 401: check the credentials", "SIGHUP")
}

func TestParkedJobsThatWaitForAPerson(t *testing.T) {
	t.Parallel()
	w := newWard(t, "replay: manual")
	w.must(w.c.ZAdd(t.Context(), w.k.Parked("rejected"), redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2, Member: "b"}).Err())
	w.must(w.c.ZAdd(t.Context(), w.k.Parked("unknown_outcome"), redis.Z{Score: 3, Member: "c"}).Err())
	w.expect("rejected", Warn, "2 jobs found no room", "dlq replay")
	w.expect("unknown_outcome", Warn, "1 jobs may or may not", "dlq resolve")
	w.p.Gateways[0].Replay = config.ReplayAuto
	if r := w.examine(); strings.Contains(list(r), "found no room") {
		t.Errorf("they go in by themselves:\n%s", list(r))
	}
}

func TestLimitsSetLive(t *testing.T) {
	t.Parallel()
	w := newWard(t, "admission: {limits: [100/s]}")
	to, err := job.ParseLimit("10/s")
	w.must(err)
	w.must(dispatch.SetLimits(t.Context(), w.c, w.g, []job.Limit{to}))
	w.expect("limits", Warn, "10/s were set live and win over the file's 100/s", "limit reset")
	w.expect("admission", Warn, "100/s, but only 10/s leave", "lower")
}

func TestNobodyServes(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.accept("a")
	w.expect("dispatcher", Warn, "no dispatcher has ever served it", "dispatcher run")
	now := time.Now()
	w.must(w.c.HSet(t.Context(), w.k.Alive(), "at", now.Add(-time.Minute).UnixMicro()).Err())
	w.expect("dispatcher", Warn, "serves it since "+now.Add(-time.Minute).UTC().Format("2006-01-02T15:04"), "dispatcher run")
	w.must(w.c.HSet(t.Context(), w.k.Alive(), "at", now.Add(time.Hour).UnixMicro()).Err())
	w.expect("standing", OK, "", "")
}

// While Redis takes no writes, a dispatcher that runs gives no sign of life.
func TestNobodyIsMissedInAFullRedis(t *testing.T) {
	t.Parallel()
	name, s := testkit.Gateway(t), testkit.Server(t)
	p := newNamed(t, s.URL(), name, `request: {url: "http://127.0.0.1:1/"}`, limits)
	w := &ward{p, s.Client(), redisdb.NewKeys(name), p.p.Gateways[0]}
	w.accept("a")
	w.must(w.c.HSet(t.Context(), w.k.Alive(), "at", time.Now().Add(-time.Minute).UnixMicro()).Err())
	w.must(w.c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	w.expect("dispatcher", Warn, "jobs wait, and Redis takes no writes: it is full (maxmemory)", "said of Redis")
}

func TestRestoredSnapshot(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.accept("a")
	w.must(w.c.HSet(t.Context(), w.k.Alive(), "line", "x", "at", 1_000_000, "df", 1_000_000, "ds", 900_000_000, "dl", "x").Err())
	w.expect("snapshot", Fail, "restored to 1970-01-01", "--after-restore")
	if r := w.examine(); has(r, "dispatcher", Warn, "", "") { // they run, and give no sign of life
		t.Errorf("doctor says that no dispatcher runs:\n%s", list(r))
	}
}

// history returns the history of n calls with this status. The last call was just now.
func history(status, n int, apart time.Duration) string {
	var b strings.Builder
	for i := n - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "%d %d %d hold\n", time.Now().Add(-time.Duration(i)*apart).UnixMicro(), 900_000, status)
	}
	return b.String()
}

func TestJobThatOnlyMeets429(t *testing.T) {
	t.Parallel()
	w := newWard(t, "")
	w.accept("stuck", "young", "mixed", "$(lock)")
	for id, h := range map[string]string{
		"stuck": history(429, 5, 20*time.Minute), "young": history(429, 5, time.Minute), "mixed": history(429, 4, 30*time.Minute) + history(503, 1, 0),
	} {
		w.must(w.c.HSet(t.Context(), w.k.Job(id), "h", h).Err())
	}
	// The history of the last job has lost its oldest calls, but the time of its first call is known.
	w.must(w.c.HSet(t.Context(), w.k.Job("$(lock)"), "h", history(429, 40, time.Minute), "f", time.Now().Add(-2*time.Hour).UnixMicro()).Err())
	r := w.examine()
	expect(t, r, "too_many", Warn, "2 jobs have met 429 on every call for an hour: $(lock), stuck", "dispatcher job '$(lock)'\"")
	if strings.Contains(list(r), "hunter2") {
		t.Errorf("a payload is shown:\n%s", list(r))
	}
}

func TestMeasuredLatencyOfCalls(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.accept("a")
	w.must(w.c.HSet(t.Context(), w.k.Job("a"), "h", history(503, 3, time.Second)).Err())
	w.p.Gateways[0].Leak.MaxInFlight = 60
	w.expect("in_flight", Warn, "took (median) 900ms", "to 90")
}

func TestNearlyAllThatMayBeParkedIsToldOf(t *testing.T) {
	t.Parallel()
	w := newWard(t, "parked: {most: 5}")
	for n, id := range []string{"a", "b", "c", "d"} {
		w.must(w.c.ZAdd(t.Context(), w.k.Parked([]string{"rejected", "refused"}[n%2]), redis.Z{Score: float64(n + 1), Member: id}).Err())
	}
	if r := w.examine(); strings.Contains(list(r), "are parked of") {
		t.Errorf("four of five:\n%s", list(r))
	}
	w.must(w.c.ZAdd(t.Context(), w.k.Parked("refused"), redis.Z{Score: 5, Member: "e"}).Err())
	w.expect("parked_most", Warn, "5 jobs are parked of 5 that may be", "dlq stats")
	if v, err := dispatch.Look(t.Context(), w.c, w.g); err != nil || v.ParkedNear != (job.ParkedBound{Jobs: 5}) {
		t.Errorf("status is told %+v, %v", v.ParkedNear, err)
	}
	w.p.Gateways[0].Parked.Bytes = 1 << 20
	w.must(w.c.HSet(t.Context(), w.k.Counters(), "b:parked:refused", 900<<10).Err())
	w.expect("parked_bytes", Warn, "come to 900KiB of 1MiB that there may be", "raise parked.bytes")
}
