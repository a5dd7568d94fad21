package console

import (
	"net/url"
	"testing"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// pend calls a job and loses the answer. The job becomes pending: the gateway is asked about it.
func (r *rig) pend() {
	r.t.Helper()
	r.put(1, `{"amount":700,"currency":"EUR"}`)
	id, generation, _ := job.ParseTaskID(testkit.Pop(r.t, r.db.Client, redisdb.NewKeys(r.g.Name).Lines()))
	a, _, err := dispatch.Books(r.db.Client, r.g).Open(r.t.Context(), id, generation, "w1", time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	e := job.Ending{Called: true, Spent: true, Verdict: job.VerdictUnknown, Error: "timed out", At: time.UnixMicro(1), Unsure: true, Took: time.Second}
	if asked, err := dispatch.Store(r.db.Client, r.g).ParkOrAsk(r.t.Context(), a, e, job.UnknownOutcome); err != nil || !asked {
		r.t.Fatalf("asked about: %v, %v", asked, err)
	}
}

// Each page says that the gateway is asked about a pending job. No page says that the job needs a person.
func TestPagesSayWhatIsPending(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{lookup: true})
	r.pend()
	_, page := r.get("/")
	wants(t, page, `data-label="Pending" class="n">1<`)
	lacks(t, page, "nobody knows whether these payments were made")
	_, page = r.get("/gateways/" + r.g.Name)
	wants(t, page, "<dt>Pending</dt><dd>1</dd>", "The gateway is asked what became of 1 job, next")
	_, page = r.get("/batches/2026-11")
	wants(t, page, "the gateway is asked what became of 1 job, next at", ">pending<")
	_, page = r.get(jobLink(r.g.Name, "j0000"))
	wants(t, page, `class="status pending">pending<`, "The gateway is asked what became of its call: the next look-up is due at", "It settles itself as soon as the gateway can tell.",
		"<dt>next look-up</dt>", "Stop asking, and park…")
	lacks(t, page, "do=discard", "do=ask")
	preview, after := r.act("2026-11", "cancel")
	wants(t, preview, "and 1 job pending, left to the gateway")
	wants(t, after, "<p>Left pending: 1 job (EUR 7.00) of the batch may have been charged, and the gateway is asked.</p>")
}

// On the page of a job, a person can stop its look-ups, with a name and a reason. Then the job can be resolved there, or asked about again.
func TestThePageOfAPendingJobStopsTheAsking(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{lookup: true})
	r.pend()
	path := "/gateways/" + r.g.Name + "/park"
	_, page := r.get(path + "?id=j0000")
	wants(t, page, "The gateway is not asked about this job any more.", "and may have been charged", "EUR 7.00")
	if status, _ := r.post(path, url.Values{"id": {"j0000"}, "who": {"Ada L."}}); status != 400 || r.record("j0000").State != job.Pending {
		t.Errorf("without a reason: status %d, and the job is %s", status, r.record("j0000").State)
	}
	status, page := r.post(path, url.Values{"id": {"j0000"}, "who": {"Ada L."}, "why": {"seen there"}})
	if rec := r.record("j0000"); status != 200 || rec.State != job.Parked || rec.Reason != job.UnknownOutcome {
		t.Errorf("status %d, and the job is %s %s", status, rec.State, rec.Reason)
	}
	wants(t, page, "do=done", "do=ask", "Or have the gateway asked.")
	if a := r.lastAct(); a.Who != "Ada L. (console)" || a.What != "park" || a.Why != "seen there" || a.Jobs != 1 || a.Ended == nil {
		t.Errorf("the trail says %+v", a)
	}
	if status, _ := r.post(path, url.Values{"id": {"j0000"}, "who": {"Ada L."}, "why": {"again"}}); status != 404 {
		t.Errorf("a job that is parked already: status %d", status)
	}
}

// The pages offer to ask about a job in doubt only if its gateway has a look-up.
func TestThePagesOfferToAskWhereTheGatewayCanBeAsked(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{lookup: true})
	r.park(1, `{"amount":700,"currency":"EUR"}`, job.UnknownOutcome, "timed out")
	_, page := r.get(jobLink(r.g.Name, "j0000"))
	wants(t, page, "do=ask")
	path := "/gateways/" + r.g.Name + "/clear"
	_, page = r.get(path + "?do=ask&id=j0000")
	wants(t, page, "Ask the gateway: 1 job (EUR 7.00)")
	status, page := r.post(path, url.Values{"do": {"ask"}, "id": {"j0000"}, "who": {"Ada L."}, "until": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}})
	wants(t, page, "1 job asked about")
	if state := r.record("j0000").State; status != 200 || state != job.Pending {
		t.Errorf("status %d, and the job is %s", status, state)
	}
	if a := r.lastAct(); a.What != "resolve --ask" || a.Jobs != 1 {
		t.Errorf("the trail says %+v", a)
	}
	r = setup(t, setting{})
	r.park(1, `{}`, job.UnknownOutcome, "timed out")
	_, page = r.get(jobLink(r.g.Name, "j0000"))
	lacks(t, page, "do=ask", "have the gateway asked")
	if status, _ := r.get("/gateways/" + r.g.Name + "/clear?do=ask"); status != 400 {
		t.Errorf("a preview of what can't be done: status %d", status)
	}
}
