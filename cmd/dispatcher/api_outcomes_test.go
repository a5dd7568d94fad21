package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/client"
	"spillway/internal/admission"
	"spillway/internal/dispatch"
	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// fedRig is an API whose gateway has an outcome feed, and room for one job a day: all jobs but the first are parked, and each of them is an outcome.
type fedRig struct {
	*apiRig
	posted int
	parked []string // their ids, in order
}

func newFedRig(t *testing.T) *fedRig {
	return &fedRig{apiRig: newAPIRig(t, "", "outcomes: {readers: [ledger, mailer]}\n    admission: {limits: [1/d], burst: 1}")}
}

// park posts n jobs, which are parked.
func (f *fedRig) park(n int) {
	f.t.Helper()
	var text strings.Builder
	for range n {
		f.posted++
		fmt.Fprintf(&text, "{\"id\":\"job-%06d\",\"batch\":\"2026-11\",\"payload\":{\"secret\":\"canary\"}}\n", f.posted)
	}
	got := f.ask(http.MethodPost, f.jobs("?on_full=park"), asNDJSONType, strings.NewReader(text.String()))
	for _, line := range f.lines(got.body) {
		if line.State == "parked" {
			f.parked = append(f.parked, line.ID)
		}
	}
}

func (f *fedRig) path(query string) string { return "/v1/gateways/" + f.gateway + "/outcomes" + query }

// read reads one page, and returns the ids and the last cursor.
func (f *fedRig) read(query string) (ids []string, last string) {
	f.t.Helper()
	got := f.ask(http.MethodGet, f.path(query), "", nil)
	if got.code != http.StatusOK || got.header.Get("Content-Type") != asNDJSONType || strings.Contains(got.body, "canary") {
		f.t.Fatalf("%s: %d %s", query, got.code, got.body)
	}
	for line := range strings.Lines(got.body) {
		var o feed.Outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			f.t.Fatal(err)
		}
		ids, last = append(ids, o.ID), o.Cursor
	}
	return ids, last
}

func (f *fedRig) ack(text string) answer {
	f.t.Helper()
	return f.ask(http.MethodPost, f.path("/ack"), asJSONType, strings.NewReader(text))
}

func TestOutcomesAreReadOverHTTP(t *testing.T) {
	t.Parallel()
	f := newFedRig(t)
	if ids, _ := f.read(""); ids != nil {
		t.Errorf("outcomes of no job: %v", ids)
	}
	f.park(2500)
	var all []string
	for after, more := "", true; more; {
		var ids []string
		var last string
		if ids, last = f.read("?limit=999&after=" + after); last != "" {
			after = last
		}
		all, more = append(all, ids...), len(ids) > 0
	}
	if !slices.Equal(all, f.parked) || len(all) != 2499 {
		t.Errorf("%d outcomes, %d jobs were parked", len(all), len(f.parked))
	}
	most, last := f.read("?limit=10000")
	if !slices.Equal(most, f.parked) {
		t.Errorf("%d outcomes at once", len(most))
	}
	_, tenth := f.read("?limit=10")
	for _, c := range []struct {
		reader, cursor string
		behind         int
	}{{"ledger", tenth, len(all) - 10}, {"mailer", last, 0}, {"ledger", tenth, len(all) - 10}} {
		got := f.ack(fmt.Sprintf(`{"reader":%q,"cursor":%q}`, c.reader, c.cursor))
		if want := fmt.Sprintf(`{"reader":%q,"cursor":%q,"behind":%d}`+"\n", c.reader, c.cursor, c.behind); got.code != 200 || got.body != want {
			t.Errorf("%d %s, want %s", got.code, got.body, want)
		}
	}
	if ids, _ := f.read("?reader=ledger&limit=1"); !slices.Equal(ids, f.parked[10:11]) {
		t.Errorf("ledger goes on at %v", ids)
	}
	if ids, _ := f.read("?reader=mailer"); ids != nil {
		t.Errorf("mailer goes on at %v", ids)
	}
}

func TestAReaderOverHTTPWaits(t *testing.T) {
	t.Parallel()
	f := newFedRig(t)
	f.park(3)
	_, last := f.read("")
	begun := time.Now()
	if ids, _ := f.read("?wait=1200ms&after=" + last); ids != nil || time.Since(begun) < time.Second {
		t.Errorf("%v after %s", ids, time.Since(begun))
	}
	got := make(chan []string, 1)
	begun = time.Now()
	go func() {
		ids, _ := f.read("?wait=30s&after=" + last)
		got <- ids
	}()
	f.park(3)
	if ids := <-got; len(ids) == 0 || ids[0] != f.parked[len(f.parked)-3] || time.Since(begun) >= 30*time.Second {
		t.Errorf("a wait of 30 s ended with %v after %s; parked are %v", ids, time.Since(begun), f.parked)
	}
}

func TestWhatIsAskedOfOutcomesWronglyIsRefused(t *testing.T) {
	t.Parallel()
	f := newFedRig(t)
	f.park(2)
	for _, c := range []struct {
		query, code string
		status      int
	}{
		{"?limit=0", "invalid_request", 400}, {"?limit=10001", "invalid_request", 400}, {"?limit=1&limit=2", "invalid_request", 400},
		{"?wait=31s", "invalid_request", 400}, {"?wait=-1s", "invalid_request", 400}, {"?wait=long", "invalid_request", 400},
		{"?after=x", "invalid_request", 400}, {"?since=x", "invalid_request", 400}, {"?reader=nobody", "unknown_reader", 404}, {"?reader=nobody&after=1-1", "unknown_reader", 404},
		{"?after=9000000000-9000000000000000", "invalid_request", 400},
	} {
		if got := f.ask(http.MethodGet, f.path(c.query), "", nil); got.code != c.status || f.told(got.body).Code != c.code {
			t.Errorf("%s: %d %s", c.query, got.code, got.body)
		}
	}
	for body, status := range map[string]int{`{"reader":"nobody","cursor":"1-2"}`: 404, `{"reader":"ledger","cursor":"x"}`: 400, `{"reader":"ledger"}`: 400, `{"cursor":"1-2"}`: 400,
		`{"reader":"ledger","cursor":"1-2","x":1}`: 400, `[]`: 400, ``: 400, `{"reader":"ledger","cursor":"1-2"}{}`: 400} {
		if got := f.ack(body); got.code != status {
			t.Errorf("%s: %d %s", body, got.code, got.body)
		}
	}
	if got := f.ask(http.MethodPost, f.path("/ack?reader=ledger"), asJSONType, strings.NewReader("{}")); got.code != 400 {
		t.Errorf("%d %s", got.code, got.body)
	}
	f.gateway = "nobody"
	if got := f.ask(http.MethodGet, f.path(""), "", nil); got.code != 404 || f.told(got.body).Code != "unknown_gateway" {
		t.Errorf("%d %s", got.code, got.body)
	}
	a := newAPIRig(t, "", "")
	for method, path := range map[string]string{http.MethodGet: "/outcomes", http.MethodPost: "/outcomes/ack"} {
		if got := a.ask(method, "/v1/gateways/"+a.gateway+path, "", nil); got.code != 404 || a.told(got.body).Code != "no_outcomes" {
			t.Errorf("%d %s", got.code, got.body)
		}
	}
}

// events reads a stream of server-sent events after an id until it has most events, and closes the connection. It returns the ids of their jobs and
// the id of the last event.
func (f *fedRig) events(last string, most int) ([]string, string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 3*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+f.path(""), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiToken)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Last-Event-ID", last)
	back, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer back.Body.Close()
	if back.Header.Get("X-Accel-Buffering") != "no" {
		f.t.Error("nginx may hold the events back")
	}
	var ids []string
	id := ""
	for lines := bufio.NewScanner(back.Body); len(ids) < most && lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			var o feed.Outcome
			if err := json.Unmarshal([]byte(value), &o); err != nil || o.Cursor != id {
				f.t.Fatalf("%v: %s", err, value)
			}
			ids, last = append(ids, o.ID), id
		}
	}
	return ids, last
}

// A reader of server-sent events that connects again and again gets each event once.
func TestAReaderOfEventsComesAgain(t *testing.T) {
	t.Parallel()
	f := newFedRig(t)
	posted := make(chan struct{})
	go func() {
		defer close(posted)
		for range 60 {
			f.park(20)
		}
	}()
	var all []string
	last := ""
	for i := range 50 {
		var ids []string
		if ids, last = f.events(last, 1+i%37); len(ids) == 0 {
			t.Fatal("a stream ended without an event")
		}
		all = append(all, ids...)
	}
	<-posted
	if len(f.parked) < len(all) || !slices.Equal(all, f.parked[:len(all)]) {
		t.Fatalf("%d events of 50 streams are not the first %d of %d parked jobs", len(all), len(all), len(f.parked))
	}
	rest, _ := f.events(last, len(f.parked)-len(all))
	if !slices.Equal(append(all, rest...), f.parked) {
		t.Errorf("%d events, %d jobs were parked", len(all)+len(rest), len(f.parked))
	}
}

// The log says how fast one reader takes outcomes over HTTP: go test -v -run TestOneReaderTakesManyOutcomes ./cmd/dispatcher -args -long
func TestOneReaderTakesManyOutcomes(t *testing.T) {
	t.Parallel()
	n := testkit.Often(2_000, 20_000)
	together := newFedRig(t)
	for range 4 {
		together.park(n / 4)
	}
	apart := newFedRig(t)
	apart.parkApart(n)
	for name, f := range map[string]*fedRig{"many in a script": together, "each in its own": apart} {
		for how, read := range map[string]func() []string{"lines": f.readAll, "events, by the Go client": f.streamAll} {
			begun := time.Now()
			all := read()
			took := time.Since(begun)
			t.Logf("%s, as %s: %d outcomes in %s: %.0f a second", name, how, len(all), took.Round(time.Millisecond), float64(len(all))/took.Seconds())
			if !slices.Equal(all, f.parked) || len(all) != n-1 {
				t.Errorf("%s, as %s: %d outcomes, %d jobs were parked", name, how, len(all), len(f.parked))
			}
		}
	}
}

// parkApart accepts n jobs one by one. So each outcome is written by a script of its own, as when jobs end.
func (f *fedRig) parkApart(n int) {
	f.t.Helper()
	door := dispatch.Door(f.c, f.cfg, 0)
	for range n {
		f.posted++
		j := job.Job{ID: fmt.Sprintf("job-%06d", f.posted), Gateway: f.gateway, Batch: "2026-11", Payload: json.RawMessage("{}"), Cost: 1}
		got, err := door.Admit(f.t.Context(), f.gateway, []job.Job{j}, admission.Park)
		if err != nil {
			f.t.Fatal(err)
		}
		if got[0].Outcome == job.ParkedNow {
			f.parked = append(f.parked, j.ID)
		}
	}
}

func (f *fedRig) readAll() (all []string) {
	for after := ""; ; {
		ids, last := f.read("?limit=10000&after=" + after)
		if len(ids) == 0 {
			return all
		}
		all, after = append(all, ids...), last
	}
}

func (f *fedRig) streamAll() (all []string) {
	f.t.Helper()
	c, err := client.New(f.url, client.Token(apiToken))
	if err != nil {
		f.t.Fatal(err)
	}
	for o, err := range c.Outcomes(f.t.Context(), f.gateway, "") {
		if err != nil {
			f.t.Fatal(err)
		}
		if all = append(all, o.ID); len(all) == len(f.parked) {
			break
		}
	}
	return all
}
