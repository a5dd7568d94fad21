package main

import (
	"strings"
	"testing"

	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// A batch that waits for its first jobs says so. When one of these is refused, each command says why the batch has stopped, and what to type.
func TestABatchThatStoppedItselfIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if holds, err := dispatch.Books(r.c, r.gateway(r.one)).SendAhead(r.ctx, "b 1", 1); err != nil || !holds {
		t.Fatal(holds, err)
	}
	g := r.manual(r.one)
	r.accept(g, job.Enqueued, charge("a", "1", "b 1"))
	r.accept(g, job.ParkedNow, charge("b", "2", "b 1"))
	got := r.command("batch", "b 1")
	const goOn = `the rest goes in by itself then; "dispatcher batch resume 'b 1' --why TEXT" takes it in now`
	if !strings.Contains(got.out, "one\twaits\t\t\tuntil its first 1 jobs are done: 0 are\t") || got.err != "no ETA: one: the rest waits until the first 1 jobs are done\nwaits: "+goOn+"\n" {
		t.Errorf("waiting, batch says %q, %q", got.out, got.err)
	}
	if got := r.command("job", "b"); !strings.Contains(got.out, "its batch waits until its first job is done; "+goOn+"\n") {
		t.Errorf("waiting, job says %s", got.out)
	}
	if got := r.command("batch", "b 1", "-o", "json"); !strings.Contains(got.out, `"paused_at":null,"cancelled_at":null,"canary":{"first":1,"done":0,"waits":true},"go_on":"the rest goes in by itself then;`) {
		t.Errorf("waiting, batch says %s", got.out)
	}

	r.call(r.one, "a", job.Refused, 400, "HTTP 400: 4242")
	const why = "its first job is parked as refused: HTTP 400"
	const mend = `see "dispatcher dlq list --batch 'b 1'"; mend the jobs with "enqueue --replace", then "dispatcher batch resume 'b 1' --why TEXT"; ` +
		`or give the batch up with "dispatcher batch cancel 'b 1' --why TEXT"`
	got = r.command("batch", "b 1")
	if !strings.Contains(got.out, "by spillway: "+why+"\t") || got.err != "no ETA: one: the batch is paused: "+why+"\nstopped by itself: "+mend+"\n" {
		t.Errorf("stopped, batch says %q, %q", got.out, got.err)
	}
	if got := r.command("batch", "b 1", "-o", "json"); !strings.Contains(got.out, `"pause_why":"`+why+`","paused_by":"spillway",`) || !strings.Contains(got.out, `"stopped_itself":true`) {
		t.Errorf("stopped, batch says %s", got.out)
	}
	if got, want := r.command("status"), "needs a person, most urgent first:\n  one: batch b 1 has stopped itself: "+why+"; 2 jobs (EUR 0.03), since TIME\n    "+mend+
		" (docs/runbook.md#spillwaybatchstopped)\n  one: the gateway refused them; 1 job (EUR 0.01), since TIME\n    dispatcher dlq list -g one --reason refused; then dispatcher dlq replay or discard"+
		" (docs/runbook.md#spillwaymanyrefused)\none: 1 job of paused batches, such as b 1: "+mend+"\n"; got.err != want {
		t.Errorf("stopped, status says %q, want %q", got.err, want)
	}
	if got, want := r.trail(r.one), `{"at":"TIME","who":"spillway","what":"batch pause","why":"`+why+`","filter":"--batch \"b 1\"","jobs":0,"amount":{},"without_amount":0,"ended":"TIME"}`; got != want {
		t.Errorf("the trail has %s, want %s", got, want)
	}
	r.expect(r.command("batch", "resume", "b 1", "--why", "open again", "--yes"), 0, "one: resumed 1 job (EUR 0.02) of batch \"b 1\"\n", "")
	if got := r.command("status"); strings.Contains(got.err, "stopped") {
		t.Errorf("resumed, status says %s", got.err)
	}
}
