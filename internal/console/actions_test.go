package console

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// do previews an action and sends its form, with a name and a reason.
func (r *rig) do(query string) (preview, after string) {
	r.t.Helper()
	status, preview := r.get("/gateways/" + r.g.Name + "/clear?" + query)
	if status != 200 {
		r.t.Fatalf("preview of %s: %d", query, status)
	}
	f := form(r.t, preview)
	f.Set("who", "Ada  L.")
	f.Set("why", "ticket 4711")
	status, after = r.post("/gateways/"+r.g.Name+"/clear", f)
	if status != 200 {
		r.t.Fatalf("%s: %d", query, status)
	}
	return preview, after
}

func (r *rig) lastAct() deadletter.Act {
	r.t.Helper()
	acts, err := r.store().LastActs(r.t.Context(), 1)
	if err != nil || len(acts) != 1 {
		r.t.Fatalf("the trail has %d acts, %v", len(acts), err)
	}
	return acts[0]
}

func TestReplayByFilterDoesWhatThePreviewShowed(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(4, `{"amount":1200,"currency":"EUR"}`)
	r.parkOne("j0000", job.Refused, "HTTP 402: card_declined")
	r.parkOne("j0001", job.Refused, "HTTP 402: card_declined")
	r.parkOne("j0002", job.Exhausted, "HTTP 500")
	preview, after := r.do("do=replay&match=card_declined")
	wants(t, preview, "EUR 24.00", "Replay: 2 jobs", "Jobs parked from now on are not touched")
	wants(t, after, "<b>2 jobs replayed</b> (EUR 24.00)", "Ada L. (console)", "ticket 4711")
	for id, want := range map[string]job.State{"j0000": job.Queued, "j0001": job.Queued, "j0002": job.Parked} {
		if got := r.record(id).State; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	a := r.lastAct()
	if a.Who != "Ada L. (console)" || a.What != "replay" || a.Why != "ticket 4711" || a.Jobs != 2 || a.Ended == nil || a.Amount["EUR"].String() != "2400" ||
		!strings.Contains(a.Filter, `--match "card_declined"`) {
		t.Errorf("the trail says %+v", a)
	}
	if log := r.log.String(); !strings.Contains(log, "ticket 4711") || strings.Contains(log, "1200") {
		t.Errorf("the log says %s", log)
	}
}

func TestAPreviewChangesNothing(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{lookup: true})
	r.park(2, `{}`, job.UnknownOutcome, "time-out")
	for _, do := range deeds {
		if status, _ := r.get("/gateways/" + r.g.Name + "/clear?do=" + do.Name); status != 200 {
			t.Errorf("%s: status %d", do.Name, status)
		}
	}
	if n := r.standing().Parked[job.UnknownOutcome]; n != 2 {
		t.Errorf("%d are parked after the previews, want 2", n)
	}
}

func TestWhatIsParkedAfterThePreviewIsNotTouched(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(2, `{}`)
	r.parkOne("j0000", job.Refused, "no")
	_, preview := r.get("/gateways/" + r.g.Name + "/clear?do=discard")
	r.parkOne("j0001", job.Refused, "no")
	f := form(t, preview)
	f.Set("who", "Ada")
	f.Set("why", "too late")
	r.post("/gateways/"+r.g.Name+"/clear", f)
	if a, b := r.record("j0000").State, r.record("j0001").State; a != job.Discarded || b != job.Parked {
		t.Errorf("the one that was shown is %s, the one parked since then %s", a, b)
	}
	_, page := r.get(jobLink(r.g.Name, "j0000") + "&payload=1")
	wants(t, page, "A person has discarded it.", "Its payload and what the gateway said of it are deleted.", "It was deleted when the job was discarded.")
}

func TestUnknownOutcomesAreResolved(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(3, `{}`)
	r.parkOne("j0000", job.UnknownOutcome, "time-out")
	r.parkOne("j0001", job.UnknownOutcome, "time-out")
	r.parkOne("j0002", job.Refused, "no")
	r.do("do=done&id=j0000")
	_, after := r.do("do=not-done")
	wants(t, after, "1 job resolved as not done")
	for id, want := range map[string]job.State{"j0000": job.Done, "j0001": job.Queued, "j0002": job.Parked} {
		if got := r.record(id).State; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	if k := r.record("j0001").KeyGeneration; k != 2 {
		t.Errorf("the job that was not done goes out with key generation %d, want 2", k)
	}
	_, sure := r.get("/gateways/" + r.g.Name + "/clear?do=done&reason=refused")
	wants(t, sure, "Would be held back: 1 job. it can&#39;t have been charged")
	_, page := r.get(jobLink(r.g.Name, "j0000"))
	wants(t, page, "<dt>Settled</dt><dd>done by Ada L. (console), ")
	_, page = r.get(jobLink(r.g.Name, "j0001"))
	wants(t, page, "<dt>Settled</dt><dd>not done by Ada L. (console), ")
}

// A discard holds back jobs that may have been charged. The preview says so.
func TestADiscardLeavesWhatMayHaveBeenCharged(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(2, `{}`)
	r.parkOne("j0000", job.UnknownOutcome, "time-out")
	r.parkOne("j0001", job.Refused, "no")
	_, preview := r.get("/gateways/" + r.g.Name + "/clear?do=discard")
	wants(t, preview, "Would be held back: 1 job. may have been charged: look it up, then dlq resolve.", "Discard: 1 job")
	_, after := r.do("do=discard")
	wants(t, after, "1 job discarded", "may have been charged")
	if a, b := r.record("j0000").State, r.record("j0001").State; a != job.Parked || b != job.Discarded {
		t.Errorf("the one in doubt is %s, the other one %s", a, b)
	}
}

func TestWhatMustBeSaidIsAskedFor(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.park(1, `{}`, job.UnknownOutcome, "time-out")
	at := "/gateways/" + r.g.Name
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for name, f := range map[string]url.Values{
		"discard without a reason": {"do": {"discard"}, "who": {"Ada"}, "why": {"  "}, "until": {until}},
		"resolve without a reason": {"do": {"done"}, "who": {"Ada"}, "until": {until}},
		"replay without a name":    {"do": {"replay"}, "until": {until}},
		"nothing was previewed":    {"do": {"discard"}, "who": {"Ada"}, "why": {"x"}},
		"no such deed":             {"do": {"delete"}, "who": {"Ada"}, "why": {"x"}, "until": {until}},
	} {
		if status, _ := r.post(at+"/clear", f); status != 400 {
			t.Errorf("%s: %d, want 400", name, status)
		}
	}
	if status, _ := r.post(at+"/pause", url.Values{"who": {"Ada"}}); status != 400 {
		t.Errorf("pause without a reason: %d", status)
	}
	if status, _ := r.post(at+"/limit", url.Values{"to": {"1/s"}}); status != 400 {
		t.Errorf("limit without a name: %d", status)
	}
	if s := r.standing(); s.Parked[job.UnknownOutcome] != 1 || r.paused() {
		t.Errorf("something was done: %+v", s)
	}
}

func TestHeldBackJobsAreNamed(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	if err := r.store().ParkUnreadable(t.Context(), "junk", []byte("?"), "not ours"); err != nil {
		t.Fatal(err)
	}
	_, page := r.get("/gateways/" + r.g.Name + "/clear?do=replay")
	wants(t, page, "Would be held back: 1 job.", "not a job")
	lacks(t, page, "Replay: 1", `name="why"`)
}

// A replay waits for room. Its HTTP request does not wait that long. A stop of the console ends the replay between two jobs.
func TestALongReplayGoesOnAfterItsRequestAndEndsWithTheConsole(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{admission: "{limits: [1/h], burst: 1}"})
	r.put(3, `{}`) // one has room
	began := time.Now()
	_, after := r.do("do=replay")
	if took := time.Since(began); took > patience+time.Minute {
		t.Errorf("the answer took %v", took)
	}
	wants(t, after, "0 jobs replayed", "and still at it")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.console.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if n := r.standing().Parked[job.Rejected]; n != 2 {
		t.Errorf("%d are parked, want 2", n)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	at := "/gateways/" + r.g.Name
	_, page := r.post(at+"/pause", url.Values{"who": {"Ada"}, "why": {"the bank's maintenance"}})
	wants(t, page, "paused</span>", "the bank&#39;s maintenance (Ada)", "Resume")
	if !r.paused() {
		t.Error("the gateway is not paused")
	}
	_, page = r.post(at+"/resume", url.Values{})
	lacks(t, page, "paused</span>")
	if r.paused() {
		t.Error("the gateway is still paused")
	}
}

func TestALimitIsChangedAndReset(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	at := "/gateways/" + r.g.Name
	_, page := r.get(at + "/limit?to=50%2Fs+2000%2Fm")
	wants(t, page, "<dt>Holds now</dt><dd>100/s</dd>", "<dt>Will hold</dt><dd>50/s 2000/m</dd>", "Admission lets 1000/s in")
	lacks(t, page, "more than the file allows")
	_, above := r.get(at + "/limit?to=200/s")
	wants(t, above, "This is more than the file allows")
	limits := func() string {
		now, err := dispatch.CurrentLimits(t.Context(), r.db.Client, r.g)
		if err != nil {
			t.Fatal(err)
		}
		return desk.LimitsText(now.Limits)
	}
	if limits() != "100/s" {
		t.Error("the preview changed the limit")
	}
	f := form(t, page)
	f.Set("who", "Ada")
	_, page = r.post(at+"/limit", f)
	wants(t, page, "set live; the file says 100/s")
	if limits() != "50/s 2000/m" {
		t.Errorf("the limits are %s", limits())
	}
	_, page = r.get(at + "/limit?reset=1")
	f = form(t, page)
	f.Set("who", "Ada")
	r.post(at+"/limit", f)
	if limits() != "100/s" {
		t.Errorf("after the reset the limits are %s", limits())
	}
	for _, bad := range []string{"", "0/s", "fast", "1/s 2/s 3/s 4/s 5/s 6/s 7/s 8/s 9/s"} {
		if status, _ := r.get(at + "/limit?" + url.Values{"to": {bad}}.Encode()); status != 400 {
			t.Errorf("the limit %q: %d, want 400", bad, status)
		}
	}
}

func TestARedisThatIsAwayIsSaidSo(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	r := setupAt(t, srv.URL(), setting{})
	srv.Kill()
	status, page := r.get("/")
	if status != 503 {
		t.Errorf("status %d, want 503", status)
	}
	wants(t, page, "Not done")
	lacks(t, page, srv.Addr())
}

func TestAReplayWaitsUntilTheGatewayIsResumed(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.park(1, `{}`, job.Refused, "no")
	_, preview := r.get("/gateways/" + r.g.Name + "/clear?do=replay")
	r.pauseNow("maintenance")
	_, page := r.get("/gateways/" + r.g.Name + "/clear?do=replay")
	wants(t, page, "A replay stops at once for now: "+r.g.Name+" is paused (maintenance")
	lacks(t, page, `name="why"`)
	f := form(t, preview) // it was shown before the pause
	f.Set("who", "Ada")
	_, page = r.post("/gateways/"+r.g.Name+"/clear", f)
	wants(t, page, "It stopped by itself: "+r.g.Name+" is paused (maintenance")
	if n := r.standing().Parked[job.Refused]; n != 1 {
		t.Errorf("%d are parked, want 1", n)
	}
}
