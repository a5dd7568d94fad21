package main

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/console"
	"spillway/internal/desk"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
)

// page returns a page of the console or a document of the API.
func (r *rig) page(path string) string {
	r.t.Helper()
	guard := httpapi.NewGuard("")
	s := served{file: newInForce(r.cfg), db: &redisdb.DB{Client: r.c}, log: slog.New(slog.DiscardHandler)}
	api := s.api(httpapi.Config{Guard: guard, Console: console.New(console.Config{Redis: r.c, Gateways: r.cfg.Gateways, Guard: guard, Log: s.log})}, s.examiner())
	answer := httptest.NewRecorder()
	api.ServeHTTP(answer, httptest.NewRequest("GET", "http://127.0.0.1"+path, nil))
	if answer.Code != 200 {
		r.t.Fatalf("%s: %d %s", path, answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// commandOn returns what a command writes on a terminal of this width.
func (r *rig) commandOn(width int, args ...string) string {
	r.t.Helper()
	return r.commandWith(cli.Streams{In: strings.NewReader(""), OutTerminal: true, OutWidth: width}, args...).out
}

// The list, the console, the API and "batch NAME" show the same numbers for the same jobs, in three currencies and in all kinds of states.
func TestABatchHasTheSameNumbersEverywhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.served()
	want := map[string]int64{}
	for i, c := range []string{"EUR", "JPY", "KWD", "EUR", "JPY", "KWD"} {
		j := job.Job{ID: "d" + string(rune('0'+i)), Payload: []byte(`{"amount":"1234567890123` + string(rune('0'+i)) + `","currency":"` + c + `"}`), Batch: "b1"}
		r.accept(r.manual(r.one), job.Enqueued, j)
		want[c] += 12345678901230 + int64(i)
		if i < 3 {
			r.succeed(r.one, "pi")
		} else {
			r.call(r.one, j.ID, []job.Reason{job.Refused, job.UnknownOutcome, job.Exhausted}[i-3], 402, "no")
		}
	}
	r.accept(r.manual(r.one), job.Enqueued, charge("q", "7", "b1"), charge("none", `"?"`, "b1"))
	r.accept(r.gateway(r.two), job.Enqueued, charge("e", "5", "b1"))
	r.accept(r.manual(r.one), job.Enqueued, charge("other", "5", "b2"))
	want["EUR"] += 7

	var alone, fromAPI desk.Batch
	var page remote.BatchPage
	r.must(json.Unmarshal([]byte(r.untidied("batch", "b1", "-o", "json")), &alone))
	r.must(json.Unmarshal([]byte(r.page("/v1/batches/b1")), &fromAPI))
	r.must(json.Unmarshal([]byte(r.page("/v1/batches")), &page))
	rows := r.listed()
	row := rows[1]
	for currency, sum := range want {
		if alone.Amount[currency].Int64() != sum {
			t.Errorf("%s: %s, want %d", currency, alone.Amount[currency], sum)
		}
	}
	if alone.Jobs != 9 || alone.NoAmount != 1 || row.Done.Jobs != 3 || row.Waiting.Jobs != 3 || row.NeedsPerson.Jobs != 3 {
		t.Errorf("%+v, %+v", alone, row)
	}
	if !row.Totals.Equal(alone.Totals) || !reflect.DeepEqual(row.States, alone.States) || !fromAPI.Totals.Equal(alone.Totals) || !reflect.DeepEqual(fromAPI.States, alone.States) {
		t.Errorf("batch NAME has %v %v,\nthe list %v %v,\nthe API %v %v", alone.Totals, alone.States, row.Totals, row.States, fromAPI.Totals, fromAPI.States)
	}
	for i := range rows { // the moment of the ETA differs
		rows[i].ETASeconds, page.Batches[i].ETASeconds = nil, nil
	}
	if !reflect.DeepEqual(rows, page.Batches) {
		t.Errorf("the list has %+v,\nthe API %+v", rows, page.Batches)
	}
	text := r.commandOn(120, "batch", "b1")
	for _, path := range []string{"/batches", "/batches/b1"} {
		html := r.page(path)
		for _, money := range alone.Amount.Sorted() {
			if !strings.Contains(html, "of "+money.String()) || !strings.Contains(html, "<b>"+job.Money{Minor: row.Done.Amount.Of(money.Currency), Currency: money.Currency}.String()) {
				t.Errorf("%s lacks %s", path, money)
			}
			if !strings.Contains(text, money.String()) {
				t.Errorf("on a terminal there is no %s:\n%s", money, text)
			}
		}
		if !strings.Contains(html, "3 of 9 jobs done, 3 waiting, 3 for a person to decide") || !strings.Contains(html, "1 job without an amount") {
			t.Errorf("%s lacks the counts", path)
		}
	}
}
