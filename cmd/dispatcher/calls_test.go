package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

func TestCallsCountsWhatCallsCameTo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	testkit.AmidHour(t, r.c)
	r.accept(r.gateway(r.one), job.Enqueued, charge("a", "1", "nov"), charge("b", "2", "nov"))
	r.succeed(r.one, "")
	r.succeed(r.one, "")
	r.park(r.one, charge("c", "3", "nov"), job.Refused, 402, "no")
	r.park(r.two, charge("d", "3", "nov"), job.UnknownOutcome, 0, "time-out")
	got := r.command("calls", "--by", "gateway")
	r.expect(got, 0, "one\t3\t2\t201 done 2, 402 refused 1\ntwo\t1\t0\tno answer, unknown 1\n", "since TIME: calls 4, done 2\n")
	const none = "TIME\t0\t0\t\n"
	got = r.command("calls", "-g", r.two, "--since", "1h")
	if got.out = strings.ReplaceAll(got.out, none, ""); got.out != "TIME\t1\t0\tno answer, unknown 1\n" || got.err != "since TIME: calls 1, done 0\n" {
		t.Errorf("%+v", got)
	}
	got = r.command("calls")
	if hours := strings.Count(got.out, "\n"); hours != 25 || strings.ReplaceAll(got.out, none, "") != "TIME\t4\t2\t201 done 2, no answer, unknown 1, 402 refused 1\n" {
		t.Errorf("%+v", got)
	}
	var h desk.CallHistory
	r.must(json.Unmarshal([]byte(r.untidied("calls", "-o", "json", "-g", r.one)), &h))
	if h.All.Calls != 3 || len(h.Rows) != 25 {
		t.Errorf("%+v", h)
	}
	for _, wrong := range [][]string{{"--by", "day"}, {"--since", ""}, {"--since", "x"}} {
		if got := r.command(append([]string{"calls"}, wrong...)...); got.code != 2 {
			t.Errorf("%v: %+v", wrong, got)
		}
	}
}

func TestAnswersCountsWhatGatewaysSaid(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.expect(r.command("answers"), 0, "", "no job that is parked or waits out a back-off was called\n")
	for i := range 3 {
		r.park(r.one, charge(fmt.Sprint("c", i), "3", "nov"), job.Refused, 402, fmt.Sprintf("HTTP 402: card_declined ch_%d123", i))
	}
	r.park(r.two, charge("d", "3", "dec"), job.UnknownOutcome, 0, "time-out")
	r.expect(r.command("answers"), 0, "3\tone\tHTTP 402\trefused\tTIME\tc2\tHTTP 402: card_declined …\n1\ttwo\tnone\tunknown\tTIME\td\ttime-out\n", "")
	r.expect(r.command("answers", "--batch", "dec", "--since", "1970-01-01T00:00:00Z"), 0, "1\ttwo\tnone\tunknown\tTIME\td\ttime-out\n", "")
	var a desk.Answers
	r.must(json.Unmarshal([]byte(r.untidied("answers", "-o", "json", "-g", r.one)), &a))
	if a.Gateway != r.one || a.Looked != 3 || len(a.List) != 1 {
		t.Errorf("%+v", a)
	}
	for _, wrong := range [][]string{{"--batch", ""}, {"--since", "x"}} {
		if got := r.command(append([]string{"answers"}, wrong...)...); got.code != 2 {
			t.Errorf("%v: %+v", wrong, got)
		}
	}
}

// Thousands of jobs of a wrong file are paused and were never called. The answers to its first calls are still all shown.
func TestAnswersMissNothingAmongJobsThatWereNeverCalled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(r.one, charge("c", "3", "nov"), job.Refused, 402, "HTTP 402: card_declined")
	wait := make([]job.Job, 2100)
	for i := range wait {
		wait[i] = charge(fmt.Sprint("w", i), "3", "nov")
	}
	r.accept(r.manual(r.one), job.Enqueued, wait...)
	if got := r.command("batch", "pause", "nov", "--why", "wrong", "--yes", "-g", r.one, "-q"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	r.expect(r.command("answers"), 0, "1\tone\tHTTP 402\trefused\tTIME\tc\tHTTP 402: card_declined\n", "")
}

func TestAPICountsCallsAndAnswers(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, testkit.Redis(t), "replay: manual")
	hour := time.Now().Unix() / 3600
	if err := a.c.HSet(t.Context(), redisdb.NewKeys(a.gateway).Hours(), fmt.Sprint(hour, " 200 done"), 7).Err(); err != nil {
		t.Fatal(err)
	}
	var h desk.CallHistory
	a.read("/v1/calls?by=gateway&since=24h&gateway="+a.gateway, &h)
	if len(h.Rows) != 1 || h.Rows[0].Gateway != a.gateway || h.All.Calls != 7 {
		t.Errorf("%+v", h)
	}
	a.read("/v1/calls", &h)
	if len(h.Rows) != 25 {
		t.Errorf("%+v", h)
	}
	var of desk.Answers
	a.read("/v1/gateways/"+a.gateway+"/answers?since=1h&batch=nov", &of)
	if of.Gateway != a.gateway || len(of.List) != 0 || of.More {
		t.Errorf("%+v", of)
	}
	for path, want := range map[string]string{"/v1/calls?by=day": "invalid_request", "/v1/calls?since=x": "invalid_request", "/v1/calls?gateway=none": "unknown_gateway",
		"/v1/gateways/none/answers": "unknown_gateway", "/v1/gateways/" + a.gateway + "/answers?since=x": "invalid_request"} {
		if got := a.ask(http.MethodGet, path, "", nil); a.told(got.body).Code != want {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
}
