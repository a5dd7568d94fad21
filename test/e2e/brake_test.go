package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/provider"
)

// batchText returns what "dispatcher batch" shows.
func (w *world) batchText(name string) string {
	w.t.Helper()
	r := w.do("dispatcher", "batch", name)
	if r.code != 0 {
		w.t.Fatalf("batch %s: exit code %d\n%s%s", name, r.code, r.out, r.err)
	}
	return r.out + r.err
}

func (w *world) has(where, text string, wants ...string) {
	w.t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			w.t.Errorf("%s lacks %q:\n%s", where, want, text)
		}
	}
}

// A batch stops itself if the gateway refuses all of its jobs, also with two processes. Another batch continues.
func TestAWrongFileStopsItself(t *testing.T) {
	t.Parallel()
	const n = 2000
	w := newWorld(t, provider.Config{Fates: []provider.Fate{{ID: "inv-*", Status: 400}}},
		"    leak: {limits: [100/s], max_in_flight: 30}\n    admission: {burst: 5000}\n") // of a provider that gets no processor, no more calls wait for their answers
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("wrong.ndjson", n), "--batch", "wrong")
	var good strings.Builder
	for i := range 20 {
		fmt.Fprintf(&good, `{"id":"good-%d","payload":{"amount":100,"currency":"EUR"}}`+"\n", i)
	}
	w.ok("enqueue", "-g", "stripe", "-f", w.file("good.ndjson", good.String()), "--batch", "good")
	w.dispatcher()
	w.dispatcher()
	s := w.settled(time.Minute)
	calls := len(w.provider.Calls())
	wrong := calls - 20
	t.Logf("%d calls of a wrong file", wrong)
	if s.Done != 20 || s.Parked["refused"] != wrong || s.Parked["paused"] != n-wrong {
		t.Errorf("%+v", s)
	}
	if wrong < 45 || wrong > 100 {
		t.Errorf("%d calls of a file that is wrong as a whole, want at most 100", wrong)
	}
	w.has("batch", w.batchText("wrong"), "by spillway: 4", "calls were refused: HTTP 400", "dispatcher batch resume wrong --why TEXT", "dispatcher dlq list --batch wrong", "enqueue --replace")
	w.has("status", w.do("dispatcher", "status").err, "stripe: batch wrong has stopped itself: ")
	w.has("job", w.ok("dispatcher", "job", "inv-01999"), "parked as paused", "calls were refused: HTTP 400", "enqueue --replace")
	if trail := w.ok("dispatcher", "dlq", "history", "-o", "json"); strings.Count(trail, `"who":"spillway"`) != 1 || strings.Count(trail, "\n") != 1 {
		t.Errorf("the trail has\n%s", trail)
	}
	w.ok("dispatcher", "audit")
	w.strict()
}

// A batch with one decline in ten calls is ordinary: it is not stopped.
func TestAFileWithDeclinesGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{DeclineEvery: 10}, fast)
	w.dispatcher()
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("a.ndjson", 400), "--batch", "a")
	if s := w.settled(time.Minute); s.Done != 360 || s.Parked["refused"] != 40 {
		t.Errorf("%+v", s)
	}
}

// The first jobs are called as soon as a dispatcher runs. The rest is called in its order when they are done.
func TestTheRestOfAFileWaitsForItsFirstJobs(t *testing.T) {
	t.Parallel()
	const n, first = 400, 20
	w := newWorld(t, provider.Config{}, "    leak: {limits: [200/s]}\n    admission: {burst: 5000}\n")
	file := w.jobs("a.ndjson", n)
	w.has("enqueue", w.do("enqueue", "-g", "stripe", "-f", file, "--batch", "a", "--canary", "20").err, "stripe: 20 go first, 380 wait until they are done: dispatcher batch a")
	if s := w.status(); s.Queued != first || s.Parked["paused"] != n-first {
		t.Errorf("%+v", s)
	}
	w.has("batch", w.batchText("a"), "until its first 20 jobs are done: 0 are")
	w.dispatcher()
	w.dispatcher()
	w.emptied(t, time.Minute, n)
	calls := w.provider.Calls()
	slices.SortFunc(calls, func(a, b provider.CallLine) int { return int(a.At - b.At) })
	early := 0 // jobs of the file's first half among the calls of the first half
	for i, c := range calls {
		var number int
		if _, err := fmt.Sscanf(c.Key, "inv-%d", &number); err != nil {
			t.Fatal(err)
		}
		if (i < first) != (number <= first) {
			t.Errorf("call %d is of %s", i+1, c.Key)
		}
		if i < n/2 && number <= n/2 {
			early++
		}
	}
	if early < n*3/8 { // a busy machine gives some back, which are called later
		t.Errorf("%d of the first %d calls are of the first %d jobs", early, n/2, n/2)
	}
	w.has("enqueue", w.ok("enqueue", "-g", "stripe", "-f", file, "--batch", "a", "--canary", "20", "-o", "json"), `"state":"over"`, `"duplicate":400`)
	w.ok("dispatcher", "audit")
	w.strict()
}

// If one of the first jobs is refused, the rest waits until a person resumes the batch.
func TestANoAmongTheFirstJobsStopsTheRest(t *testing.T) {
	t.Parallel()
	const n = 200
	w := newWorld(t, provider.Config{Fates: []provider.Fate{{ID: "inv-00007", Status: 402}}}, fast)
	w.dispatcher()
	file := w.jobs("a.ndjson", n)
	args := []string{"-g", "stripe", "-f", file, "--batch", "a", "--canary", "20", "-q"}
	w.do("enqueue", args...)
	s := w.settled(time.Minute)
	if calls := len(w.provider.Calls()); calls > 20 || s.Parked["refused"] != 1 || s.Done != calls-1 || s.Parked["paused"] != n-calls {
		t.Errorf("%d calls, %+v", calls, s)
	}
	again := w.do("enqueue", args...)
	w.has("enqueue", again.err, `batch "a" has stopped itself at stripe: 1 of its first 20 jobs is parked as refused: HTTP 402`)
	if again.code != 3 {
		t.Errorf("exit code %d", again.code)
	}
	w.ok("dispatcher", "batch", "resume", "a", "--why", "one card was declined", "--yes")
	w.emptied(t, time.Minute, n-1)
	w.ok("dispatcher", "audit")
	w.strict()
}
