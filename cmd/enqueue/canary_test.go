package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// canaryCounts returns the report in JSON, with the state of the first jobs.
func canaryCounts(counts, canary string) string {
	head, times, _ := strings.Cut(counts, `,"seconds"`)
	return head + `,"seconds"` + strings.TrimSuffix(times, "}\n") + `,"canary":[` + canary + "]}\n"
}

// answered ends a call of a job, as a dispatcher does: it is done, or refused.
func (b *bench) answered(id string, yes bool) {
	b.t.Helper()
	cfg, err := config.Load(b.dir+"/dispatcher.yaml", config.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	g, _ := cfg.Gateway(b.g)
	c := testkit.Client(b.t)
	books, ctx := dispatch.Books(c, g), b.t.Context()
	a, opening, err := books.Open(ctx, id, 1, "o", time.Minute)
	if err != nil || opening != job.OpenGo {
		b.t.Fatal(opening, err)
	}
	e := job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.Now()}
	if yes {
		err = books.Done(ctx, a, e)
	} else {
		e.Status, e.Verdict, e.Error = 400, job.VerdictRefused, `HTTP 400: {"card":"4242"}`
		err = deadletter.New(c, b.g).Park(ctx, a, e, job.Refused)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// The command ends at once and says how many jobs wait for the first ones. Run again, it says how these stand.
func TestACanaryLetsTheRestWait(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 1200))
	enqueue := func(o ...string) result {
		return b.run(append([]string{"-g", b.g, "-f", "a.ndjson", "--batch", "2026-11", "--canary", "2"}, o...)...)
	}
	got := enqueue()
	if want := "G: 2 go first, 1,198 wait until they are done: dispatcher batch 2026-11\n"; got.code != 0 || got.err != want {
		t.Errorf("exit code %d, standard error %q, want %q", got.code, got.err, want)
	}
	if ids := b.queued(b.g); !slices.Equal(ids, []string{"a-0~1", "a-1~1"}) {
		t.Errorf("in the queue are %v", ids)
	}
	standing := func(done int, state, waiting, why string) string {
		return canaryCounts(counts(1200, 0, 0, 1200, 0, 0), fmt.Sprintf(`{"gateway":%q,"first":2,"done":%d,"state":%q,"waiting":%s%s}`, b.g, done, state, waiting, why))
	}
	b.want(enqueue("-o", "json", "-q"), result{0, standing(0, "waiting", "1198", ""), ""})
	b.answered("a-0", true)
	b.answered("a-1", false)
	const why = "1 of its first 2 jobs is parked as refused: HTTP 400"
	got = enqueue("-o", "json", "-q")
	b.want(got, result{3, standing(1, "stopped", "1198", `,"why":"`+why+`"`), got.err})
	for _, want := range []string{`batch "2026-11" has stopped itself at G: ` + why + "; 1,198 jobs wait", "dispatcher dlq list --batch 2026-11", "enqueue --replace",
		"dispatcher batch resume 2026-11 --why TEXT"} {
		if !strings.Contains(got.err, want) {
			t.Errorf("standard error lacks %q:\n%s", want, got.err)
		}
	}
	if strings.Contains(got.err+got.out, "4242") {
		t.Error("what the gateway said is shown")
	}
}

func TestACanaryThatIsOver(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 3))
	args := []string{"-g", b.g, "-f", "a.ndjson", "--batch", "b", "--canary", "1", "-o", "json"}
	b.run(args...)
	b.answered("a-0", true)
	cfg, err := config.Load(b.dir+"/dispatcher.yaml", config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := cfg.Gateway(b.g)
	if err := dispatch.Books(testkit.Client(t), g).Shelve(t.Context(), nil, func(string, string, int64) {}); err != nil {
		t.Fatal(err)
	}
	b.want(b.run(args...), result{0, canaryCounts(counts(3, 0, 0, 3, 0, 0), fmt.Sprintf(`{"gateway":%q,"first":1,"done":1,"state":"over","waiting":0}`, b.g)), ""})
}

// Each gateway in the file has its own first jobs.
func TestACanaryAtEachGateway(t *testing.T) {
	b := setup(t, place{})
	var s strings.Builder
	for i := range 6 {
		fmt.Fprintf(&s, "{\"id\":\"%d\",\"gateway\":%q}\n", i, []string{b.g, b.g2}[i%2])
	}
	b.write("a.ndjson", s.String())
	got := b.run("-f", "a.ndjson", "--batch", "b", "--canary", "2", "-o", "json", "-q")
	if got.code != 0 || !strings.Contains(got.out, `"enqueued":4,"parked":2`) || strings.Count(got.out, `"state":"waiting","waiting":1`) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestACanaryIsRefusedWhereNothingCouldWait(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", lines("a", 3))
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--canary", "2"}, "there is no --batch"},
		{[]string{"--canary", "0", "--batch", "b"}, "--canary 0 is not a number of jobs"},
		{[]string{"--canary", "2", "--replace"}, "--canary is for new jobs"},
	} {
		if got := b.run(append([]string{"-g", b.g, "-f", "a.ndjson"}, tc.args...)...); got.code != 2 || !strings.Contains(got.err, tc.says) {
			t.Errorf("%v: %+v", tc.args, got)
		}
	}
	b.run("-g", b.g, "-f", "a.ndjson", "--batch", "b")
	b.write("more.ndjson", lines("more", 3))
	got := b.run("-g", b.g, "-f", "more.ndjson", "--batch", "b", "--canary", "2")
	if got.code != 1 || !strings.Contains(got.err, `batch "b" has jobs at G already, and none of them was to go first`) || len(b.queued(b.g)) != 3 {
		t.Errorf("a batch that is under way: %+v", got)
	}
	if got := b.run("-g", b.g, "-f", "a.ndjson", "--batch", "dry", "--canary", "2", "--dry-run"); got.code != 0 {
		t.Errorf("a dry run: %+v", got)
	}
}
