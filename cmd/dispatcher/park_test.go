package main

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// waiters adds a job in each state of waiting.
func (r *rig) waiters() {
	r.t.Helper()
	r.unanswered(r.one, charge("unsure", "3", "nov"))
	later := charge("scheduled", "5", "nov")
	later.At = time.Now().Add(time.Hour)
	r.accept(r.manual(r.one), job.Enqueued, charge("queued", "7", "nov"), later)
}

func TestParkTakesAJobThatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.waiters()
	who, err := cli.WhoAmI()
	r.must(err)
	r.expect(r.command("park", "queued", "--why", "wrong customer"), 0, "would park job \"queued\" (EUR 0.07) at one, which is queued, as cancelled\n",
		"nothing was done: add --yes to do it\n")
	r.expect(r.command("park", "queued", "--why", "wrong customer", "--yes", "--dry-run", "-q"), 0,
		"would park job \"queued\" (EUR 0.07) at one, which is queued, as cancelled\n", "")
	if r.record(r.one, "queued").State != job.Queued || r.trail(r.one) != "" {
		t.Error("a dry run has done something")
	}
	r.expect(r.command("park", "queued", "--why", "wrong customer", "--yes"), 0, "parked job \"queued\" (EUR 0.07) at one, which was queued, as cancelled\n", "")
	r.expect(r.command("park", "unsure", "--why", "wrong customer", "--yes", "-o", "json"), 0, `{"id":"unsure","gateway":"one","was":"retrying",`+
		`"reason":"unknown_outcome","may_have_charged":true,"amount":{"EUR":3},"without_amount":0,"done":true}`+"\n", "")
	answer := cli.Streams{In: strings.NewReader("y\n"), InTerminal: true, ErrTerminal: true}
	got := r.commandWith(answer, "park", "scheduled", "--why", "wrong customer")
	r.expect(got, 0, "parked job \"scheduled\" (EUR 0.05) at one, which was scheduled, as cancelled\n",
		"Park job \"scheduled\" (EUR 0.05) at one, which is scheduled, as cancelled? [y/N] ")
	for id, want := range map[string]job.Reason{"queued": job.Cancelled, "unsure": job.UnknownOutcome, "scheduled": job.Cancelled} {
		if rec := r.record(r.one, id); rec.State != job.Parked || rec.Reason != want || !strings.HasPrefix(rec.Error, "parked by "+who+": wrong customer") {
			t.Errorf("%s is %s %s: %s", id, rec.State, rec.Reason, rec.Error)
		}
	}
	first, _, _ := strings.Cut(r.trail(r.one), "\n")
	if want := `{"at":"TIME","who":"WHO","what":"park","why":"wrong customer","filter":"--id queued","jobs":1,"amount":{"EUR":7},"without_amount":0,"ended":"TIME"}`; first != want {
		t.Errorf("the trail has %s", first)
	}
	if got := r.run("replay", "--id", "queued", "--yes"); got.code != 0 || r.record(r.one, "queued").State != job.Queued {
		t.Errorf("replayed: %+v", got)
	}
	if got := r.command("audit"); got.code != 0 {
		t.Errorf("the audit: %+v", got)
	}
}

func TestParkRefusesWhatDoesNotWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.batch()
	r.accept(r.gateway(r.two), job.Enqueued, charge("c", "1", ""))
	r.accept(r.gateway(r.two), job.Enqueued, charge("flying", "1", ""))
	_, _, err := dispatch.Books(r.c, r.gateway(r.two)).Open(r.ctx, "flying", 1, "w1", time.Minute)
	r.must(err)
	r.run("discard", "--id", "b", "--why", "w", "--yes")
	r.reject(r.one, charge("parked", "1", ""), charge("more", "1", ""))
	for _, c := range []struct {
		id   string
		code int
		says string
	}{
		{"flying", 1, `job "flying" is in flight at two: its call may last until TIME`},
		{"a", 4, `job "a" does not wait any more: it is done at one`},
		{"b", 4, `job "b" does not wait any more: it is discarded at one`},
		{"parked", 4, `job "parked" is waiting for room at one already`},
		{"nobody", 4, `no job "nobody"`},
		{"c", 2, `job "c" is known to several gateways: one, two`},
	} {
		got := r.command("park", c.id, "--why", "w", "--yes")
		if got.code != c.code || got.out != "" || !strings.Contains(got.err, c.says) || !strings.Contains(got.err, "hint: ") {
			t.Errorf("%s: %+v", c.id, got)
		}
	}
	if got := r.run("discard", "--id", "flying", "--why", "w", "--yes"); got.code != 4 || !strings.Contains(got.err, `job "flying" is not parked: it is in_flight at two, until TIME at the latest`) {
		t.Errorf("a discard of what is in flight: %+v", got)
	}
	if got := r.command("park", "c", "--yes"); got.code != 2 || !strings.Contains(got.err, "a park needs a reason") {
		t.Errorf("no reason: %+v", got)
	}
}

// A job that always gets 403 holds its gateway. Discard with its id removes it from the queue.
func TestDLQDiscardTakesANamedJobThatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.waiters()
	who, err := cli.WhoAmI()
	r.must(err)
	r.expect(r.run("discard", "--id", "queued", "--id", "unsure", "--why", "always 403"), 0, "one: 2 jobs (EUR 0.10)\n"+
		"  queued: 1 job (EUR 0.07)\n  retrying: 1 job (EUR 0.03)\nwould be held back: 1 job: "+heldBackDoubt+"\n"+
		"dry run: 1 job (EUR 0.07) would be discarded; nothing was changed\n", "add --yes to do it\n")
	r.expect(r.run("discard", "--id", "queued", "--id", "unsure", "--id", "scheduled", "--why", "always 403", "--yes", "-q"), 0,
		"discarded 2 jobs (EUR 0.12), held back 1\nheld back: 1 job: "+heldBackDoubt+"\n", "")
	for id, want := range map[string]job.State{"queued": job.Discarded, "scheduled": job.Discarded, "unsure": job.Retrying} {
		if rec := r.record(r.one, id); rec.State != want || want == job.Discarded && rec.Error != "discarded by "+who+": always 403" {
			t.Errorf("%s is %s: %s", id, rec.State, rec.Error)
		}
	}
	if want := `"what":"discard","why":"always 403","filter":"--id queued --id unsure --id scheduled","jobs":2,"amount":{"EUR":12}`; !strings.Contains(r.trail(r.one), want) {
		t.Errorf("the trail has %s", r.trail(r.one))
	}
	r.expect(r.run("discard", "--id", "unsure", "--may-be-charged", "--why", "w", "--yes", "-q"), 0, "discarded 1 job (EUR 0.03)\n", "")
	if got := r.command("audit"); got.code != 0 {
		t.Errorf("the audit: %+v", got)
	}
	r.expect(r.run("discard", "--reason", "cancelled", "--why", "w", "--yes", "-q"), 0, "no parked job is meant: nothing to discard\n", "")
}

// Only a discard takes jobs that wait, and only by their ids.
func TestJobsThatWaitAreMeantByTheirIDAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.waiters()
	for _, args := range [][]string{{"replay", "--id", "queued"}, {"resolve", "--done", "--id", "unsure", "--why", "w"},
		{"discard", "--id", "queued", "--reason", "cancelled", "--why", "w"}, {"discard", "--id", "queued", "--since", "1h", "--why", "w"}} {
		if got := r.run(append(args, "--yes")...); got.code != 4 {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := r.run("discard", "--batch", "nov", "--why", "w", "--yes"); got.out != "no parked job is meant: nothing to discard\n" {
		t.Errorf("%+v", got)
	}
}
