package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
	"spillway/internal/testkit"
)

func (r *rig) pacer(gateway string) *bucket.Pacer {
	r.t.Helper()
	p, err := dispatch.Pacer(r.c, r.gateway(gateway), bucket.NewMetrics(nil))
	r.must(err)
	return p
}

const (
	tellOn    = "hint: see \"dispatcher status\"; when calls go through again, run the same again: it goes on with the jobs that are still parked\n"
	onePaused = "one is paused (by hand)"
)

func TestDLQReplayOfAPausedGatewayStopsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.must(r.pacer(r.one).Pause(r.ctx, "by hand"))
	preview := "one: 1 job (EUR 10.50)\n  refused: 1 job (EUR 10.50)\n" + onePaused + ": the replay would stop at once\n"
	r.expect(r.run("replay", "--reason", "refused"), 0, preview+"dry run: 1 job (EUR 10.50) would be replayed; nothing was changed\n", "add --yes to do it\n")
	r.expect(r.run("replay", "--reason", "refused", "--yes"), 5, "replayed 0 jobs\n", preview+"dispatcher: 0 of 1 job replayed: stopped: "+onePaused+"\n"+tellOn)
	if r.parked() != "abcdef" || r.trail(r.one) != "" {
		t.Errorf("parked %s, trail %s", r.parked(), r.trail(r.one))
	}
	r.must(r.pacer(r.one).Resume(r.ctx))
	r.expect(r.run("replay", "--reason", "refused", "--yes", "-q"), 0, "replayed 1 job (EUR 10.50)\n", "")
}

func TestDLQReplayOfAHeldGatewayStopsAtOnceAndTheOthersGo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	r.reject(r.two, job.Job{ID: "g"})
	_, err := r.pacer(r.two).Failed(r.ctx, job.Circuit{}, job.Failure{Kind: job.Wait, For: time.Hour, Written: true, Why: "HTTP 429"})
	r.must(err)
	got := r.run("replay", "--reason", "rejected", "--yes", "-o", "json")
	r.expect(got, 5, `{"jobs":3,"replayed":2,"held_back":0,"gone":0,"dry_run":false,"amount":{"EUR":9223372036854775906},"without_amount":0,`+
		`"by_reason":{"rejected":{"jobs":3,"amount":{"EUR":9223372036854775906},"without_amount":0}},"held_back_why":{},"replayed_3_times_or_more":0,`+
		`"stopped":"stopped: two is held until TIME (HTTP 429)"}`+"\n", "dispatcher: 2 of 3 jobs replayed: stopped: two is held until TIME (HTTP 429)\n"+tellOn)
}

// The circuit is open and its hold is over. If no job waits, a replay has to bring the job of the call that tries the gateway. If other jobs
// wait for that call, a replay stops.
func TestDLQReplayStopsAtAnOpenCircuit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stock()
	p := r.pacer(r.one)
	c := job.Circuit{Failures: 1, Max: 100 * time.Millisecond}
	_, err := p.Failed(r.ctx, c, job.Failure{Job: "x", Written: true, Why: "HTTP 503"})
	r.must(err)
	testkit.Eventually(t, 10*time.Second, "the hold to be over", func() bool {
		s, err := p.Look(r.ctx)
		r.must(err)
		return s.Circuit && s.HeldUntil.IsZero()
	})
	r.expect(r.run("replay", "--id", "a", "--yes", "-q"), 0, "replayed 1 job (EUR 10.50)\n", "")
	got := r.run("replay", "--reason", "rejected", "-g", r.one, "--yes", "-q")
	if got.code != 5 || !strings.Contains(got.err, "stopped: the circuit of one is open (") || !strings.Contains(got.out, "replayed 0 jobs") {
		t.Errorf("exit code %d, %s%s", got.code, got.out, got.err)
	}
}

// The gateway is paused during a replay. Jobs that were already replayed stay so, and the same command replays the others later.
func TestDLQReplayStopsWhenTheGatewayIsPausedAndGoesOnLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.reject(r.one, numbered(40)...)
	pending := redisdb.NewKeys(r.one).Pending()
	ended := make(chan ran, 1)
	go func() { ended <- r.run("replay", "--rate", "4/s", "--yes", "-q") }() // of cost 2: two jobs a second, so all of them take 19 s
	testkit.Eventually(t, time.Minute, "some jobs to be replayed", func() bool { return r.c.LLen(r.ctx, pending).Val() >= 3 })
	r.must(r.pacer(r.one).Pause(r.ctx, "by hand"))
	got := <-ended
	queued := int(r.c.LLen(r.ctx, pending).Val())
	if queued >= 40 {
		t.Fatalf("all were replayed before the pause")
	}
	r.expect(got, 5, fmt.Sprintf("replayed %d jobs (EUR %d.%d0)\n", queued, queued/10, queued%10),
		fmt.Sprintf("dispatcher: %d of 40 jobs replayed: stopped: %s\n", queued, onePaused)+tellOn)
	r.must(r.pacer(r.one).Resume(r.ctx))
	rest := 40 - queued
	r.expect(r.run("replay", "--yes", "-q"), 0, fmt.Sprintf("replayed %d jobs (EUR %d.%d0)\n", rest, rest/10, rest%10), "")
}

func TestDLQReplayAtARateTakesItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.reject(r.one, numbered(25)...)
	begun := time.Now()
	r.expect(r.run("replay", "--share", "50%", "--yes", "-q"), 0, "replayed 25 jobs (EUR 2.50)\n", "") // of cost 2, at 50/s
	if took := time.Since(begun); took < 900*time.Millisecond {
		t.Errorf("25 jobs of cost 2 at half of 100/s went in within %v", took)
	}
}

func TestWaitingForACanaryIsSaid(t *testing.T) {
	t.Parallel()
	now := remote.Canary{Sent: 5, Waiting: 2, Done: 3}
	if got := waitingText("one", now, true); got != "one: 5 jobs sent ahead, waiting until they are finished" {
		t.Error(got)
	}
	if got := waitingText("one", now, false); !strings.Contains(got, "still waiting for 2 of the 5 sent ahead") {
		t.Error(got)
	}
}

// A replay in progress follows limits that are set live, if the file has no limits for admission.
func TestDLQReplayFollowsLimitsSetLive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	text, err := os.ReadFile(r.file)
	r.must(err)
	r.must(os.WriteFile(r.file, []byte(strings.Replace(string(text), "leak: {limits: [100/s]}", "leak: {limits: [2/h]}\n    admission: {burst: 2}", 1)), 0o600))
	r.cfg, err = config.Load(r.file, config.Options{})
	r.must(err)
	r.reject(r.one, numbered(40)...) // of cost 2
	pending := redisdb.NewKeys(r.one).Pending()
	r.must(r.c.Del(r.ctx, redisdb.NewKeys(r.one).Admission()).Err())
	ended := make(chan ran, 1)
	go func() { ended <- r.run("replay", "--yes", "-q", "-g", r.one) }()
	testkit.Eventually(t, 10*time.Second, "the first job to be replayed", func() bool { return r.c.LLen(r.ctx, pending).Val() == 1 })
	r.must(dispatch.SetLimits(r.ctx, r.c, r.gateway(r.one), []job.Limit{{N: 1000, Window: time.Second}}))
	select {
	case got := <-ended:
		r.expect(got, 0, "replayed 40 jobs (EUR 4.00)\n", "")
	case <-time.After(3 * time.Minute):
		t.Fatalf("%d of 40 jobs are replayed 3 minutes after the limit was set", r.c.LLen(r.ctx, pending).Val())
	}
}

// numbered returns n jobs of 10 cents each, in the order of their ids.
func numbered(n int) []job.Job {
	jobs := make([]job.Job, n)
	for i := range jobs {
		jobs[i] = charge(fmt.Sprintf("%02d", i), "10", "")
	}
	return jobs
}
