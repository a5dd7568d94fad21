package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// command runs a command of dispatcher without a terminal.
func (r *rig) command(args ...string) ran {
	r.t.Helper()
	return r.commandWith(cli.Streams{In: strings.NewReader("")}, args...)
}

func (r *rig) commandWith(s cli.Streams, args ...string) ran {
	r.t.Helper()
	var out, err bytes.Buffer
	s.Out, s.Err = &out, &err
	code := cli.Main(name, newCommand, append(args, "-c", r.file), s)
	return ran{r.tidy(out.String()), r.tidy(err.String()), code}
}

// succeed makes the next call of a gateway's queue; it succeeds.
func (r *rig) succeed(gateway, reference string) {
	r.t.Helper()
	id, generation, _ := job.ParseTaskID(testkit.Pop(r.t, r.c, redisdb.NewKeys(gateway).Lines()))
	books := dispatch.Books(r.c, r.gateway(gateway))
	a, opening, err := books.Open(r.ctx, id, generation, "w1", time.Minute)
	r.must(err)
	if opening != job.OpenGo {
		r.t.Fatalf("opened: %s", opening)
	}
	r.must(books.Done(r.ctx, a, job.Ending{Called: true, Status: 201, Verdict: job.VerdictDone, At: time.UnixMicro(1), Reference: reference}))
}

// batch gives two gateways four jobs of one batch: one is done, one refused, one queued, and one queued at gateway two.
func (r *rig) batch() {
	r.t.Helper()
	r.accept(r.gateway(r.one), job.Enqueued, charge("a", "1050", "b1"))
	r.succeed(r.one, "pi_1")
	r.park(r.one, charge("b", "999999999999", "b1"), job.Refused, 402, "HTTP 402: no")
	r.accept(r.manual(r.one), job.Enqueued, charge("c", `"?"`, "b1"), charge("other", "1", "b2"))
	r.accept(r.gateway(r.two), job.Enqueued, charge("d", "5", "b1"))
}

func (r *rig) manual(name string) config.Gateway {
	g := r.gateway(name)
	g.Replay = config.ReplayManual
	return g
}

func TestBatchShowsCountsAndSums(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.served()
	r.batch()
	got := r.command("batch", "b1")
	r.expect(ran{got.out[:strings.LastIndex(got.out, "\t")], got.err, got.code}, 0, `one	queued		1	1 job without an amount	
one	done		1	EUR 1050	
one	parked	refused	1	EUR 999999999999	
two	queued		1		
all	total		4	EUR 1000000001049, 1 job without an amount`, "")
	var v desk.Batch
	got = r.command("batch", "b1", "-g", r.one, "-o", "json")
	r.must(json.Unmarshal([]byte(got.out), &v))
	if v.Jobs != 3 || len(v.Gateways) != 1 || v.ETASeconds == nil || *v.ETASeconds > 60 || v.NoAmount != 1 || v.Amount["EUR"].Int64() != 1000000001049 {
		t.Errorf("one gateway alone: %s", got.out)
	}
	r.expect(r.command("batch", "none"), 4, "", "dispatcher: no batch \"none\"\nhint: no job of it was enqueued here, or its last job was over longer ago than dedupe\n")
}

func TestBatchSaysWhetherItMakesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.batch()
	if got := r.command("batch", "b1", "--by", "+1h"); got.code != 0 || !strings.Contains(got.err, "no ETA: one, two: no dispatcher has ever served the gateway") ||
		!strings.Contains(got.err, "makes it by TIME, if dispatchers begin now") {
		t.Errorf("nobody has served it yet, and the limits are enough: %+v", got)
	}
	if got := r.command("batch", "b1", "--by", "-1h"); got.code != 1 || !strings.Contains(got.err, "later, if dispatchers begin now") {
		t.Errorf("nobody has served it yet, and the time is over: %+v", got)
	}
	r.served()
	if got := r.command("batch", "b1", "--by", "+1h"); got.code != 0 || !strings.Contains(got.err, "makes it by TIME") {
		t.Errorf("an hour for two jobs: %+v", got)
	}
	if got := r.command("batch", "b1", "--by", "-1h"); got.code != 1 || !strings.Contains(got.err, "does not make it") {
		t.Errorf("an hour ago: %+v", got)
	}
	late := charge("late", "1", "b1")
	late.At = time.Now().Add(2 * time.Hour)
	r.accept(r.manual(r.one), job.Enqueued, late)
	if got := r.command("batch", "b1", "--by", "+1h"); got.code != 1 {
		t.Errorf("a job that may not go before: %+v", got)
	}
	r.command("pause", "-g", r.two)
	if got := r.command("batch", "b1", "--by", "+3h"); got.code != 1 || !strings.Contains(got.err, "nobody can say") {
		t.Errorf("a gateway is paused: %+v", got)
	}
	if got := r.command("batch", "b1", "--by", "tomorrow"); got.code != 2 {
		t.Errorf("no time: %+v", got)
	}
}

// The gateway has a scheduled job of next year. That does not make another batch late, whose only job is in a back-off.
func TestABatchIsNotLateForAnotherOnesScheduledJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.served()
	g := r.manual(r.one)
	r.accept(g, job.Enqueued, charge("a", "1050", "b1"))
	task, err := r.c.RPop(r.ctx, redisdb.NewKeys(r.one).Pending()).Result()
	r.must(err)
	id, generation, _ := job.ParseTaskID(task)
	books := dispatch.Books(r.c, g)
	a, _, err := books.Open(r.ctx, id, generation, "w1", time.Minute)
	r.must(err)
	r.must(books.Back(r.ctx, a, job.Ending{Called: true, Status: 500, Verdict: job.VerdictRetry, At: time.UnixMicro(1)}, time.Minute))
	later := charge("later", "1", "b2")
	later.At = time.Now().AddDate(1, 0, 0)
	r.accept(g, job.Enqueued, later)
	if got := r.command("batch", "b1", "--by", "+1h"); got.code != 0 {
		t.Errorf("a job in a back-off of a minute: %+v", got)
	}
	if got := r.command("batch", "b2", "--by", "+1h"); got.code != 1 {
		t.Errorf("a job of next year: %+v", got)
	}
}

func TestBatchExportSaysWhatBecameOfEachJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.batch()
	r.c.Del(context.Background(), redisdb.NewKeys(r.two).Job("d"))
	r.expect(r.command("batch", "b1", "--export", "-o", "json"), 0,
		`{"id":"a","gateway":"one","batch":"b1","state":"done","amount":1050,"currency":"EUR","status":201,"reference":"pi_1","attempts":1,"replays":0,"accepted_at":"TIME","called_at":"TIME","finished_at":"TIME"}
{"id":"b","gateway":"one","batch":"b1","state":"parked","reason":"refused","amount":999999999999,"currency":"EUR","status":402,"error":"HTTP 402: no","attempts":1,"replays":0,"accepted_at":"TIME","called_at":"TIME","parked_at":"TIME"}
{"id":"c","gateway":"one","batch":"b1","state":"queued","attempts":0,"replays":0,"accepted_at":"TIME"}
{"id":"d","gateway":"two","batch":"b1","state":"forgotten","attempts":0,"replays":0,"accepted_at":null}
`, "")
	r.expect(r.command("batch", "b1", "--export", "-g", r.one), 0, "a\tone\tdone\t\t201\tpi_1\t1\tTIME\tTIME\tTIME\t\tEUR 1050\tb1\n"+
		"b\tone\tparked\trefused\t402\t\t1\tTIME\tTIME\t\t\tEUR 999999999999\tb1\nc\tone\tqueued\t\t\t\t0\tTIME\t\t\t\t\tb1\n", "")
	if got := r.command("batch", "none", "--export"); got.code != 4 {
		t.Errorf("no such batch: %+v", got)
	}
}

// An export of more than one page has the order of the file.
func TestBatchExportIsLong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := r.gateway(r.one)
	g.Admission.Burst = 10
	var chunk []job.Newcomer
	for range 1200 {
		j := charge(rand.Text(), "1", "long")
		chunk = append(chunk, job.Newcomer{Job: j, Digest: producer.Digest(j.Payload)})
	}
	for i := 0; i < len(chunk); i += 300 {
		_, _, err := testkit.Accept(r.ctx, dispatch.Books(r.c, g), job.Ticket{Sequence: rand.Text(), Number: 1}, chunk[i:i+300], "park")
		r.must(err)
	}
	lines := strings.Split(strings.TrimSpace(r.command("batch", "long", "--export").out), "\n")
	if len(lines) != len(chunk) {
		t.Fatalf("%d lines for %d jobs", len(lines), len(chunk))
	}
	for i, l := range lines {
		if !strings.HasPrefix(l, chunk[i].Job.ID+"\t") {
			t.Fatalf("line %d is %q, the job was %s", i, l, chunk[i].Job.ID)
		}
	}
}
