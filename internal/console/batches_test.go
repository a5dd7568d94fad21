package console

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// batchOf accepts a job of a batch.
func (r *rig) batchOf(batch, id string) {
	r.t.Helper()
	j := job.Job{ID: id, Gateway: r.g.Name, Payload: []byte(`{"amount":1050,"currency":"eur"}`), Cost: 1, Batch: batch}
	if _, err := dispatch.Door(r.db.Client, r.cfg, 0).Admit(r.t.Context(), r.g.Name, []job.Job{j}, admission.Park); err != nil {
		r.t.Fatal(err)
	}
}

func TestBatchesAreListedWithWhatIsLeft(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	_, page := r.get("/batches")
	wants(t, page, "No batches.", `<a href="/batches">Batches</a>`)
	r.park(3, `{"amount":1200,"currency":"EUR"}`, job.Refused, "HTTP 402")
	for i, name := range []string{"a/b?c", "..", "<script>"} {
		r.batchOf(name, fmt.Sprint("x", i))
	}
	status, page := r.get("/batches")
	if status != 200 {
		t.Fatal(status)
	}
	wants(t, page, `href="/batches/2026-11"`, "3 refused", `<b class="person">3</b>`, "<b>EUR 0.00</b> <span class=\"dim\">of EUR 36.00</span>",
		`aria-label="0 of 3 jobs done, 0 waiting, 3 for a person to decide"`, "&lt;script&gt;", `href="/batches/a%2Fb%3Fc"`, `href="/batches?name=.."`)
	lacks(t, page, "<script>alert", `href="/batches/.."`)
	for _, link := range []string{"/batches/2026-11", "/batches/a%2Fb%3Fc", "/batches?name=..", "/batches/%3Cscript%3E"} {
		if status, _ := r.get(link); status != 200 {
			t.Errorf("%s: %d", link, status)
		}
	}
	_, page = r.get("/batches/2026-11")
	wants(t, page, "reason=refused", "EUR 36.00", "Pause…", "Cancel…")
	lacks(t, page, "Resume…")
	_, page = r.get("/batches?name=2026-11&by=%2B1h")
	wants(t, page, "It makes it by")
	for link, want := range map[string]int{"/batches/none": 404, "/batches?after=x": 400, "/batches?name=2026-11&by=soon": 400, "/batches?name=2026-11&do=explode": 400} {
		if status, _ := r.get(link); status != want {
			t.Errorf("%s: %d, want %d", link, status, want)
		}
	}
}

func TestBatchesHavePagesOfAHundred(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	for i := range 101 {
		r.batchOf(fmt.Sprintf("b%03d", i), fmt.Sprint(i))
	}
	_, page := r.get("/batches?active=1")
	if n := strings.Count(page, `role="rowheader"`); n != batchesShown {
		t.Errorf("%d rows on the first page", n)
	}
	_, next, ok := strings.Cut(page, `href="/batches?active=1&amp;after=`)
	if !ok {
		t.Fatal("no next page")
	}
	next, _, _ = strings.Cut(next, `"`)
	_, page = r.get("/batches?active=1&after=" + unescape(next))
	wants(t, page, ">b000</a>", "First page")
	lacks(t, page, ">b001</a>", "Next page")
}

// act previews an action on a batch and sends its form.
func (r *rig) act(batch, do string) (preview, after string) {
	r.t.Helper()
	status, preview := r.get("/batches?" + url.Values{"name": {batch}, "do": {do}}.Encode())
	if status != 200 {
		r.t.Fatalf("preview of %s: %d", do, status)
	}
	f := form(r.t, preview)
	f.Set("who", "Ada  L.")
	f.Set("why", "ticket 4711")
	if status, after = r.post("/batches", f); status != 200 {
		r.t.Fatalf("%s: %d %s", do, status, after)
	}
	return preview, after
}

func TestABatchIsPausedResumedAndCancelledAtTheConsole(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	const name = `Nov "26"/é`
	r.batchOf(name, "a")
	r.batchOf(name, "b")
	for _, step := range []struct {
		do, preview, after string
		state              job.State
		reason             job.Reason
	}{
		{"pause", "Pause: 2 jobs (EUR 21.00)", "<b>2 jobs paused</b> (EUR 21.00)", job.Parked, job.Paused},
		{"resume", "Resume: 2 jobs (EUR 21.00)", "<b>2 jobs resumed</b> (EUR 21.00)", job.Parked, job.Rejected},
		{"cancel", "Cancel: 2 jobs (EUR 21.00)", "<b>2 jobs cancelled</b> (EUR 21.00)", job.Parked, job.Cancelled},
	} {
		preview, after := r.act(name, step.do)
		wants(t, preview, step.preview)
		wants(t, after, step.after)
		if rec := r.record("a"); rec.State != step.state || rec.Reason != step.reason {
			t.Errorf("after %s a is %s, %s", step.do, rec.State, rec.Reason)
		}
		if a := r.lastAct(); a.Who != "Ada L. (console)" || a.What != "batch "+step.do || a.Why != "ticket 4711" || a.Jobs != 2 || a.Ended == nil {
			t.Errorf("the trail says %+v", a)
		}
	}
	_, page := r.get("/batches/" + url.PathEscape(name))
	wants(t, page, "Cancelled at "+r.g.Name+" by Ada L. (console)", "ticket 4711", "Resume…")
	lacks(t, page, "Cancel…", "Pause…")
	_, page = r.get("/batches?" + url.Values{"name": {name}, "do": {"cancel"}}.Encode())
	wants(t, page, "It is cancelled already.")
	lacks(t, page, `method="post">`+"\n<input")
}

func TestAnActUponABatchNeedsAReasonAndAName(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.batchOf("b1", "a")
	for _, f := range []url.Values{
		{"name": {"b1"}, "do": {"pause"}, "who": {"Ada"}}, {"name": {"b1"}, "do": {"pause"}, "why": {"x"}}, {"name": {"b1"}, "do": {"explode"}, "who": {"Ada"}, "why": {"x"}},
		{"name": {"b1"}, "do": {"resume"}, "who": {"Ada"}, "why": {"it is not paused"}},
	} {
		if status, _ := r.post("/batches", f); status != 400 {
			t.Errorf("%v: %d", f, status)
		}
	}
	if status, _ := r.get("/batches?name=b1&do=cancel"); status != 200 || r.record("a").State != job.Queued {
		t.Error("a preview changed something")
	}
	if status, _ := r.send("POST", "/batches", url.Values{"name": {"b1"}, "do": {"pause"}, "who": {"Ada"}, "why": {"x"}}, map[string]string{"Sec-Fetch-Site": "cross-site"}); status != 403 || r.record("a").State != job.Queued {
		t.Errorf("a form of another site: %d", status)
	}
}

// The page of a long act says how many jobs it has done so far.
func TestAnActUponABatchSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	a := &batchAct{Past: "paused", over: make(chan struct{})}
	a.far.Add(200)
	if now := a.Now(); now.Over || now.Jobs != 200 {
		t.Errorf("under way: %+v", now)
	}
	a.ended = context.DeadlineExceeded
	close(a.over)
	if now := a.Now(); !now.Over || now.Error == "" {
		t.Errorf("over: %+v", now)
	}
	await(t.Context(), a.over, time.Hour)
}

// The page of a batch that waits for its first jobs says so. Its button Resume does the same as "batch resume".
func TestABatchThatWaitsForItsFirstJobsIsResumed(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	if holds, err := dispatch.Books(r.db.Client, r.g).SendAhead(t.Context(), "b1", 1); err != nil || !holds {
		t.Fatal(holds, err)
	}
	r.batchOf("b1", "a")
	r.batchOf("b1", "b")
	_, page := r.get("/batches/b1")
	wants(t, page, "0 of the first 1 jobs are done; the rest waits", "Resume…")
	_, after := r.act("b1", "resume")
	wants(t, after, "<b>1 job resumed</b> (EUR 10.50)")
	lacks(t, after, "the rest waits", "Resume…")
	if rec := r.record("b"); rec.Reason != job.Rejected {
		t.Errorf("b is %s, %s", rec.State, rec.Reason)
	}
}

func TestABatchThatStoppedItselfSaysSo(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	if holds, err := dispatch.Books(r.db.Client, r.g).SendAhead(t.Context(), "2026-11", 1); err != nil || !holds {
		t.Fatal(holds, err)
	}
	r.put(2, `{"amount":1200,"currency":"EUR"}`)
	r.parkOne("j0000", job.Refused, "HTTP 402")
	_, page := r.get("/batches/2026-11")
	wants(t, page, "The batch stopped itself at "+r.g.Name, "is parked as refused: HTTP", "Resume…")
	lacks(t, page, "Paused at", "the rest waits until")
}
