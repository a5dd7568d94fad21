package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// laned gives the first gateway lanes, and jobs in them.
func (r *rig) laned() {
	r.t.Helper()
	text, err := os.ReadFile(r.file)
	r.must(err)
	r.must(os.WriteFile(r.file, []byte(strings.Replace(string(text), "    leak: {limits: [100/s]}\n", `    leak: {limits: [100/s]}
    routes: {refund: {request: {url: "https://one.example/refund"}, limits: [1/d]}}
    lanes: {key: lane, limits: [1/h]}
    priority: {classes: [urgent, normal], default: normal}
`, 1)), 0o600))
	r.cfg, err = config.Load(r.file, config.Options{})
	r.must(err)
	var jobs []job.Job
	add := func(lane, route, class string, n int) {
		for i := range n {
			jobs = append(jobs, job.Job{ID: fmt.Sprintf("%s%s%s-%d", lane, route, class, i), Gateway: r.one, Cost: 1, Lane: lane, Route: route, Priority: class})
		}
	}
	add("hog", "", "", 30)
	add("hog", "refund", "", 2)
	add("small", "", "urgent", 2)
	add("", "", "", 1)
	r.accept(r.gateway(r.one), job.Enqueued, jobs...)
	p, err := dispatch.Pacer(r.c, r.cfg.Gateways[0], bucket.NewMetrics(nil))
	r.must(err)
	r.t.Cleanup(func() { p.Close(r.t.Context()) })
	p.AtMost(10)
	for range 3 { // hog, small and the lane without a name: one each in an hour
		if _, err := p.Next(r.ctx); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestLaneListAndShow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.laned()
	var list desk.Lanes
	r.must(json.Unmarshal([]byte(r.untidied("lane", "list", "-g", r.one, "-o", "json")), &list))
	if !list.Exact || list.Busy != 2 || list.Throttled != 2 || len(list.Lanes) != 2 || list.Lanes[0].Lane != "hog" || list.Lanes[0].Queued != 31 || list.Lanes[1].Lane != "small" || *list.Lanes[0].InFlight != 1 {
		t.Errorf("%+v", list)
	}
	text := r.command("lane", "list", "-g", r.one, "--top", "1")
	if !strings.Contains(text.out, "hog") || strings.Contains(text.out, "small") || !strings.Contains(text.err, "lanes with jobs: 2, throttled: 2; 32 jobs in them") {
		t.Errorf("%+v", text)
	}
	var shown desk.LaneShown
	r.must(json.Unmarshal([]byte(r.untidied("lane", "show", "-g", r.one, "hog", "-o", "json")), &shown))
	if shown.Queued != 31 || len(shown.Used) != 1 || shown.Used[0] != (desk.LaneUse{Limit: "1/h", Used: 1}) || shown.Free == nil || len(shown.Flows) != 2 || shown.Flows[0].Class != "normal" {
		t.Errorf("%+v", shown)
	}
	if text := r.command("lane", "show", "-g", r.one, "nobody"); text.code != 0 || !strings.Contains(text.out, "it has no jobs in the queue") {
		t.Errorf("%+v", text)
	}
	if text := r.command("status"); !strings.Contains(text.err, "lanes with jobs: 2, throttled: 2 (1/h each); routes: (none) ") || !strings.Contains(text.err, "classes: urgent 1, normal 31") {
		t.Errorf("%+v", text)
	}
	for _, args := range [][]string{{"lane", "list"}, {"lane", "list", "-g", r.one, "--top", "0"}, {"lane", "list", "-g", r.two}, {"lane", "show", "-g", r.two, "hog"}} {
		if text := r.command(args...); text.code != 2 {
			t.Errorf("%q: %+v", args, text)
		}
	}
}

// If one lane or one route is held, each view names it with the reason.
func TestWhatIsHeldAloneIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.served()
	r.laned()
	p, err := dispatch.Pacer(r.c, r.cfg.Gateways[0], bucket.NewMetrics(nil))
	r.must(err)
	t.Cleanup(func() { p.Close(t.Context()) })
	for _, f := range []job.Failure{{Scope: job.ScopeLane, Why: "HTTP 429 for hog"}, {Scope: job.ScopeRoute, Why: "HTTP 503 of refunds"}} {
		f.Kind, f.For, f.Written, f.Flow = job.Wait, time.Hour, true, job.Flow{Lane: "hog", Route: "refund", Kept: true}
		_, err = p.Failed(r.ctx, job.Circuit{}, f)
		r.must(err)
	}
	var list desk.Lanes
	r.must(json.Unmarshal([]byte(r.untidied("lane", "list", "-g", r.one, "-o", "json")), &list))
	if hog, small := list.Lanes[0], list.Lanes[1]; hog.HeldUntil == nil || hog.HoldReason != "HTTP 429 for hog" || small.HeldUntil != nil || small.HoldReason != "" {
		t.Errorf("%+v", list.Lanes)
	}
	for _, one := range []struct {
		args []string
		want string
	}{{[]string{"lane", "list", "-g", r.one}, "HTTP 429 for hog"}, {[]string{"lane", "show", "-g", r.one, "hog"}, "held until "}, {[]string{"status"}, "refund 2 (1/d) held until "}, {[]string{"status"}, ": HTTP 503 of refunds"}} {
		if text := r.command(one.args...); !strings.Contains(text.out+text.err, one.want) {
			t.Errorf("%q says nothing of %q: %+v", one.args, one.want, text)
		}
	}
	r.must(p.PauseRoute(r.ctx, "refund", true))
	if text := r.command("status"); !strings.Contains(text.err, "refund 2 (1/d) paused") {
		t.Errorf("%+v", text)
	}
	s := newScreen(t, r.source())
	s.look()
	s.press("enter")
	s.look()
	if line := s.line("hog "); !strings.Contains(line, "held until ") || !strings.Contains(line, "HTTP 429 for hog") {
		t.Error(line)
	}
}

// The filter of dead letters selects by lane and by route, and the trail has the filter.
func TestDeadLettersAreChosenByLaneAndRoute(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.laned()
	for _, j := range []job.Job{{ID: "a", Lane: "m1"}, {ID: "b", Lane: "m1", Route: "refund"}, {ID: "c", Lane: "m2", Route: "refund"}} {
		j.Gateway, j.Cost, j.Payload = r.one, 1, []byte(`{}`)
		r.park(r.one, j, job.Refused, 402, "HTTP 402: no")
	}
	for _, tc := range []struct{ flags, want string }{{"--lane m1", "a b"}, {"--route refund", "b c"}, {"--lane m1 --route refund", "b"}, {"--lane m3", ""}} {
		var ids []string
		for line := range strings.Lines(r.untidied(append([]string{"dlq", "list", "-o", "json"}, strings.Fields(tc.flags)...)...)) {
			var p desk.Parked
			r.must(json.Unmarshal([]byte(line), &p))
			ids = append(ids, p.ID)
		}
		if got := strings.Join(ids, " "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.flags, got, tc.want)
		}
	}
	if got := r.run("discard", "--lane", "m2", "--why", "test", "--yes"); got.code != 0 || !strings.Contains(r.trail(r.one), "--lane m2") {
		t.Errorf("%+v\n%s", got, r.trail(r.one))
	}
	if got := r.run("stats", "--lane", "m1"); !strings.Contains(got.out, "2") || strings.Contains(got.out, "3") {
		t.Errorf("%+v", got)
	}
	if got := r.run("list", "--lane", ""); got.code != 2 {
		t.Errorf("%+v", got)
	}
}

// A replay can give jobs another class. It stays with them, and moves them to the line of that class.
func TestAReplayGivesJobsAnotherClass(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.laned()
	of := func(id, lane string) job.Job {
		return job.Job{ID: id, Gateway: r.one, Cost: 1, Lane: lane, Payload: []byte(`{}`)}
	}
	r.park(r.one, of("a", "m1"), job.Refused, 402, "HTTP 402: no")
	r.park(r.one, of("b", "m1"), job.Refused, 402, "HTTP 402: no")
	keys := redisdb.NewKeys(r.one)
	r.c.HSet(r.ctx, keys.Job("b"), record.Short("priority"), "urgent")
	small := r.gateway(r.one)
	small.Admission.Burst = 1
	r.accept(r.gateway(r.one), job.Enqueued, of("r0", "m2"))
	r.accept(small, job.ParkedNow, of("r1", "m2"), of("r2", "m2"))
	for _, args := range [][]string{{"replay", "--priority", "urgnt", "-g", r.one}, {"replay", "--priority", "", "-g", r.one}} {
		if got := r.run(args...); got.code != 2 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := r.run("replay", "--priority", "urgent", "-g", r.one); !strings.Contains(got.out+got.err, "those that go in are of the class urgent from then on") || r.record(r.one, "a").Job.Priority != "" {
		t.Errorf("%+v", got)
	}
	if got := r.run("replay", "--priority", "urgent", "--id", "a", "--id", "r1", "--id", "r2", "--yes"); got.code != 0 || !strings.Contains(r.trail(r.one), "--priority urgent") {
		t.Errorf("%+v\n%s", got, r.trail(r.one))
	}
	for _, id := range []string{"a", "r1", "r2"} {
		rec := r.record(r.one, id)
		if rec.State != job.Queued || rec.Job.Priority != "urgent" {
			t.Errorf("%s is %s, of the class %q", id, rec.State, rec.Job.Priority)
		}
	}
	if line := r.c.LRange(r.ctx, keys.First("urgent"), 0, -1).Val(); strings.Join(line, " ") != "r2~2 r1~2" {
		t.Errorf("urgent jobs that were never called: %v", line)
	}
	if left := r.c.Keys(r.ctx, strings.TrimSuffix(keys.Lanes(), "lanes")+"parked:*").Val(); strings.Join(left, " ") != keys.Parked("refused") {
		t.Errorf("of what was parked there are left %v", left)
	}
	if got := r.command("audit", "-g", r.one); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := r.run("replay", "--priority", "normal", "--id", "b", "--yes"); got.code != 0 || r.record(r.one, "b").Job.Priority != "" {
		t.Errorf("%+v, of the class %q", got, r.record(r.one, "b").Job.Priority)
	}
}
