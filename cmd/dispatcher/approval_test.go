package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/remote"
	"spillway/internal/roles"
)

// newApprovals is a house in which batches above EUR 10.00 need an approval, at both gateways.
func newApprovals(t *testing.T) *house {
	t.Helper()
	return houseWith(t, func(r *rig, text string) string {
		text = strings.ReplaceAll(text, "    leak:", "    approval: {batch_over: \"EUR 10.00\", payee: to}\n    leak:")
		return strings.Replace(text, "  "+r.two+":\n", "  "+r.two+":\n    amount: {field: amount, currency: currency}\n", 1)
	})
}

// houseWith is a house with another configuration.
func houseWith(t *testing.T, change func(r *rig, text string) string) *house {
	t.Helper()
	r := newRig(t)
	text, err := os.ReadFile(r.file)
	r.must(err)
	r.file = filepath.Join(t.TempDir(), "house.yaml")
	r.must(os.WriteFile(r.file, []byte(change(r, string(text))), 0o600))
	r.cfg, err = config.Load(r.file, config.Options{})
	r.must(err)
	return houseOf(t, r)
}

// bring posts a job of a batch.
func (h *house) bring(token, gateway, id, batch, cents string) {
	h.t.Helper()
	body := `{"id":"` + id + `","batch":"` + batch + `","payload":{"amount":` + cents + `,"currency":"EUR","to":"DE` + id[:1] + `"}}`
	if got := h.program(token, http.MethodPost, "/v1/gateways/"+gateway+"/jobs", body); got.code != http.StatusAccepted {
		h.t.Fatalf("posting %s: %d %s", id, got.code, got.body)
	}
}

// approval asks for an approval.
func (h *house) approval(token, batch, more string) (d remote.BatchApproved, got answer) {
	h.t.Helper()
	got = h.program(token, http.MethodPost, "/v1/batches/"+batch+"/approve", `{"by":"somebody","why":"looked at it"`+more+`}`)
	if got.code == http.StatusOK {
		h.must(json.Unmarshal([]byte(got.body), &d))
	}
	return d, got
}

func (h *house) parked(gateway, batch string, r job.Reason) (n int64) {
	h.t.Helper()
	g, _ := h.cfg.Gateway(gateway)
	b, _, err := dispatch.Books(h.c, g).Batch(context.Background(), batch)
	h.must(err)
	for p, s := range b.Places {
		if p.State == job.Parked && p.Reason == r {
			n += s.Jobs
		}
	}
	return n
}

// One token submits a batch, and another one approves it: the table says who may approve what. No dispatcher runs, so a1, which was queued before the
// batch reached the sum, is still in the queue of gateway one.
func TestWhoMayApproveABatch(t *testing.T) {
	t.Parallel()
	h := newApprovals(t)
	h.bring(tokenOf(roles.Admin), h.one, "a1", "p", "900")
	h.bring(tokenOf(roles.Producer), h.one, "b1", "p", "200")
	h.bring(tokenOf(roles.Producer), h.two, "c1", "p", "2000")
	h.bring(tokenOf(roles.Producer), h.one, "d1", "q", "2000")
	approver := tokenOf(roles.Approver)
	seen, got := h.approval(approver, "p", `,"dry_run":true`)
	if got.code != http.StatusOK || len(seen.Gateways) != 2 || seen.Token == "" || seen.Done {
		t.Fatalf("shown: %d %s", got.code, got.body)
	}
	if a := seen.Gateways[0]; a.Jobs != 2 || a.Waiting.Jobs != 2 || a.Amount.Of("EUR").Int64() != 1100 || a.Largest[0].ID != "a1" || len(a.Brought) != 2 || a.Brought[0].Via != "token" {
		t.Errorf("shown: %+v", a)
	}
	other, _ := h.approval(approver, "q", `,"dry_run":true`)
	one, _ := h.approval(approver, "p", `,"dry_run":true,"gateways":["`+h.one+`"]`)
	token := func(d remote.BatchApproved) string { return `,"token":"` + d.Token + `"` }
	for _, c := range []struct {
		what, token, more string
		code              int
		says              string
	}{
		{"who brought some of it in", tokenOf(roles.Admin), token(seen), 409, "admin-1 submitted jobs of batch"},
		{"the producer", tokenOf(roles.Producer), token(seen), 403, "forbidden"},
		{"an operator", tokenOf(roles.Operator), token(seen), 403, "forbidden"},
		{"a viewer", tokenOf(roles.Viewer), token(seen), 403, "forbidden"},
		{"no token that there is", "canary-none", token(seen), 401, "no_token"},
		{"an approver whose token has ended", endedToken, token(seen), 401, "no_token"},
		{"another token of the producer", namesake, token(seen), 409, "producer-1 submitted jobs of batch"},
		{"without having looked", approver, "", 400, "dry_run"},
		{"with the token of another batch", approver, token(other), 400, "not one of what was shown"},
		{"with that of one gateway for both", approver, token(one), 409, "no longer as it was shown"},
		{"with that of one gateway for the other", approver, token(one) + `,"gateways":["` + h.two + `"]`, 409, "no longer as it was shown"},
		{"who sees one gateway alone", scopedTo(roles.Approver), token(seen) + `,"gateways":["` + h.two + `"]`, 404, "unknown_gateway"},
	} {
		if _, got := h.approval(c.token, "p", c.more); got.code != c.code || !strings.Contains(got.body, c.says) {
			t.Errorf("%s: %d %s", c.what, got.code, got.body)
		}
		if h.parked(h.one, "p", job.AwaitsApproval) != 1 || h.parked(h.two, "p", job.AwaitsApproval) != 1 {
			t.Fatalf("%s: something went", c.what)
		}
	}
	h.bring(tokenOf(roles.Producer), h.one, "e1", "p", "1")
	if _, got := h.approval(approver, "p", token(seen)); got.code != 409 || !strings.Contains(got.body, "no longer as it was shown") {
		t.Errorf("changed since: %d %s", got.code, got.body)
	}
	seen, _ = h.approval(approver, "p", `,"dry_run":true`)
	if d, got := h.approval(approver, "p", token(seen)); got.code != http.StatusOK || !d.Done || d.Gateways[0].Released.Jobs+d.Gateways[1].Released.Jobs != 3 {
		t.Errorf("approved: %d %s", got.code, got.body)
	}
	if h.parked(h.one, "p", job.Rejected) != 2 || h.parked(h.two, "p", job.Rejected) != 1 {
		t.Error("what was approved does not wait for room")
	}
	if _, got := h.approval(approver, "p", token(seen)); got.code != 409 || !strings.Contains(got.body, "awaits no approval") {
		t.Errorf("approved twice: %d %s", got.code, got.body)
	}
	if trail := h.trail(h.one); !strings.Contains(trail, `"who":"approver-1"`) || !strings.Contains(trail, `"via":"token","what":"batch approve"`) ||
		!strings.Contains(trail, `"asked_by":"1 job of admin-1 (token), 2 jobs of producer-1 (token)"`) {
		t.Errorf("the trail says %s", trail)
	}
}

// The command line can approve only with --server. It shows what it approves.
func TestBatchApproveOnTheCommandLine(t *testing.T) {
	h := newApprovals(t)
	h.bring(tokenOf(roles.Producer), h.one, "a1", "first", "1500")
	h.bring(tokenOf(roles.Producer), h.one, "b1", "first", "500")
	if got := h.command("batch", "approve", "first", "--why", "x", "--yes"); got.code != 2 || !strings.Contains(got.err, "you are not identified") {
		t.Errorf("with Redis's password: %+v", got)
	}
	if got := h.afar(tokenOf(roles.Approver), "batch", "approve", "first", "--why", "x", "--dry-run"); got.code != 0 || h.parked(h.one, "first", job.AwaitsApproval) != 2 {
		t.Errorf("only shown: %+v", got)
	}
	if got := h.afar(tokenOf(roles.Approver), "batch", "approve", "first", "--why", "x", "--yes"); got.code != 0 || h.parked(h.one, "first", job.Rejected) != 2 {
		t.Errorf("approved: %+v", got)
	}
	h.bring(tokenOf(roles.Producer), h.one, "a2", "second", "1500")
	h.bring(tokenOf(roles.Producer), h.one, "c2", "second", "500")
	if got := h.afar(tokenOf(roles.Approver), "batch", "approve", "second", "--why", "x", "--yes", "--gateway", h.one); got.code != 0 ||
		!strings.Contains(got.err, "job a2 is EUR 15.00") || !strings.Contains(got.err, "50 % of its payees and amounts were in first") || !strings.Contains(got.err, "2 jobs of producer-1 (token)") {
		t.Errorf("a second one: %+v", got)
	}
	h.bring(tokenOf(roles.Producer), h.one, "a3", "third", "1500")
	if got := h.afar(tokenOf(roles.Approver), "batch", "reject", "third", "--why", "x", "--yes"); got.code != 0 || h.parked(h.one, "third", job.Cancelled) != 1 {
		t.Errorf("rejected: %+v", got)
	}
	if got := h.afar(tokenOf(roles.Approver), "batch", "reject", "first", "--why", "x", "--yes"); h.parked(h.one, "first", job.Rejected) != 2 {
		t.Errorf("an approver cancels a batch that awaits nothing: %+v", got)
	}
}

// The console shows a batch to an approver, and approves only what it has shown.
func TestABatchIsApprovedAtTheConsole(t *testing.T) {
	t.Parallel()
	h := newApprovals(t)
	h.bring(tokenOf(roles.Producer), h.one, "a1", "p", "2000")
	b := h.browser(tokenOf(roles.Approver))
	page := h.ask(b, "", http.MethodGet, "/approvals?name=p", "", "")
	if page.code != http.StatusOK || !strings.Contains(page.body, "EUR 20.00") || !strings.Contains(page.body, "producer-1") {
		t.Fatalf("the page: %d %s", page.code, page.body)
	}
	_, token, _ := strings.Cut(page.body, `name="token" value="`)
	token, _, _ = strings.Cut(token, `"`)
	form := url.Values{"name": {"p"}, "do": {"approve"}, "token": {token}, "why": {"fine"}, "who": {"me"}}
	h.bring(tokenOf(roles.Producer), h.one, "b1", "p", "2000")
	if got := h.form(b, "/approvals", form); got.code == http.StatusSeeOther || h.parked(h.one, "p", job.AwaitsApproval) != 2 {
		t.Errorf("changed since: %d", got.code)
	}
	page = h.ask(b, "", http.MethodGet, "/approvals?name=p", "", "")
	_, token, _ = strings.Cut(page.body, `name="token" value="`)
	token, _, _ = strings.Cut(token, `"`)
	form.Set("token", token)
	if got := h.form(b, "/approvals", form); got.code != http.StatusSeeOther || h.parked(h.one, "p", job.Rejected) != 2 {
		t.Errorf("approved: %d %s", got.code, got.body)
	}
}
