package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// fed gives gateway one an outcome feed. Gateway two has none.
func (r *rig) fed(outcomes string) {
	r.t.Helper()
	text, err := os.ReadFile(r.file)
	r.must(err)
	const replay = "    replay: manual\n"
	r.must(os.WriteFile(r.file, []byte(strings.Replace(string(text), replay, replay+"    outcomes: "+outcomes+"\n", 1)), 0o600))
	r.cfg, err = config.Load(r.file, config.Options{})
	r.must(err)
}

// outcomes runs "outcomes" and returns its lines.
func (r *rig) outcomes(args ...string) (all []feed.Outcome) {
	r.t.Helper()
	for line := range strings.Lines(r.untidied(append([]string{"outcomes"}, args...)...)) {
		var o feed.Outcome
		r.must(json.Unmarshal([]byte(line), &o))
		all = append(all, o)
	}
	return all
}

// toldOf returns the jobs of outcomes with their states.
func toldOf(all []feed.Outcome) string {
	var words []string
	for _, o := range all {
		state := o.State
		if o.Reason != nil {
			state += "/" + string(*o.Reason)
		}
		words = append(words, o.ID+" "+state)
	}
	return strings.Join(words, ", ")
}

func TestOutcomesPrintsWhatBecameOfJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fed("{readers: [ledger, mailer]}")
	r.park(r.one, job.Job{ID: "a", Batch: "b", Payload: json.RawMessage(`{"amount":4900,"currency":"EUR","card":"canary"}`)}, job.Refused, 402, "HTTP 402: no")
	r.park(r.one, job.Job{ID: "c", Batch: "b", Payload: json.RawMessage(`{"amount":1,"currency":"EUR"}`)}, job.UnknownOutcome, 504, "time-out")
	r.park(r.two, job.Job{ID: "x"}, job.Refused, 402, "no")
	r.untidied("dlq", "resolve", "--done", "--id", "c", "--why", "looked up", "--yes", "--reference", "ch_1")
	r.untidied("dlq", "discard", "--id", "a", "--why", "mistake", "--yes")
	all := r.outcomes()
	if got, want := toldOf(all), "a parked/refused, c parked/unknown_outcome, c done, a discarded,  batch_done"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	if o := all[0]; o.Gateway != r.one || o.Batch != "b" || o.Status != 402 || o.Amount.Int64() != 4900 || o.Currency != "EUR" || o.Attempts != 1 || time.Since(o.At) > time.Hour {
		t.Errorf("%+v", o)
	}
	if o := all[2]; o.Reference != "ch_1" || o.Reason != nil {
		t.Errorf("%+v", o)
	}
	if got := toldOf(r.outcomes("-g", r.one, "--after", all[1].Cursor, "--limit", "2")); got != "c done, a discarded" {
		t.Error(got)
	}
	if got := toldOf(r.outcomes("--reader", "ledger", "--ack", "--limit", "2")); got != "a parked/refused, c parked/unknown_outcome" {
		t.Error(got)
	}
	if got := toldOf(r.outcomes("--reader", "ledger", "--limit", "1")); got != "c done" {
		t.Error(got)
	}
	if got := toldOf(r.outcomes("--reader", "mailer", "--limit", "1")); got != "a parked/refused" {
		t.Error(got)
	}
	var status struct{ Gateways []desk.Status }
	r.must(json.Unmarshal([]byte(r.untidied("status", "-o", "json")), &status))
	if s := status.Gateways[0].Outcomes; s == nil || s.Kept != 5 || len(s.Readers) != 2 || s.Readers[0].Behind != 3 || s.Readers[1].Behind != 5 || s.Readers[1].BehindSince == nil ||
		status.Gateways[1].Outcomes != nil {
		t.Errorf("%+v", s)
	}
}

func TestOutcomesRefusesWhatCanNotBeMeant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fed("{readers: [ledger]}")
	for _, c := range []struct {
		args string
		code job.Code
		says string
	}{
		{"--limit 0", job.CodeUsage, "too few"}, {"--ack", job.CodeUsage, "--ack needs the reader"}, {"--after=", job.CodeUsage, "--after"}, {"--after x", job.CodeUsage, "not a cursor"},
		{"--reader nobody", job.CodeNotFound, "it names ledger"}, {"-g " + r.two, job.CodeNotFound, "has no outcome feed"},
		{"-g " + r.one + " -g " + r.two + " --after 1-2", job.CodeUsage, "several have outcomes"},
	} {
		var out, err strings.Builder
		code := cli.Main(name, newCommand, append(strings.Fields("outcomes "+c.args), "-c", r.file), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &err})
		if code != map[job.Code]int{job.CodeUsage: 2, job.CodeNotFound: 4}[c.code] || !strings.Contains(err.String(), c.says) {
			t.Errorf("%s: %d %s", c.args, code, err.String())
		}
	}
}

// "outcomes --follow" goes on while Redis is away. It says once that Redis is away and once that it is back, and prints later outcomes.
func TestWhoFollowsOutcomesOutlivesRedis(t *testing.T) {
	t.Parallel()
	server := testkit.Server(t, "--appendonly", "yes")
	f := &fedRig{apiRig: newAPIRig(t, server.URL(), "outcomes: {readers: [ledger, mailer]}\n    admission: {limits: [1/d], burst: 1}")}
	f.park(4)
	file := filepath.Join(t.TempDir(), "dispatcher.yaml")
	text := fmt.Sprintf("redis: %s\ngateways:\n  %s:\n    request: {url: \"https://one.example/charge\"}\n    leak: {limits: [100/s]}\n    outcomes: {readers: [ledger, mailer]}\n", server.URL(), f.gateway)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, said, code := &testkit.Log{}, &testkit.Log{}, make(chan int, 1)
	go func() {
		code <- cli.Main(name, newCommand, []string{"outcomes", "-c", file, "-g", f.gateway, "--reader", "ledger", "--ack", "--follow", "--limit", "6"}, cli.Streams{In: strings.NewReader(""), Out: out, Err: said})
	}()
	lines := func() int { return strings.Count(out.String(), "\n") }
	testkit.Eventually(t, 20*time.Second, "the first outcomes", func() bool { return lines() == 3 })
	server.Stop()
	testkit.Eventually(t, 30*time.Second, "the words that Redis is away", func() bool {
		return strings.Contains(said.String(), "outcomes can't be read now, and are printed when they can")
	})
	server.Restart()
	testkit.Eventually(t, 30*time.Second, "the words that Redis is back", func() bool { return strings.Contains(said.String(), "outcomes are read again") })
	for len(f.parked) < 6 {
		f.park(1)
	}
	select {
	case got := <-code:
		if got != 0 || lines() != 6 || strings.Count(said.String(), "be read now") != strings.Count(said.String(), "are read again") {
			t.Errorf("exit code %d, %d lines, and it said:\n%s", got, lines(), said)
		}
	case <-time.After(3 * time.Minute):
		t.Fatalf("it goes on; it printed %d lines, and said:\n%s", lines(), said)
	}
	if got := f.ask(http.MethodGet, "/v1/status", "", nil); !strings.Contains(got.body, `"reader":"ledger","behind":0`) {
		t.Error(got.body)
	}
}
