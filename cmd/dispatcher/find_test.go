package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"spillway/internal/desk"
	"spillway/internal/job"
)

func TestFindListsJobsByIdAndPayload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.accept(r.gateway(r.one), job.Enqueued, charge("inv-1", "1050", "nov"), charge("inv-2", "20", "nov"), charge("ref-1", "1050", ""))
	r.park(r.two, charge("inv-3", "5", "dec"), job.Refused, 402, "no")
	r.expect(r.command("find", "inv-"), 0, "inv-1\tone\tqueued\tEUR 1050\tnov\t\tTIME\ninv-2\tone\tqueued\tEUR 20\tnov\t\tTIME\ninv-3\ttwo\tparked refused\t\tdec\t\tTIME\n", "")
	r.expect(r.command("find", "--field", "payload.amount=1050", "--field", "payload.currency=eur"), 0, "inv-1\tone\tqueued\tEUR 1050\tnov\t\tTIME\nref-1\tone\tqueued\tEUR 1050\t\t\tTIME\n", "")
	const none = "no such job\n"
	r.expect(r.command("find", "inv-", "--field", "payload.amount=1050", "-g", r.two), 0, "", none)
	r.expect(r.command("find", "inv-", "--limit", "1"), 0, "inv-1\tone\tqueued\tEUR 1050\tnov\t\tTIME\n", "there may be more: find stopped at --limit 1\n")
	var h desk.JobHit
	r.must(json.Unmarshal([]byte(r.untidied("find", "inv-3", "-o", "json")), &h))
	if h.ID != "inv-3" || h.Reason != job.Refused || h.Gateway != r.two {
		t.Errorf("%+v", h)
	}
	r.succeed(r.one, "ch_1")
	r.succeed(r.one, "ch_12")
	r.expect(r.command("find", "--reference", "ch_1"), 0, "inv-1\tone\tdone\tEUR 1050\tnov\tch_1\tTIME\n", "")
	r.expect(r.command("find", "inv-2", "--reference", "ch_12", "-g", r.one), 0, "inv-2\tone\tdone\tEUR 20\tnov\tch_12\tTIME\n", "")
	for _, other := range [][]string{{"--reference", "ch_"}, {"inv-2", "--reference", "ch_1"}, {"--reference", "ch_1", "--field", "payload.amount=1050"}} {
		r.expect(r.command(append([]string{"find"}, other...)...), 0, "", none)
	}
	for _, wrong := range [][]string{{}, {"--field", "amount=1"}, {"--field", "payload.amount"}, {"inv", "--limit", "0"}, {"a", "b"}} {
		if got := r.command(append([]string{"find"}, wrong...)...); got.code != 2 {
			t.Errorf("%v: %+v", wrong, got)
		}
	}
}

// A search is a POST. The log contains neither what was searched for nor payloads.
func TestAPISearchesJobs(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", "amount: {field: amount, currency: currency}\n    replay: manual")
	for _, body := range []string{`{"id":"inv-1","payload":{"amount":1050,"currency":"EUR","customer":"CANARY"}}`, `{"id":"inv-2","payload":{"amount":20,"currency":"EUR"}}`} {
		if got := a.post(body, ""); got.code != 202 {
			t.Fatal(got)
		}
	}
	const typed = "application/json"
	search := func(body string) (hits desk.JobHits) {
		t.Helper()
		got := a.ask(http.MethodPost, "/v1/search", typed, strings.NewReader(body))
		if err := json.Unmarshal([]byte(got.body), &hits); err != nil || got.code != 200 || hits.Next != nil {
			t.Fatalf("%s: %d %s", body, got.code, got.body)
		}
		return hits
	}
	if hits := search(`{"id":"inv-"}`); len(hits.Jobs) != 2 || hits.Jobs[0].ID != "inv-1" || hits.Jobs[0].Amount.Int64() != 1050 {
		t.Errorf("%+v", hits)
	}
	if hits := search(`{"fields":{"payload.customer":"CANARY"},"gateways":["` + a.gateway + `"]}`); len(hits.Jobs) != 1 || hits.Jobs[0].ID != "inv-1" {
		t.Errorf("%+v", hits)
	}
	if hits := search(`{"fields":{"payload.customer":"CANARY","payload.amount":"20"},"limit":1000}`); len(hits.Jobs) != 0 {
		t.Errorf("%+v", hits)
	}
	for body, want := range map[string]string{`{}`: "invalid_request", `{"id":"x","fields":{"customer":"x"}}`: "invalid_request", `{"id":"x","limit":1001}`: "invalid_request", `{"id":"x","after":"y"}`: "invalid_request",
		`{"id":"x","gateways":["none"]}`: "unknown_gateway", `{"id":1}`: "invalid_request", `{"what":1}`: "invalid_request", `{"id":"x"}{}`: "invalid_request", "": "invalid_request"} {
		if got := a.ask(http.MethodPost, "/v1/search", typed, strings.NewReader(body)); a.told(got.body).Code != want {
			t.Errorf("%s: %d %s", body, got.code, got.body)
		}
	}
	if got := a.ask(http.MethodPost, "/v1/search", "text/plain", strings.NewReader(`{"id":"x"}`)); a.told(got.body).Code != "unknown_media_type" {
		t.Errorf("%+v", got)
	}
	if got := a.ask(http.MethodGet, "/v1/search", "", nil); a.told(got.body).Code != "method_not_allowed" {
		t.Errorf("%+v", got)
	}
	if strings.Contains(a.log.String(), "CANARY") || strings.Contains(a.all.String(), "CANARY") {
		t.Error("a payload is in the log or in an answer")
	}
}
