package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/client"
)

func TestWhatBecomesOfAJobIsToldByJob(t *testing.T) {
	t.Parallel()
	c := at(t, server)
	given := jobs("adyen", "each", 3)
	given[1].Payload = json.RawMessage(`{"amount": 1, "currency": "EUR", "note": "a < b & c"}`)
	given = append(given, given[1], client.Job{Gateway: "adyen", ID: "with space"}, client.Job{ID: "nowhere"}, client.Job{Gateway: "nobody", ID: "x"}, given[0],
		client.Job{Gateway: "adyen", ID: "odd", Payload: func() {}})
	given[7].Payload = json.RawMessage(`{"amount":5}`)
	got, err := c.Enqueue(t.Context(), given...)
	if !errors.Is(err, client.InvalidJob) || !strings.HasPrefix(err.Error(), "5 of 9 jobs are not in; the first of them: ") || len(got) != 9 {
		t.Fatalf("%d results, %v", len(got), err)
	}
	codes := []client.Code{"", "", "", "", client.InvalidJob, client.InvalidJob, client.UnknownGateway, client.OtherPayload, client.InvalidJob}
	results := []client.Admittance{client.Enqueued, client.Enqueued, client.Enqueued, client.Duplicate, "", "", "", "", ""}
	for i, r := range got {
		e, _ := errors.AsType[*client.Error](r.Err)
		if r.ID != given[i].ID || r.Gateway != given[i].Gateway || r.Result != results[i] || r.In() != (codes[i] == "") || e != nil && (e.Code != codes[i] || e.JobID != r.ID || e.Detail == "") || (e == nil) != (codes[i] == "") {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if v := settled(t, c, "adyen", given[1].ID, client.Done); v.Amount["EUR"].Int64() != 1 || v.Attempts != 1 || v.Calls[0].Status != 200 {
		t.Errorf("%+v", v)
	}
	again, err := c.Enqueue(t.Context(), given[:3]...)
	if err != nil || again[0].Result != client.Duplicate || again[2].Result != client.Duplicate || again[0].Resent {
		t.Errorf("%+v %v", again, err)
	}
}

// A job without room waits at the dispatcher, or with WaitForRoom in the client.
func TestAJobWithoutRoomWaits(t *testing.T) {
	t.Parallel()
	got, err := at(t, server).Enqueue(t.Context(), jobs("tight", "full", 4)...)
	if err != nil || got[1].Result != client.Enqueued || got[1].State != client.Queued || got[3].Result != client.ParkedNow || got[3].State != client.Parked || got[3].Reason != client.Rejected {
		t.Errorf("%+v %v", got, err)
	}
	var waits atomic.Int64
	c := at(t, server, client.WaitForRoom(), client.OnRetry(func(r client.Retry) {
		if waits.Add(1); !errors.Is(r.Err, client.NoRoom) || r.Wait < time.Second {
			t.Errorf("%+v", r)
		}
	}))
	got, err = c.Enqueue(t.Context(), jobs("second", "room", 6)...)
	if err != nil || waits.Load() == 0 {
		t.Errorf("%v after %d waits", err, waits.Load())
	}
	for _, r := range got {
		if r.Result != client.Enqueued || r.Resent {
			t.Errorf("%+v", r)
		}
	}
	if _, err := at(t, server, client.WaitForRoom(), client.Patience(time.Second)).Enqueue(t.Context(), jobs("tight", "never", 1)...); !errors.Is(err, client.NoRoom) {
		t.Error(err)
	}
}

// However the connection breaks, each job is in once, and the result distinguishes jobs of this call from earlier ones.
func TestALostAnswerDoublesNoJob(t *testing.T) {
	t.Parallel()
	const n = 12_000
	p := cutting(t, server)
	p.answers.Store(60_000)
	c := at(t, p.url, client.Patience(time.Minute))
	got, err := c.Enqueue(t.Context(), jobs("lost", "lost", n)...)
	if err != nil {
		t.Fatal(err)
	}
	again, resent := 0, 0
	for i, r := range got {
		if r.ID != fmt.Sprintf("lost-%05d", i) {
			t.Fatalf("%d: %+v", i, r)
		}
		if r.Result == client.Duplicate {
			again++
		}
		if r.Resent {
			resent++
		} else if r.Result == client.Duplicate {
			t.Fatalf("%+v is known, and was sent once", r)
		}
	}
	if p.cut.Load() < 5 || again == 0 || resent < again {
		t.Errorf("%d connections were cut, %d jobs were sent again and %d of them were in", p.cut.Load(), resent, again)
	}
	hits, err := at(t, server).Search(t.Context(), client.Search{ID: "lost-119", Gateways: []string{"lost"}, Limit: 1000})
	if err != nil || len(hits.Jobs) != 100 {
		t.Errorf("%d jobs, %v", len(hits.Jobs), err)
	}
}

// script is a dispatcher that gives these answers in turn, and the last one again and again.
func script(t *testing.T, answers ...func(http.ResponseWriter)) (url string, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1))
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Error("no token")
		}
		answers[min(n, len(answers))-1](w)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func says(status int, header, text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if header != "" {
			w.Header().Set("Retry-After", header)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintln(w, text)
	}
}

const (
	stops   = `{"title":"Service Unavailable","status":503,"code":"stopping","detail":"this dispatcher stops","retry_after":1}`
	notHere = `{"title":"Not Found","status":404,"code":"unknown_job","detail":"there is no job x","hint":"look elsewhere"}`
)

// A failure that passes is tried again, no sooner than the dispatcher asked for. A failure that does not pass is returned at once.
func TestACallComesAgainWhenItIsAskedTo(t *testing.T) {
	t.Parallel()
	url, asked := script(t, says(503, "1", stops), says(502, "", "<html>"), says(200, "", `{"processes":[]}`))
	begun := time.Now()
	if _, err := at(t, url).Processes(t.Context()); err != nil || asked.Load() != 3 || time.Since(begun) < time.Second {
		t.Errorf("%d times in %s: %v", asked.Load(), time.Since(begun), err)
	}
	url, asked = script(t, says(404, "", notHere))
	_, err := at(t, url).Job(t.Context(), "stripe", "x")
	e, ok := errors.AsType[*client.Error](err)
	if !ok || asked.Load() != 1 || !errors.Is(err, client.UnknownJob) || errors.Is(err, client.UnknownBatch) || e.Status != 404 || e.Error() != "there is no job x (look elsewhere)" {
		t.Errorf("%d times: %v", asked.Load(), err)
	}
	url, asked = script(t, says(503, "3600", stops))
	begun = time.Now()
	if _, err := at(t, url).Status(t.Context()); !errors.Is(err, client.Stopping) || asked.Load() != 1 || time.Since(begun) > 30*time.Second {
		t.Errorf("asked to wait for an hour: %d times in %s: %v", asked.Load(), time.Since(begun), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := at(t, url, client.Patience(2*time.Hour), client.OnRetry(func(client.Retry) { cancel() }))
	if _, err := cancelled.Status(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, client.Stopping) {
		t.Errorf("cancelled: %v", err)
	}
	url, _ = script(t, says(302, "", ""))
	if _, err := at(t, url).Status(t.Context()); !errors.Is(err, client.NoAnswer) || !strings.Contains(err.Error(), "not a dispatcher: HTTP 302") {
		t.Error(err)
	}
}

// Only the jobs whose lines of an answer say "later" are sent again.
func TestOnlyWhatIsOpenIsSentAgain(t *testing.T) {
	t.Parallel()
	var bodies []int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		for d := json.NewDecoder(r.Body); d.More(); n++ {
			var j client.Job
			_ = d.Decode(&j)
		}
		switch bodies = append(bodies, n); len(bodies) {
		case 1:
			w.WriteHeader(202)
			fmt.Fprintln(w, `{"line":1,"id":"a","status":202,"result":"enqueued","state":"queued"}`)
			fmt.Fprintln(w, `{"line":2,"id":"b","title":"x","status":503,"code":"unavailable","detail":"away","retry_after":1}`)
			fmt.Fprintln(w, `{"line":3,"title":"x","status":503,"code":"unavailable","detail":"nothing from here on","retry_after":1}`)
		default:
			fmt.Fprintln(w, `{"line":1,"id":"b","status":200,"result":"duplicate"}`)
			fmt.Fprintln(w, `{"line":2,"id":"c","status":202,"result":"enqueued","state":"queued"}`)
		}
	}))
	t.Cleanup(s.Close)
	got, err := at(t, s.URL).Enqueue(t.Context(), client.Job{Gateway: "g", ID: "a"}, client.Job{Gateway: "g", ID: "b"}, client.Job{Gateway: "g", ID: "c"})
	if err != nil || len(bodies) != 2 || bodies[0] != 3 || bodies[1] != 2 {
		t.Fatalf("%v %v", bodies, err)
	}
	if got[0].Resent || !got[1].Resent || got[1].Result != client.Duplicate || got[2].Resent || got[2].Result != client.Enqueued {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsAskedComesBack(t *testing.T) {
	t.Parallel()
	c := at(t, server)
	all := jobs("adyen", "asked", 3)
	for i := range all {
		all[i].Batch = "2026-11/asked"
	}
	if _, err := c.Enqueue(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	for _, j := range all {
		settled(t, c, "adyen", j.ID, client.Done)
	}
	b, err := c.Batch(t.Context(), "2026-11/asked", "adyen")
	if err != nil || b.Jobs != 3 || b.Amount["EUR"].Int64() != 303 || b.Gateways[0].Gateway != "adyen" || b.States[0].State != client.Done {
		t.Errorf("%+v %v", b, err)
	}
	list, err := c.Batches(t.Context(), client.BatchQuery{Gateways: []string{"adyen"}, Limit: 1})
	if err != nil || len(list.Batches) != 1 || list.Batches[0].Batch != "2026-11/asked" || list.Batches[0].State != "over" {
		t.Errorf("%+v %v", list, err)
	}
	if _, err := c.Batch(t.Context(), "nothing"); !errors.Is(err, client.UnknownBatch) {
		t.Error(err)
	}
	if _, err := c.Batches(t.Context(), client.BatchQuery{Gateways: []string{"nobody"}}); !errors.Is(err, client.UnknownGateway) {
		t.Error(err)
	}
	if s, err := c.Status(t.Context()); err != nil || len(s.Gateways) != len(gateways) {
		t.Errorf("%+v %v", s, err)
	}
	if h, err := c.Calls(t.Context(), client.CallQuery{Gateways: []string{"adyen"}, By: "gateway"}); err != nil || h.All.Calls < 3 || h.Rows[0].Gateway != "adyen" {
		t.Errorf("%+v %v", h, err)
	}
	if a, err := c.Answers(t.Context(), "adyen", client.AnswerQuery{Since: "1h", Batch: "none"}); err != nil || a.Gateway != "adyen" {
		t.Errorf("%+v %v", a, err)
	}
	if p, err := c.Processes(t.Context()); err != nil || len(p.Processes) != 1 || p.Processes[0].State != "serving" {
		t.Errorf("%+v %v", p, err)
	}
	if d, err := c.Doctor(t.Context()); err != nil || len(d.Checks) == 0 {
		t.Errorf("%+v %v", d, err)
	}
}

func TestAnAddressIsLookedAt(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "localhost:9400", "ftp://x", "http://", "http://me:secret@x", "http://x?token=secret", "http://x#y", "://me:secret@x"} {
		if _, err := client.New(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
	wrong, err := client.New(server, client.Token("wrong"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.Status(t.Context()); !errors.Is(err, client.NoToken) {
		t.Error(err)
	}
	if _, err := at(t, server+"/").Status(t.Context()); err != nil {
		t.Error(err)
	}
	nobody := at(t, "http://127.0.0.1:"+freePort(), client.Patience(0))
	if _, err := nobody.Status(t.Context()); !errors.Is(err, client.NoAnswer) {
		t.Error(err)
	}
	for id, is := range map[string]client.Code{".": client.UnknownJob, "..": client.UnknownJob, "a/b?c#d%": client.UnknownJob} {
		if _, err := at(t, server).Job(t.Context(), "adyen", id); !errors.Is(err, is) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// A client given by HTTPClient follows no redirect either, because that would send the token elsewhere.
func TestARedirectTakesTheTokenNowhere(t *testing.T) {
	t.Parallel()
	elsewhere, came := script(t, says(200, "", `{"processes":[]}`))
	url, _ := script(t, func(w http.ResponseWriter) {
		w.Header().Set("Location", elsewhere)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	own := &http.Client{}
	if _, err := at(t, url, client.HTTPClient(own)).Processes(t.Context()); !errors.Is(err, client.NoAnswer) || came.Load() != 0 || own.CheckRedirect != nil {
		t.Errorf("%v; %d requests came elsewhere", err, came.Load())
	}
}
