package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"spillway/internal/job"
)

func accountHeader() map[string][]HeaderPart {
	return map[string][]HeaderPart{"stripe-account": {{Place: "payload.to.account"}}, "X-Auth": {{Text: "Key "}, {Secret: canary}, {Text: ":"}, {Place: "id"}}}
}

func TestHeadersFromTheJob(t *testing.T) {
	t.Parallel()
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	t.Cleanup(srv.Close)
	c := client(t, Config{URL: srv.URL, JobHeaders: accountHeader(), Headers: map[string]string{"X-Same": "{id}"}})
	for payload, want := range map[string]string{
		`{"to":{"account":"acct_1"}}`:            "acct_1",
		`{"to":{"account":10.50}}`:               "10.50",
		`{"to":{"account":true}}`:                "true",
		`{"to":{"account":"a b;c=\"d\", {id}"}}`: `a b;c="d", {id}`,
	} {
		res := c.Send(context.Background(), job.Request{Job: job.Job{ID: "j-1", Payload: json.RawMessage(payload)}})
		if res.Status != http.StatusOK || len(got["Stripe-Account"]) != 1 || got.Get("Stripe-Account") != want || got.Get("X-Auth") != "Key "+canary+":j-1" || got.Get("X-Same") != "{id}" {
			t.Errorf("%s: %+v %v", payload, res, got)
		}
	}
}

// What can't be a header's value is the job's fault, and nobody is called.
func TestAJobWithoutItsHeaderIsNotCalled(t *testing.T) {
	t.Parallel()
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	t.Cleanup(srv.Close)
	c := client(t, Config{URL: srv.URL, JobHeaders: accountHeader()})
	const missing, bad = "the payload has no text, number or boolean there", "can't travel in a header"
	for account, want := range map[string]string{
		`null`: missing, `{}`: missing, `["a"]`: missing,
		`""`: bad, `" "`: bad, `"a "`: bad, `"` + canary + `\r\nX-Evil: 1"`: bad, `"a\tb"`: bad, `"a\u0000"`: bad, `"Müller"`: bad, `"a\u007f"`: bad,
		`"` + strings.Repeat("a", maxInHeader+1) + `"`: bad,
	} {
		res := c.Send(context.Background(), job.Request{Job: job.Job{ID: "j-1", Payload: json.RawMessage(`{"to":{"account":` + account + `}}`)}})
		if res.Stage != job.NotSent || job.CodeOf(res.Err) != job.CodeInvalid || !strings.Contains(res.Err.Error(), "header Stripe-Account needs {payload.to.account}") ||
			!strings.Contains(res.Err.Error(), want) || strings.Contains(res.Err.Error(), canary) {
			t.Errorf("%.40s: %+v", account, res)
		}
	}
	if res := c.Send(context.Background(), job.Request{Job: job.Job{ID: "j-1"}}); job.CodeOf(res.Err) != job.CodeInvalid || calls > 0 {
		t.Errorf("without a payload: %+v, %d calls", res, calls)
	}
}

func TestHeadersWithPlacesThatCantBe(t *testing.T) {
	t.Parallel()
	place := []HeaderPart{{Place: "id"}}
	for want, headers := range map[string]map[string][]HeaderPart{
		"X-A: {ids} is unknown":       {"X-A": {{Place: "ids"}}},
		"the value of X-A holds":      {"X-A": {{Secret: canary + "\n"}, {Place: "id"}}},
		"is not a header's name":      {"X A": place},
		"is set by the call itself":   {"content-length": place},
		"carries the idempotency key": {"k": place},
		"Host is the same for all":    {"Host": place},
	} {
		_, err := New(Config{URL: "https://x.example", Key: job.KeyShape{Name: "K"}, JobHeaders: headers})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
