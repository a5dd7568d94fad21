package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

func TestBatchCancelAsksForAReasonAndForYes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.batch()
	r.expect(r.command("batch", "cancel", "b1", "--why", "\t"), 2, "", "dispatcher: a batch cancel needs a reason\nhint: say it with --why \"confirmed by support, ticket 4711\"\n")
	r.expect(r.command("batch", "cancel", "b1", "--why", strings.Repeat("x", desk.MostWhy+1)), 2, "",
		fmt.Sprintf("dispatcher: --why has more than %d bytes\nhint: name a ticket that says the rest\n", desk.MostWhy))
	r.expect(r.command("batch", "cancel", "b1"), 2, "", "dispatcher: a batch cancel needs a reason\nhint: say it with --why \"confirmed by support, ticket 4711\"\n")
	r.expect(r.command("batch", "cancel", "none", "--why", "w"), 4, "", "dispatcher: no batch \"none\"\nhint: no job of it was enqueued here, or its last job was over longer ago than dedupe\n")
	r.expect(r.command("batch", "cancel", "b1", "--why", "wrong file"), 0,
		"one: would cancel 1 job (1 job without an amount) of batch \"b1\"\ntwo: would cancel 1 job of batch \"b1\"\n", "nothing was done: add --yes to do it\n")
	if rec := r.record(r.one, "c"); rec.State != job.Queued {
		t.Errorf("without --yes the job is %s", rec.State)
	}
	r.expect(r.command("batch", "cancel", "b1", "--why", "wrong file", "--yes", "-o", "json"), 0,
		`{"batch":"b1","what":"cancel","done":true,"gateways":[{"gateway":"one","jobs":1,"amount":{},"without_amount":1},`+
			`{"gateway":"two","jobs":1,"amount":{},"without_amount":0}]}`+"\n", "")
	if rec := r.record(r.one, "c"); rec.Reason != job.Cancelled || rec.Error != "its batch was cancelled: wrong file" {
		t.Errorf("the job is %s %s: %s", rec.State, rec.Reason, rec.Error)
	}
	for id, state := range map[string]job.State{"a": job.Done, "b": job.Parked, "other": job.Queued} {
		if rec := r.record(r.one, id); rec.State != state || rec.Reason == job.Cancelled {
			t.Errorf("job %s is %s %s", id, rec.State, rec.Reason)
		}
	}
	if got, want := r.trail(r.one), `{"at":"TIME","who":"WHO","what":"batch cancel","why":"wrong file","filter":"--batch \"b1\"","jobs":1,"amount":{},"without_amount":1,"ended":"TIME"}`; got != want {
		t.Errorf("the trail has %s, want %s", got, want)
	}
	if got := r.run("replay", "--reason", "cancelled", "--batch", "b1", "--yes"); got.code != 0 || r.record(r.one, "c").State != job.Queued {
		t.Errorf("replayed: %+v, the job is %s", got, r.record(r.one, "c").State)
	}
}

func TestBatchPauseShowsAndEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.batch()
	r.expect(r.command("batch", "pause", "b1", "--why", "bank closed", "--yes", "-g", r.one), 0, "one: paused 1 job (1 job without an amount) of batch \"b1\"\n", "")
	got := r.command("batch", "b1", "-g", r.one)
	if !strings.Contains(got.out, "one\tpaused\t") || !strings.Contains(got.out, ": bank closed\t") || !strings.HasSuffix(got.out, "\t?\n") {
		t.Errorf("paused: %s", got.out)
	}
	const resume = `"dispatcher batch resume b1 --why TEXT" takes its jobs in again`
	if got.err != "no ETA: one: the batch is paused: bank closed\npaused: "+resume+"\n" {
		t.Errorf("paused, batch says: %s", got.err)
	}
	if got := r.command("status"); !strings.HasSuffix(got.err, "\none: 1 job of paused batches, such as b1: "+resume+"\n") {
		t.Errorf("paused, status says: %s", got.err)
	}
	if got := r.command("job", "c", "-g", r.one); !strings.Contains(got.out, "why\tparked as paused since TIME: its batch is paused: bank closed; "+resume+"\n") {
		t.Errorf("paused, job says: %s", got.out)
	}
	r.expect(r.run("replay", "--reason", "paused", "--yes", "-q"), 0,
		"replayed 0 jobs, held back 1\nheld back: 1 job: its batch is paused: \"dispatcher batch resume\" takes it in again\n", "")
	if got := r.command("batch", "b1", "--by", "+1h"); got.code != 1 {
		t.Errorf("a paused batch makes it: %+v", got)
	}
	r.expect(r.command("batch", "resume", "b1", "--why", "open again", "--yes", "-g", r.one), 0, "one: resumed 1 job (1 job without an amount) of batch \"b1\"\n", "")
	if rec := r.record(r.one, "c"); rec.Reason != job.Rejected {
		t.Errorf("resumed, the job is %s %s", rec.State, rec.Reason)
	}
	if got := r.command("batch", "b1", "-g", r.one); strings.Contains(got.out, "paused") {
		t.Errorf("resumed: %s", got.out)
	}
	if trail := r.trail(r.one); !strings.Contains(trail, `"batch pause","why":"bank closed"`) || !strings.Contains(trail, `"batch resume","why":"open again"`) {
		t.Errorf("the trail has %s", trail)
	}
}

// A cancelled batch says so, and jobs that enqueue still adds are parked. Resume does not take back the jobs that the cancel parked.
func TestBatchCancelStaysUntilResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.batch()
	r.expect(r.command("batch", "cancel", "b1", "--why", "wrong file", "--yes", "-g", r.one), 0, "one: cancelled 1 job (1 job without an amount) of batch \"b1\"\n", "")
	r.accept(r.manual(r.one), job.ParkedNow, charge("late", "7", "b1"))
	if rec := r.record(r.one, "late"); rec.Reason != job.Cancelled || rec.Error != "its batch was cancelled: wrong file" {
		t.Errorf("what came later is %s %s: %s", rec.State, rec.Reason, rec.Error)
	}
	if got := r.command("batch", "b1", "-g", r.one); !strings.Contains(got.out, "one\tcancelled\t\t\t") || !strings.Contains(got.out, ": wrong file\t") {
		t.Errorf("cancelled: %s", got.out)
	}
	if got := r.command("batch", "b1", "-g", r.one, "-o", "json"); !strings.Contains(got.out, `"paused_at":null,"cancelled_at":"TIME","cancel_why":"wrong file","cancelled_by":"`) {
		t.Errorf("cancelled: %s", got.out)
	}
	if got := r.command("batch", "b1", "--by", "+1h", "-g", r.one); got.code != 1 || !strings.Contains(got.err, "nobody can say") {
		t.Errorf("a cancelled batch makes it: %+v", got)
	}
	r.expect(r.command("batch", "cancel", "b1", "--why", "wrong file", "--yes", "-g", r.one), 0, "one: cancelled 0 jobs of batch \"b1\"\n"+
		"one: 2 jobs (EUR 0.07, 1 job without an amount) of batch \"b1\" are cancelled in all: dispatchers or an earlier command had parked the others\n", "")
	if got := r.command("batch", "cancel", "b1", "--why", "wrong file", "--yes", "-g", r.one, "-o", "json"); !strings.Contains(got.out, `"without_amount":0,"in_all":{"jobs":2,"amount":{"EUR":7},"without_amount":1}}`) {
		t.Errorf("cancelled again: %s", got.out)
	}
	r.expect(r.command("batch", "resume", "b1", "--why", "the right file", "--yes", "-g", r.one), 0, "one: resumed 0 jobs of batch \"b1\"\n", "")
	r.accept(r.manual(r.one), job.Enqueued, charge("right", "7", "b1"))
}

// The cancel waits for a call in flight at one gateway. Meanwhile the other gateway must not go on with the wrong file.
func TestBatchCancelStopsAllGatewaysAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.accept(r.manual(r.one), job.Enqueued, charge("a", "1", "b1"))
	r.accept(r.gateway(r.two), job.Enqueued, charge("b", "1", "b1"))
	books := dispatch.Books(r.c, r.gateway(r.one))
	a, _, err := books.Open(r.ctx, "a", 1, "w1", time.Minute)
	r.must(err)
	ended := make(chan ran, 1)
	go func() { ended <- r.command("batch", "cancel", "b1", "--why", "wrong file", "--yes") }()
	testkit.Eventually(t, 10*time.Second, "the other gateway's part", func() bool { return r.record(r.two, "b").Reason == job.Cancelled })
	r.must(books.Done(r.ctx, a, job.Ending{Called: true, Status: 201, Verdict: job.VerdictDone, At: time.UnixMicro(1)}))
	r.expect(<-ended, 0, "one: cancelled 0 jobs of batch \"b1\"\ntwo: cancelled 1 job of batch \"b1\"\n", "")
}
