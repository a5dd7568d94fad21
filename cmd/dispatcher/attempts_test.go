package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"spillway/internal/console"
	"spillway/internal/dispatch"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// screens is all views of a job in gateway one: the commands, the API and the console.
type screens struct {
	*rig
	url string
}

func (r *rig) screens() screens {
	r.t.Helper()
	db, err := dispatch.Open(r.ctx, r.cfg, time.Minute)
	r.must(err)
	guard := httpapi.NewGuard("")
	s := served{file: newInForce(r.cfg), door: newDoor(dispatch.Door(db.Client, r.cfg, apiPatience)), db: db}
	page := console.New(console.Config{Redis: r.c, Gateways: r.cfg.Gateways, Guard: guard})
	srv := httptest.NewServer(s.api(httpapi.Config{Guard: guard, Ready: s.takesJobs, Console: page}, s.examiner()))
	r.t.Cleanup(func() { srv.Close(); _ = db.Close() })
	return screens{r, srv.URL}
}

// say returns the numbers of attempts that each view shows of a job, by their names.
func (s screens) say(id string) map[string]map[string]int {
	s.t.Helper()
	said := map[string]map[string]int{}
	all := []string{"job " + id, "batch b1 --export"}
	parked := s.record(s.one, id).State == job.Parked
	if parked {
		all = append(all, "dlq list --id "+id, "dlq show "+id)
	}
	for _, args := range all {
		said[args] = s.document(args)
	}
	said["the API"] = named(s.t, "the API", s.fetch(s.url+"/v1/gateways/"+s.one+"/jobs/"+id))
	said["job, for a person"] = s.cell("job, for a person", s.command("job", id, "-g", s.one).out, `(?m)^attempts\t(\d+)$`)
	said["the console's page of the job"] = s.cell("the console's page", s.fetch(s.url+"/jobs?id="+id), `<dt>Attempts</dt><dd>(\d+)`)
	if parked {
		said["dlq show, for a person"] = s.cell("dlq show, for a person", s.command("dlq", "show", id).out, `(?m)^attempts\t(\d+)$`)
		said["dlq list, for a person"] = s.cell("dlq list, for a person", s.command("dlq", "list").out, `(?m)^`+id+`\tone\trefused\t(\d+)\t`)
		said["the console's list"] = s.cell("the console's list", s.fetch(s.url+"/gateways/"+s.one), `data-label="Attempts" class="n">(\d+)<`)
	}
	return said
}

func (s screens) document(args string) map[string]int {
	s.t.Helper()
	got := s.command(append(regexp.MustCompile(` `).Split(args, -1), "-g", s.one, "-o", "json")...)
	if got.code != 0 {
		s.t.Fatalf("%s: %+v", args, got)
	}
	return named(s.t, args, got.out)
}

// named returns the fields of a document that are about attempts.
func named(t *testing.T, what, text string) map[string]int {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%s: %v: %s", what, err, text)
	}
	all := map[string]int{}
	for _, field := range []string{"attempts", "attempts_spent"} {
		if n, ok := doc[field].(float64); ok {
			all[field] = int(n)
		}
	}
	return all
}

func (s screens) cell(what, text, pattern string) map[string]int {
	s.t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		s.t.Fatalf("%s shows no attempts: %s", what, text)
	}
	n, err := strconv.Atoi(found[1])
	s.must(err)
	return map[string]int{"attempts": n}
}

// wantAttempts compares what all views show with the right numbers.
func (s screens) wantAttempts(when, id string, calls, spent int) {
	s.t.Helper()
	want := map[string]int{"attempts": calls, "attempts_spent": spent}
	all := s.say(id)
	for view, said := range all {
		if _, ok := said["attempts"]; !ok {
			s.t.Errorf("%s: %s does not say attempts", when, view)
		}
		for name, n := range said {
			if n != want[name] {
				s.t.Errorf("%s: %s says %s %d, want %d", when, view, name, n, want[name])
			}
		}
	}
	for _, view := range []string{"job " + id, "dlq show " + id} {
		if said := all[view]; said != nil && len(said) != 2 {
			s.t.Errorf("%s: %s does not say attempts_spent: %v", when, view, said)
		}
	}
}

// held makes the next call of gateway one. It is told to wait, and spends no attempt.
func (s screens) held() {
	s.t.Helper()
	id, generation, _ := job.ParseTaskID(testkit.Pop(s.t, s.c, redisdb.NewKeys(s.one).Lines()))
	books := dispatch.Books(s.c, s.gateway(s.one))
	a, opening, err := books.Open(s.ctx, id, generation, "w1", time.Minute)
	s.must(err)
	if opening != job.OpenGo {
		s.t.Fatalf("%s opened: %s", id, opening)
	}
	s.must(books.Back(s.ctx, a, job.Ending{Called: true, Status: 429, Verdict: job.VerdictHold, Error: "HTTP 429", At: time.UnixMicro(1)}, 0))
}

func (s screens) replay() {
	s.t.Helper()
	if got := s.run("replay", "-g", s.one, "--yes"); got.code != 0 {
		s.t.Fatalf("%+v", got)
	}
}

// All views have the same numbers under the same names. attempts is the number of calls since the job was last admitted, with any result.
// attempts_spent is the number of those that retry.attempts counts.
func TestAttemptsAreTheSameOnEveryScreen(t *testing.T) {
	t.Parallel()
	s := newRig(t).screens()
	s.accept(s.gateway(s.one), job.Enqueued, charge("a", "1050", "b1"))
	s.wantAttempts("accepted", "a", 0, 0)
	s.held()
	s.wantAttempts("told to wait", "a", 1, 0)
	s.again(s.one, "a")
	s.wantAttempts("refused", "a", 2, 1)
	s.replay()
	s.wantAttempts("replayed", "a", 0, 0)
	s.held()
	s.held()
	s.again(s.one, "a")
	s.wantAttempts("refused again", "a", 3, 1)
	s.replay()
	s.succeed(s.one, "ch_1")
	s.wantAttempts("done", "a", 1, 0)
	if n := len(s.record(s.one, "a").History); n != 6 {
		t.Errorf("the history has %d calls, want all 6", n)
	}
}

// The count is exact although the history has no room for all calls.
func TestAttemptsAreCountedBeyondTheHistory(t *testing.T) {
	t.Parallel()
	s := newRig(t).screens()
	s.accept(s.gateway(s.one), job.Enqueued, charge("a", "1050", "b1"))
	for range 200 {
		s.held()
	}
	if n := len(s.record(s.one, "a").History); n >= 200 {
		t.Fatalf("the history has room for %d calls", n)
	}
	s.wantAttempts("told to wait often", "a", 200, 0)
}

// A record of an older version has no count. Without a replay, its attempts are the calls of its history; after a replay, the attempts spent.
func TestAttemptsOfAnOlderVersionsRecord(t *testing.T) {
	t.Parallel()
	for replays, want := range []int{2, 1} {
		t.Run(fmt.Sprintf("%d replays", replays), func(t *testing.T) {
			t.Parallel()
			s := newRig(t).screens()
			s.accept(s.gateway(s.one), job.Enqueued, charge("a", "1050", "b1"))
			s.held()
			s.again(s.one, "a")
			record := redisdb.NewKeys(s.one).Job("a")
			s.must(s.c.HDel(s.ctx, record, "ca").Err())
			if replays > 0 {
				s.must(s.c.HSet(s.ctx, record, "y", replays).Err())
			}
			s.wantAttempts("as an older version left it", "a", want, 1)
			s.replay()
			s.wantAttempts("replayed", "a", 0, 0)
			s.again(s.one, "a")
			s.wantAttempts("refused again", "a", 1, 1)
		})
	}
}
