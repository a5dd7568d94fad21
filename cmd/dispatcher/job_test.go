package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// why returns the reason that dispatcher job gives for a job in gateway one.
func (r *rig) why(id string) string {
	r.t.Helper()
	var out, errs bytes.Buffer
	s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}
	if code := cli.Main(name, newCommand, []string{"job", id, "-g", r.one, "-c", r.file, "-o", "json"}, s); code != 0 {
		r.t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var v desk.Job
	r.must(json.Unmarshal(out.Bytes(), &v))
	return r.tidy(v.Why)
}

// silent makes it look as if the last dispatcher of gateway one had ended a minute ago.
func (r *rig) silent() {
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Alive(), "at", time.Now().Add(-time.Minute).UnixMicro()).Err())
}

func (r *rig) expectWhy(id, want string) {
	r.t.Helper()
	if got := r.why(id); got != want {
		r.t.Errorf("%s: %q, want %q", id, got, want)
	}
}

func TestWhyNotNow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := r.gateway(r.one)
	g.Replay = config.ReplayManual
	soon := charge("at", "1", "")
	soon.At = time.Now().Add(time.Hour)
	r.accept(g, job.Enqueued, charge("a", "1", ""), charge("b", "1", ""), charge("c", "1", ""))
	r.accept(g, job.Enqueued, soon)
	r.expectWhy("a", `no dispatcher has ever served the gateway: start one with "dispatcher run", next in the queue`)
	r.silent()
	r.expectWhy("b", `no dispatcher serves the gateway since TIME: start one with "dispatcher run", behind 1 other`)
	r.served()
	r.expectWhy("c", "waiting for a slot, behind 2 others")
	r.expectWhy("at", "scheduled for TIME")
	pacer, err := dispatch.Pacer(r.c, g, bucket.NewMetrics(nil))
	r.must(err)
	defer pacer.Close(r.ctx)
	r.must(pacer.Pause(r.ctx, "maintenance"))
	r.expectWhy("c", "the gateway is paused: maintenance, behind 2 others")
	r.expectWhy("at", "scheduled for TIME; the gateway is paused: maintenance")
	r.must(pacer.Resume(r.ctx))
	_, err = pacer.Failed(r.ctx, job.Circuit{}, job.Failure{Kind: job.Wait, For: time.Hour, Written: true, Why: "HTTP 429"})
	r.must(err)
	r.expectWhy("a", "the gateway is held until TIME: HTTP 429, next in the queue")
}

func TestWhyTheLimitIsUsedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := r.gateway(r.one)
	r.served()
	r.accept(g, job.Enqueued, charge("a", "1", ""))
	limit, err := job.ParseLimit("1/d")
	r.must(err)
	r.must(dispatch.SetLimits(r.ctx, r.c, g, []job.Limit{limit}))
	g.Leak.Limits = []job.Limit{limit}
	pacer, err := dispatch.Pacer(r.c, g, bucket.NewMetrics(nil))
	r.must(err)
	defer pacer.Close(r.ctx)
	now, err := dispatch.CurrentLimits(r.ctx, r.c, g)
	r.must(err)
	r.must(pacer.Change(r.ctx, bucket.PacerConfig{Gateway: g.Name, Limits: []job.Limit{{N: 1, Window: 24 * time.Hour}}, Version: now.Version, Jitter: g.Leak.Jitter}))
	_, err = pacer.Take(r.ctx, 1, "")
	r.must(err)
	r.expectWhy("a", "the limit 1/d is used up until TIME, next in the queue")
}

// Redis has lost the version of the limits, and no dispatcher restores it. The commands say so. Setting the limits again restores it.
func TestALostVersionOfTheLimitsIsSaid(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.served()
	r.accept(r.gateway(r.one), job.Enqueued, charge("a", "1", ""))
	pace := redisdb.NewKeys(r.one).Pace()
	lost := "Redis has lost the version of the limits that the pacer keeps"
	r.must(r.c.HSet(r.ctx, pace, "v", 7, "c", time.Now().Add(time.Hour).UnixMicro()).Err())
	r.expectWhy("a", "waiting for a slot, next in the queue") // for 2 s after the loss, dispatchers may still mend it
	r.must(r.c.HSet(r.ctx, pace, "c", time.Now().Add(-3*time.Second).UnixMicro()).Err())
	if why := r.why("a"); !strings.Contains(why, lost) {
		t.Errorf("job: %s", why)
	}
	for _, format := range []string{"text", "json"} {
		if got := r.command("status", "-c", r.file, "-g", r.one, "-o", format); !strings.Contains(got.out, lost) {
			t.Errorf("status -o %s: %s%s", format, got.out, got.err)
		}
	}
	if got := r.command("limit", "reset", "-c", r.file, "-g", r.one); got.code != 0 {
		t.Fatal(got)
	}
	r.expectWhy("a", "waiting for a slot, next in the queue")
}

func TestWhyOfJobsOutsideTheQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(r.one, charge("no", "1", ""), job.Refused, 402, "HTTP 402")
	r.expectWhy("no", `parked as refused since TIME: see "dispatcher dlq show no"`)
	r.park(r.one, charge("$(reboot)", "1", ""), job.Refused, 402, "HTTP 402")
	r.expectWhy("$(reboot)", `parked as refused since TIME: see "dispatcher dlq show '$(reboot)'"`)
	g := r.gateway(r.one)
	r.accept(g, job.Enqueued, charge("fly", "1", ""))
	task, err := r.c.RPop(r.ctx, redisdb.NewKeys(r.one).Pending()).Result()
	r.must(err)
	r.served()
	r.expectWhy("fly", "a worker has pulled it, and its call begins at its slot")
	id, generation, _ := job.ParseTaskID(task)
	_, _, err = dispatch.Books(r.c, g).Open(r.ctx, id, generation, "pay.example.4711.abc.7", time.Minute)
	r.must(err)
	r.expectWhy("fly", "in flight since TIME by process 4711 on pay.example; other workers leave it alone until TIME")
}

func TestPlaceInALongQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := r.gateway(r.one)
	r.served()
	r.accept(g, job.Enqueued, charge("last", "1", ""))
	before := make([]any, 60_000)
	for i := range before {
		before[i] = fmt.Sprintf("x%d~1", i)
	}
	r.must(r.c.RPush(r.ctx, redisdb.NewKeys(r.one).Pending(), before...).Err())
	r.expectWhy("last", "waiting for a slot, behind more than 50000 others")
}
