package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
	"spillway/internal/verify"
)

// seen is a gateway of one kind: its provider, its configuration, its jobs, and the limits that are verified.
type seen struct {
	kind     string
	double   provider.Config
	path     string // behind the provider's address
	settings string // of the request, and what follows it
	jobs     int
	line     func(i int) string // more fields of a job's line
	limits   []string
	p        *provider.Provider
}

// The jitter allowance is half a second, so that a busy machine is no violation.
const (
	paced  = "    leak: {limits: [40/s, 70/2s], jitter: 500ms}\n"
	steady = "    leak: {limits: [100/s], jitter: 450ms}\n"
)

var (
	bothLimits = []string{"40/s", "70/2s"}
	oneLimit   = []string{"100/s"}
)

// kinds returns gateways of different kinds, for one run each.
func kinds() []*seen {
	by := func(text string) []provider.Limit {
		l, err := provider.ParseLimitBy(text)
		if err != nil {
			panic(err)
		}
		return []provider.Limit{l}
	}
	return []*seen{
		{kind: "plain", settings: paced, jobs: 90, limits: bothLimits},
		{kind: "declines", double: provider.Config{DeclineEvery: 5}, settings: steady, jobs: 40, limits: oneLimit},
		{kind: "retries", double: provider.Config{FailEvery: 4}, settings: steady + "    retry: {attempts: 6, first: 100ms, max: 200ms}\n", jobs: 40, limits: oneLimit},
		{kind: "toomany", double: provider.Config{Incident: provider.Incident{Status: 429, RetryAfter: time.Second, Share: 0.05}, Seed: 7}, settings: steady, jobs: 40, limits: oneLimit},
		{kind: "lanes", double: provider.Config{Limits: by("header:X-Lane=1000/s")}, settings: steady + "    lanes: {key: lane, limits: [30/s], header: {X-Lane: \"{lane}\"}}\n", jobs: 60,
			line: func(i int) string { return fmt.Sprintf(`,"lane":"lane-%d"`, i%3) }, limits: []string{"100/s", "header:X-Lane=30/s"}},
		{kind: "routes", double: provider.Config{Limits: by("path=1000/s")}, settings: steady + "    routes: {refund: {request: {url: \"{url}/refunds\"}, limits: [20/s]}}\n", jobs: 40,
			line: func(i int) string { return []string{"", `,"route":"refund"`}[i%2] }, limits: []string{"100/s", "path:/refunds=20/s"}},
		{kind: "keyless", double: provider.Config{NoKeys: true, Fates: []provider.Fate{{ID: "keyless-01*", Charge: true}}}, path: "/{id}",
			settings: "      idempotency_header: \"\"\n      timeout: 3s\n" + steady, jobs: 40, limits: oneLimit},
		{kind: "asked", double: provider.Config{NoKeys: true, Fates: []provider.Fate{{ID: "asked-02*", Charge: true}}}, path: "/{id}",
			settings: "      idempotency_header: \"\"\n      timeout: 3s\n" + steady +
				"    lookup: {url: \"/lookups/{id}\", schedule: [200ms, 400ms, 1s, 2s, 5s, 10s], matches: {job: \"{id}\"}, answers: [{body: {status: succeeded}, then: done, reference: id}, {status: 404, then: not_done, after: 4s}]}\n",
			jobs: 40, limits: oneLimit},
		{kind: "noroom", settings: steady + "    admission: {limits: [50/s], burst: 10}\n", jobs: 60, limits: oneLimit},
		{kind: "cancelled", settings: "    leak: {limits: [10/s], jitter: 500ms}\n", jobs: 40, limits: []string{"10/s"}},
	}
}

func (s *seen) id(i int) string { return fmt.Sprintf("%s-%03d", s.kind, i) }

// file returns the billing file.
func (s *seen) file() string {
	var b strings.Builder
	for i := range s.jobs {
		more := ""
		if s.line != nil {
			more = s.line(i)
		}
		fmt.Fprintf(&b, `{"id":%q,"payload":{"amount":%d,"currency":"EUR"}%s}`+"\n", s.id(i), 100+i, more)
	}
	return b.String()
}

// watched starts a world with these gateways.
func watched(t *testing.T, all []*seen) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), bin: bin, redis: testkit.Server(t, "--appendonly", "yes")}
	w.state = filepath.Join(w.dir, "state")
	config := "redis: " + w.redis.URL() + "\ngateways:\n"
	for _, s := range all {
		s.double.Amount, s.double.Currency = "amount", "currency"
		s.p = provider.New(s.double)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.serve(t, ln)
		url := "http://" + ln.Addr().String()
		config += fmt.Sprintf("  %s:\n    amount: {field: amount, currency: currency}\n    request:\n      url: \"%s/pay%s\"\n%s", s.kind, url, s.path, strings.ReplaceAll(s.settings, "{url}", url))
	}
	w.config = w.file("dispatcher.yaml", config)
	for _, s := range all {
		w.ok("enqueue", "-g", s.kind, "-f", w.file(s.kind+".ndjson", s.file()), "--batch", "b-"+s.kind, "-q")
	}
	return w
}

func (s *seen) serve(t *testing.T, ln net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.p.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-served })
}

// quiet waits until no job of any gateway waits, retries or is under way.
func (w *world) quiet(t *testing.T) {
	t.Helper()
	w.shown(t, 2*time.Minute, "all gateways to be through", func() bool {
		all := decode[struct {
			Gateways []struct {
				Queued, Scheduled, Retrying, Pending int
				InFlight                             int `json:"in_flight"`
				Parked                               map[string]int
			}
		}](t, w.ok("dispatcher", "status", "-o", "json"))
		sum := 0
		for _, g := range all.Gateways {
			sum += g.Queued + g.Scheduled + g.Retrying + g.Pending + g.InFlight + g.Parked["rejected"]
		}
		return sum == 0
	})
}

// history is what an auditor gets about one gateway.
type history struct {
	kind   string
	calls  []provider.CallLine
	books  []map[string]any
	trail  []map[string]any
	jobs   string
	limits []string
	slack  time.Duration
}

// histories collects the history of each gateway. The books are in the order of the file.
func (w *world) histories(t *testing.T, all []*seen) map[string]*history {
	t.Helper()
	of, trail := map[string]*history{}, documents(t, w.ok("dispatcher", "trail", "export"))
	for _, s := range all {
		h := &history{kind: s.kind, calls: s.p.Calls(), jobs: s.file(), limits: s.limits, slack: 30 * time.Second}
		h.books = documents(t, w.ok("dispatcher", "batch", "b-"+s.kind, "--export", "-o", "json"))
		h.trail = slices.DeleteFunc(slices.Clone(trail), func(l map[string]any) bool { return l["gateway"] != s.kind })
		if len(h.calls) == 0 || len(h.books) != s.jobs {
			t.Fatalf("%s: %d calls, %d jobs in the books, want %d", s.kind, len(h.calls), len(h.books), s.jobs)
		}
		of[s.kind] = h
	}
	return of
}

func documents(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		var one map[string]any
		if err := d.Decode(&one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, one)
	}
	return all
}

func ndjson[T any](t *testing.T, all []T) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	for _, one := range all {
		if err := e.Encode(one); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// copied returns a history that can be changed.
func (h *history) copied() *history {
	c := *h
	c.calls, c.limits = slices.Clone(h.calls), slices.Clone(h.limits)
	c.books, c.trail = clones(h.books), clones(h.trail)
	return &c
}

func clones(all []map[string]any) []map[string]any {
	out := make([]map[string]any, len(all))
	for i, m := range all {
		out[i] = maps.Clone(m)
	}
	return out
}

// verified returns the verdict on a history.
func (h *history) verified(t *testing.T) *verify.Result {
	t.Helper()
	input := func(name, text string) verify.Input { return verify.Input{Name: name, Reader: strings.NewReader(text)} }
	trail, jobs := input("trail", ndjson(t, h.trail)), input("jobs", h.jobs)
	p := verify.Params{Logs: []verify.Input{input("log", ndjson(t, h.calls))}, Books: []verify.Input{input("books", ndjson(t, h.books))}, Trail: &trail, Jobs: &jobs,
		Gateways: []string{h.kind}, Ordered: true, Slack: h.slack, Most: 5, Dir: t.TempDir()}
	for _, text := range h.limits {
		l, err := verify.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Limits = append(p.Limits, l)
	}
	r, err := verify.Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// clean checks that nothing is found.
func (h *history) clean(t *testing.T) {
	t.Helper()
	if r := h.verified(t); !r.OK {
		t.Errorf("%s: %v", h.kind, r.Counts)
		for _, f := range r.Findings {
			t.Logf("%s %s: %s %v", f.Kind, f.ID, f.Text, f.Where)
		}
	}
}

// TestVerifyJudgesWhatWasRun runs ten kinds of gateways. Verify finds nothing in their files. Then it finds each violation that is planted into these files,
// and nothing else.
func TestVerifyJudgesWhatWasRun(t *testing.T) {
	t.Parallel()
	all := kinds()
	w := watched(t, all)
	w.dispatcher()
	w.dispatcher()
	last := all[len(all)-1]
	testkit.Eventually(t, time.Minute, "calls of the batch that is cancelled", func() bool { return last.p.Stats().Calls > 5 })
	w.ok("dispatcher", "batch", "cancel", "b-cancelled", "--why", "wrong file", "--yes")
	w.quiet(t)
	w.ok("dispatcher", "dlq", "resolve", "--done", "-g", "keyless", "--why", "seen at the provider", "--yes", "-q")
	refused := documents(t, w.ok("dispatcher", "dlq", "list", "-g", "declines", "-o", "json"))
	w.ok("dispatcher", "dlq", "discard", "-g", "declines", "--id", refused[0]["id"].(string), "--why", "customer has left", "--yes", "-q")
	w.ok("dispatcher", "dlq", "replay", "-g", "declines", "--id", refused[1]["id"].(string), "--yes", "-q")
	w.quiet(t)
	for _, r := range w.runs {
		r.stop()
	}
	histories := w.histories(t, all)
	for _, s := range all {
		t.Run("clean "+s.kind, func(t *testing.T) { histories[s.kind].clean(t) })
	}
	for _, v := range planted() {
		t.Run(v.name, func(t *testing.T) { v.find(t, histories[v.kind].copied()) })
	}
	w.asFiles(t, histories)
	calls := 0
	for _, h := range histories {
		calls += len(h.calls)
	}
	t.Logf("%d violations planted, one at a time, into the files of runs of %d kinds with %d calls", len(planted())-1, len(all), calls) // one row is the control
}

// asFiles makes the program judge all gateways at once.
func (w *world) asFiles(t *testing.T, all map[string]*history) {
	t.Helper()
	args := []string{"verify", "--books", w.file("books", w.ok("dispatcher", "export", "--format", "csv")), "--trail", w.file("trail", w.ok("dispatcher", "trail", "export"))}
	for kind, h := range all {
		args = append(args, "--provider-log", kind+"="+w.file(kind+".calls", ndjson(t, h.calls)))
		for _, l := range h.limits {
			args = append(args, "--limit", l+"@"+kind)
		}
	}
	if r := w.do("dispatcher", args...); r.code != 0 {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if err := os.Truncate(filepath.Join(w.dir, "plain.calls"), 0); err != nil {
		t.Fatal(err)
	}
	if r := w.do("dispatcher", append(args, "--most", "3")...); r.code != 1 || strings.Count(r.out, "saw no call of it") != 3 || !strings.Contains(r.out, "lost: and 87 more like it") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

// TestVerifyFindsNothingWhereDispatchersAreKilled kills one of two dispatchers twice, with calls under way.
func TestVerifyFindsNothingWhereDispatchersAreKilled(t *testing.T) {
	t.Parallel()
	s := &seen{kind: "killed", double: provider.Config{Service: 100 * time.Millisecond}, settings: "      timeout: 1s\n" + steady, jobs: 300, limits: oneLimit}
	w := watched(t, []*seen{s})
	w.dispatcher()
	for range 2 {
		victim := w.dispatcher()
		testkit.Eventually(t, time.Minute, "the dispatcher to be up", func() bool { return strings.Contains(victim.text(), "msg=serving") })
		before := s.p.Stats().Calls
		testkit.Eventually(t, time.Minute, "calls", func() bool { seen := s.p.Stats(); return seen.Calls >= before+15 || seen.Charged == s.jobs })
		victim.kill()
	}
	w.quiet(t)
	h := w.histories(t, []*seen{s})["killed"]
	h.slack = 5 * time.Minute // what a worker that died had pulled comes back in time
	h.clean(t)
	t.Logf("%d calls of %d jobs", len(h.calls), s.jobs)
}
