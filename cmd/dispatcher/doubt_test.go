package main

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// unanswered calls a job and loses the answer: it may have charged, and waits for its back-off to end.
func (r *rig) unanswered(gateway string, j job.Job) {
	r.t.Helper()
	r.accept(r.manual(gateway), job.Enqueued, j)
	task, err := r.c.RPop(r.ctx, redisdb.NewKeys(gateway).Pending()).Result()
	r.must(err)
	id, generation, _ := job.ParseTaskID(task)
	books := dispatch.Books(r.c, r.gateway(gateway))
	a, opening, err := books.Open(r.ctx, id, generation, "w1", time.Minute)
	r.must(err)
	if id != j.ID || opening != job.OpenGo {
		r.t.Fatalf("pulled %s, and opened: %s", id, opening)
	}
	r.must(books.Back(r.ctx, a, job.Ending{Called: true, Spent: true, Unsure: true, Verdict: job.VerdictRetry, At: time.UnixMicro(1)}, time.Hour))
}

const heldBackDoubt = "may have been charged: look it up, then dlq resolve"

// The answers to three calls are lost. Then a person cancels the batch, and discards the cancelled jobs.
func TestWhatMayHaveBeenChargedIsNeitherCancelledNorDiscarded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range []string{"a", "b", "c"} {
		r.unanswered(r.one, charge(id, "101", "nov"))
	}
	r.accept(r.manual(r.one), job.Enqueued, charge("new", "5", "nov"))
	r.expect(r.command("batch", "cancel", "nov", "--why", "wrong file", "--yes"), 0,
		"one: cancelled 4 jobs (EUR 3.08) of batch \"nov\"\n"+
			"one: of these, 3 jobs (EUR 3.03) may have been charged, and wait as unknown_outcome: look them up, then \"dispatcher dlq resolve\"\n", "")
	r.expect(r.run("discard", "--reason", "cancelled", "--why", "wrong file", "--yes", "-q"), 0, "discarded 1 job (EUR 0.05)\n", "")
	r.expect(r.run("discard", "--batch", "nov", "--why", "wrong file"), 0, "one: 3 jobs (EUR 3.03)\n"+
		"  unknown_outcome: 3 jobs (EUR 3.03)\nwould be held back: 3 jobs: "+heldBackDoubt+"\n"+
		"dry run: 0 jobs would be discarded; nothing was changed\n", "")
	r.expect(r.run("discard", "--batch", "nov", "--why", "wrong file", "--yes", "-o", "json"), 0, `{"jobs":3,"discarded":0,"held_back":3,"gone":0,"dry_run":false,`+
		`"amount":{},"without_amount":0,"by_reason":{"unknown_outcome":{"jobs":3,"amount":{"EUR":303},"without_amount":0}},`+
		`"held_back_why":{"`+heldBackDoubt+`":3},"replayed_3_times_or_more":0}`+"\n", "")
	for _, id := range []string{"a", "b", "c"} {
		if rec := r.record(r.one, id); rec.State != job.Parked || rec.Reason != job.UnknownOutcome {
			t.Errorf("%s is %s %s", id, rec.State, rec.Reason)
		}
	}
	got := r.run("discard", "--id", "a", "--why", "checked", "--may-be-charged", "--yes")
	if got.code != 0 || got.out != "discarded 1 job (EUR 1.01)\n" || r.record(r.one, "a").State != job.Discarded {
		t.Errorf("said so explicitly: %+v", got)
	}
	if trail := r.trail(r.one); !strings.Contains(trail, `"what":"discard","why":"checked","filter":"--id a --may-be-charged","jobs":1`) {
		t.Errorf("the trail has %s", trail)
	}
}

// A discard holds back a job that may have been charged, whatever its reason for parking is.
func TestADiscardHoldsBackWhatMayHaveBeenChargedForAnyReason(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, reason := range []job.Reason{job.Refused, job.Exhausted, job.Expired, job.Cancelled, job.Rejected} {
		id := string(reason)
		r.park(r.one, charge(id, "1", ""), reason, 500, "HTTP 500")
		r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Job(id), "am", "1").Err())
		r.park(r.one, charge("sure-"+id, "1", ""), reason, 500, "HTTP 500")
	}
	if list := r.run("list", "-o", "json"); strings.Count(list.out, `"may_have_charged":true`) != 5 {
		t.Errorf("the list has %s", list.out)
	}
	got := r.run("discard", "--why", "clean up", "--yes", "-q")
	if !strings.HasPrefix(got.out, "discarded 5 jobs (EUR 0.05), held back 5\nheld back: 5 jobs: "+heldBackDoubt) {
		t.Errorf("%+v", got)
	}
	for _, reason := range []job.Reason{job.Refused, job.Exhausted, job.Expired, job.Cancelled, job.Rejected} {
		if rec := r.record(r.one, string(reason)); rec.State != job.Parked {
			t.Errorf("%s is %s", reason, rec.State)
		}
		if rec := r.record(r.one, "sure-"+string(reason)); rec.State != job.Discarded {
			t.Errorf("sure-%s is %s", reason, rec.State)
		}
	}
}

// A person resolves jobs that are parked for different reasons. Each job shows who did that, and why.
func TestWhoSettledAJobShowsWithIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(r.one, charge("a", "7", "nov"), job.UnknownOutcome, 0, "timed out")
	r.park(r.one, charge("b", "5", "nov"), job.Exhausted, 500, "HTTP 500")
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.one).Job("b"), "am", "1").Err())
	r.park(r.one, charge("c", "3", "nov"), job.Refused, 402, "HTTP 402")
	got := r.run("resolve", "--done", "--id", "a", "--reference", "ch_3K", "--why", "in the settlement file", "--yes", "-q")
	r.expect(got, 0, "resolved 1 job (EUR 0.07)\n", "")
	got = r.run("resolve", "--not-done", "--reason", "exhausted", "--reason", "refused", "--why", "nobody has it", "--yes", "-q")
	r.expect(got, 0, "resolved 1 job (EUR 0.05), held back 1\nheld back: 1 job: it can't have been charged, so there is nothing to settle: replay or discard it\n", "")
	who, err := cli.WhoAmI()
	r.must(err)
	done := `"reference":"ch_3K","settled":{"as":"done","at":"TIME","who":"` + who + `","why":"in the settlement file"}`
	notDone := `"settled":{"as":"not_done","at":"TIME","who":"` + who + `","why":"nobody has it"}`
	if got := r.command("job", "a", "-o", "json"); !strings.Contains(got.out, done) {
		t.Errorf("job a: %s", got.out)
	}
	if got := r.command("job", "a"); !strings.Contains(got.out, "reference\tch_3K\nsettled\tdone at TIME by "+who+": in the settlement file\n") {
		t.Errorf("job a: %s", got.out)
	}
	if rec := r.record(r.one, "b"); rec.State != job.Queued || rec.KeyGeneration != 2 || rec.Unsure {
		t.Errorf("b is %s, key %d, may have charged %v", rec.State, rec.KeyGeneration, rec.Unsure)
	}
	export := r.command("batch", "nov", "--export", "-o", "json")
	if lines := strings.Split(export.out, "\n"); !strings.Contains(lines[0], done) || !strings.Contains(lines[1], notDone) || strings.Contains(lines[2], "settled") {
		t.Errorf("the export has\n%s", export.out)
	}
	if text := r.command("batch", "nov", "--export"); !strings.Contains(text.out, "\tdone at TIME by "+who+": in the settlement file\tEUR 7\tnov\n") {
		t.Errorf("the export has\n%s", text.out)
	}
}

// One id at two gateways is two payments. A reference belongs to one of them.
func TestAReferenceIsOfOneJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(r.one, charge("a", "7", ""), job.UnknownOutcome, 0, "timed out")
	r.park(r.two, charge("a", "7", ""), job.UnknownOutcome, 0, "timed out")
	got := r.run("resolve", "--done", "--id", "a", "--reference", "ch_3K", "--why", "w", "--yes")
	if got.code != 2 || !strings.Contains(got.err, "hint: choose one with -g") {
		t.Errorf("%+v", got)
	}
	if got := r.run("resolve", "--done", "--id", "a", "-g", r.one, "--reference", "ch_3K", "--why", "w", "--yes"); got.code != 0 || r.record(r.two, "a").State != job.Parked {
		t.Errorf("%+v", got)
	}
}
