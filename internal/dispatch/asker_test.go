package dispatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// cashier is a gateway without idempotency keys that can be asked what it has charged. The job's id says what happens to its calls. With "lost", the first one is charged and
// gets no answer. With "cut", the first one is not charged and gets no answer. With "no", each is declined without an answer.
type cashier struct {
	mu    sync.Mutex
	paid  map[string]int // charges by job
	calls map[string]int // calls by job
	said  map[string]string
	looks []time.Time
	last  time.Time // when the last call came
	all   []int64   // when calls and look-ups came, in µs
	// ask may answer a look-up. Nil, or a return of false: the look-up gets the truth.
	ask func(w http.ResponseWriter, id string) (answered bool)
}

func newCashier() *cashier {
	return &cashier{paid: map[string]int{}, calls: map[string]int{}, said: map[string]string{}}
}

func (c *cashier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, time.Now().UnixMicro())
	if r.Method == http.MethodGet {
		c.look(w, r.URL.Query().Get("reference"))
		return
	}
	var body struct{ ID string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	id := body.ID
	c.last = time.Now()
	c.calls[id]++
	first := c.calls[id] == 1
	switch {
	case strings.Contains(id, "no"):
		c.said[id] = "declined"
		panic(http.ErrAbortHandler)
	case strings.Contains(id, "cut") && first:
		panic(http.ErrAbortHandler)
	case strings.Contains(id, "soft") && first: // declined, and the file wants it tried again
		c.said[id] = "declined"
		w.WriteHeader(http.StatusPaymentRequired)
		fmt.Fprint(w, `{"error":"try again"}`)
		return
	}
	c.paid[id]++
	c.said[id] = "captured"
	if strings.Contains(id, "lost") && first || strings.Contains(id, "soft") {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, `{"id":"ref-%s","status":"captured"}`, id)
}

func (c *cashier) look(w http.ResponseWriter, id string) {
	c.looks = append(c.looks, time.Now())
	if c.ask != nil && c.ask(w, id) {
		return
	}
	if status := c.said[id]; status != "" {
		fmt.Fprintf(w, `{"data":[{"id":"ref-%s","reference":%q,"status":%q}]}`, id, id, status)
		return
	}
	fmt.Fprint(w, `{"data":[]}`)
}

// asked is the gateway's configuration.
const asked = `leak: {limits: [200/s], jitter: 1ms}
retry: {attempts: 3}
circuit: {failures: 100}
reference: id
lookup:
  url: /?reference={id}
  schedule: [100ms, 100ms, 100ms, 1h]
  scan: {items: data, match: {reference: "{id}"}}
  answers:
    - {body: {status: captured}, then: done, reference: id}
    - {body: {status: declined}, then: refused}
    - {absent: true, then: not_done, after: 200ms}`

// before makes a gateway with these settings whose calls go to a cashier.
func before(t *testing.T, c *cashier, settings string) *rig {
	t.Helper()
	r := &rig{t: t}
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	text := "redis: " + testkit.Redis(t) + "\ngateways:\n" + fmt.Sprintf("  %s:\n    request: {url: %q, timeout: 5s, idempotency_header: \"\"}\n    %s\n", testkit.Gateway(t), srv.URL, strings.ReplaceAll(settings, "\n", "\n    "))
	var err error
	if r.cfg, err = config.Parse("x.yaml", []byte(text), config.Options{Secrets: true}); err != nil {
		t.Fatal(err)
	}
	if r.db, err = Open(t.Context(), r.cfg, patience); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	return r
}

// beforeVirtually is before in virtual time.
func beforeVirtually(t *testing.T, c *cashier, settings string, test func(t *testing.T, r *rig)) {
	t.Helper()
	virtually(t, c, `{url: "URL", timeout: 5s, idempotency_header: ""}`, settings, test)
}

// take admits jobs whose payload contains their id.
func (r *rig) take(ids ...string) {
	r.t.Helper()
	name := r.cfg.Gateways[0].Name
	jobs := make([]job.Job, len(ids))
	for i, id := range ids {
		jobs[i] = job.Job{ID: id, Gateway: name, Payload: fmt.Appendf(nil, `{"id":%q}`, id), Cost: 1}
	}
	if _, err := Door(r.db.Client, r.cfg, patience).Admit(r.t.Context(), name, jobs, admission.Park); err != nil {
		r.t.Fatal(err)
	}
}

// until waits until is holds for the gateway's standing.
func (r *rig) until(what string, is func(record.Standing) bool) record.Standing {
	r.t.Helper()
	var s record.Standing
	for end := time.Now().Add(time.Minute); time.Now().Before(end); await(r.t.Context(), 20*time.Millisecond) {
		if s = r.standing(0); is(s) {
			return s
		}
	}
	r.t.Fatalf("not %s after a minute: %+v", what, s)
	return s
}

func (r *rig) find(id string) job.Record {
	r.t.Helper()
	rec, _, err := Books(r.db.Client, r.cfg.Gateways[0]).Find(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// After a hold, a look-up may be the first request. So a hold of a gateway that has only pending jobs ends.
func TestALookUpEndsAHold(t *testing.T) {
	t.Parallel()
	c := newCashier()
	beforeVirtually(t, c, asked, func(t *testing.T, r *rig) {
		r.take("lost-1")
		d := r.serve()
		r.until("pending", func(s record.Standing) bool { return s.Pending == 1 })
		u := d.units()[0]
		out, err := u.pacer.Failed(t.Context(), job.Circuit{}, job.Failure{Kind: job.Wait, For: 300 * time.Millisecond, Job: "x", Why: "HTTP 429", Written: true})
		if err != nil || !out.Opened {
			t.Fatalf("held: %+v, %v", out, err)
		}
		r.until("done", func(s record.Standing) bool { return s.Done == 1 })
		c.mu.Lock()
		early := c.looks[0].Before(out.At.Add(300 * time.Millisecond))
		c.mu.Unlock()
		if well, err := u.well(t.Context()); early || !well || err != nil {
			t.Errorf("asked while held: %t; the gateway is well: %t, %v", early, well, err)
		}
	})
}

// A 429 to a look-up holds the gateway. If look-ups have limits of their own, it holds only look-ups. In both cases it uses up no step of the schedule.
func TestALookUpIsToldToWait(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]string{"the gateway's limit": "", "their own limit": "\n  limits: [100/s]"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCashier()
			told := 0
			c.ask = func(w http.ResponseWriter, _ string) bool {
				if told++; told > 6 { // more often than the schedule has look-ups
					return false
				}
				w.Header().Set("Retry-After", "0")
				if told == 1 {
					w.Header().Set("Retry-After", "1")
				}
				w.WriteHeader(map[bool]int{true: 429, false: 500}[told == 1])
				return true
			}
			beforeVirtually(t, c, strings.Replace(asked, "lookup:", "lookup:"+own, 1), func(t *testing.T, r *rig) {
				r.take("lost-1")
				u := r.serve().units()[0]
				r.until("told", func(record.Standing) bool { c.mu.Lock(); defer c.mu.Unlock(); return told > 0 })
				<-time.After(100 * time.Millisecond)
				h, err := Hold(t.Context(), r.db.Client, u.now().cfg)
				if held := !h.HeldUntil.IsZero(); err != nil || held != (own == "") {
					t.Errorf("the gateway is held: %t, %v", held, err)
				}
				if rec := r.find("lost-1"); rec.State != job.Pending || rec.Looks != 0 || !strings.Contains(rec.LastSeen, "429") {
					t.Errorf("it is %s after %d look-ups that count, and saw %q", rec.State, rec.Looks, rec.LastSeen)
				}
			})
		})
	}
}

// No job is left to a person if a gateway without keys can tell its outcome: a charge whose answer was lost is found, a missing one is made, and a decline stays one.
func TestUnknownOutcomesSettleThemselves(t *testing.T) {
	t.Parallel()
	c := newCashier()
	r := before(t, c, asked)
	ids := []string{"well-1", "lost-1", "lost-2", "cut-1", "cut-2", "no-1"}
	r.take(ids...)
	r.serve()
	s := r.until("settled", func(s record.Standing) bool {
		return s.Done+s.Parked[job.Refused]+s.Parked[job.UnknownOutcome]+s.Parked[job.Exhausted] == int64(len(ids))
	})
	if s.Done != 5 || s.Parked[job.Refused] != 1 || s.Missing() != 0 {
		t.Errorf("they stand %+v", s)
	}
	for _, id := range ids {
		rec := r.find(id)
		t.Logf("%s: %s %s, reference %q, %+v", id, rec.State, rec.Reason, rec.Reference, rec.History)
		if want := map[bool]int{true: 0, false: 1}[strings.HasPrefix(id, "no")]; c.paid[id] != want {
			t.Errorf("%s was charged %d times", id, c.paid[id])
		}
		if rec.State == job.Done && rec.Reference != "ref-"+id {
			t.Errorf("%s has the reference %q", id, rec.Reference)
		}
	}
	if no := r.find("no-1"); no.Unsure || !strings.Contains(no.Error, "declined") {
		t.Errorf("the refused one is in doubt (%t), and says %q", no.Unsure, no.Error)
	}
}
