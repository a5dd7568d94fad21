package dispatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/outcome"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// account is a gateway that remembers idempotency keys: a used key gets its first answer again, marked as replayed.
type account struct {
	mu      sync.Mutex
	answers map[string]string
	charged []string // bodies
	hang    int      // how many of the next calls are charged and never answered
}

// ServeHTTP implements http.Handler.
func (a *account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body json.RawMessage
	_ = json.NewDecoder(r.Body).Decode(&body)
	a.mu.Lock()
	defer a.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	answer, used := a.answers[key]
	if used {
		w.Header().Set("Idempotent-Replayed", "true")
	} else {
		a.charged = append(a.charged, string(body))
		answer = fmt.Sprintf(`{"id":"ch_%d"}`, len(a.charged))
		a.answers[key] = answer
	}
	if a.hang > 0 {
		a.hang--
		panic(http.ErrAbortHandler)
	}
	fmt.Fprint(w, answer)
}

// twoOf makes two gateways of one account, with these request settings.
func twoOf(t *testing.T, a *account, first, second string) *rig {
	t.Helper()
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	text := "redis: " + testkit.Redis(t) + "\ngateways:\n"
	for _, request := range []string{first, second} {
		text += fmt.Sprintf("  %s:\n    request: {url: %q, timeout: 20s, %s}\n    retry: {first: 10ms, max: 10ms}\n    leak: {limits: [100/s]}\n", testkit.Gateway(t), srv.URL, request)
	}
	r := &rig{t: t}
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

// settled waits until a job is done or parked.
func (r *rig) settled(at int, id string) (rec job.Record) {
	r.t.Helper()
	books := Books(r.db.Client, r.cfg.Gateways[at])
	testkit.Eventually(r.t, 20*time.Second, "the job "+id, func() bool {
		var err error
		rec, _, err = books.Find(r.t.Context(), id)
		return err == nil && (rec.State == job.Done || rec.State == job.Parked)
	})
	return rec
}

// Two gateways of one account have jobs with the same id. With different prefixes both jobs are charged. Without, the second job is not recorded as paid.
func TestTwoGatewaysOfOneAccountBookTheirOwnCharges(t *testing.T) {
	t.Parallel()
	for _, prefixed := range []bool{true, false} {
		a := &account{answers: map[string]string{}}
		settings := []string{"idempotency_prefix: eu-", "idempotency_prefix: us-"}
		if !prefixed {
			settings = []string{`idempotency_prefix: ""`, `idempotency_prefix: ""`}
		}
		r := twoOf(t, a, settings[0], settings[1])
		r.serve()
		r.put(0, 1)
		first := r.settled(0, "j0000")
		r.put(1, 1)
		second := r.settled(1, "j0000")
		if first.State != job.Done || first.Reference != "ch_1" {
			t.Errorf("prefixed %v: the first is %s, %q", prefixed, first.State, first.Reference)
		}
		if prefixed && (second.State != job.Done || second.Reference != "ch_2") || !prefixed && (second.Reason != job.UnknownOutcome || len(a.charged) != 1) {
			t.Errorf("prefixed %v: the second is %s %s, %q, after %d charges", prefixed, second.State, second.Reason, second.Reference, len(a.charged))
		}
	}
}

// A job whose answer was lost gets it again from the gateway, also under a prefix.
func TestALostAnswerIsToldAgainUnderAPrefix(t *testing.T) {
	t.Parallel()
	a := &account{answers: map[string]string{}, hang: 1}
	r := twoOf(t, a, "idempotency_prefix: eu-", "idempotency_prefix: us-")
	r.serve()
	r.put(0, 1)
	if rec := r.settled(0, "j0000"); rec.State != job.Done || rec.Reference != "ch_1" || len(a.charged) != 1 || a.answers["eu-j0000"] == "" {
		t.Errorf("%s %s %q, %d charges, keys %v", rec.State, rec.Error, rec.Reference, len(a.charged), a.answers)
	}
}

// No call begins with an idempotency key that may expire during the call: the time-out and a margin must fit into the rest of the key's lifetime.
func TestNoCallBeginsWithAKeyThatMayEndBeforeIt(t *testing.T) {
	t.Parallel()
	a := &account{answers: map[string]string{}}
	r := twoOf(t, a, "idempotency_prefix: eu-, key_lifetime: 85s", "idempotency_prefix: us-") // 60 s are left
	r.put(0, 2)
	for id, age := range map[string]time.Duration{"j0000": 61 * time.Second, "j0001": 20 * time.Second} {
		key := r.keysAt(0).Job(id)
		r.db.Client.HSet(t.Context(), key, "am", "1", "f", time.Now().Add(-age).UnixMicro())
	}
	r.serve()
	if rec := r.settled(0, "j0000"); rec.Reason != job.UnknownOutcome || len(rec.History) != 0 {
		t.Errorf("a key that ends in 24 s, with a time-out of 20 s: %s %s, %d calls", rec.State, rec.Reason, len(rec.History))
	}
	if rec := r.settled(0, "j0001"); rec.State != job.Done {
		t.Errorf("a key that ends in 65 s: %s %s", rec.State, rec.Reason)
	}
}

// If request settings change after an answer was lost, the job is not called again, and its error names the settings.
func TestAReloadedRequestIsNotTakenForTheOldOne(t *testing.T) {
	t.Parallel()
	for named, change := range map[string]func(q *config.Request){
		"encoding or strip":         func(q *config.Request) { q.Strip = []string{"account"} },
		"headers with placeholders": func(q *config.Request) { q.JobHeaders = map[string][]config.HeaderPart{"X-Id": {{Place: "id"}}} },
		"url or method, encoding or strip": func(q *config.Request) {
			q.Method, q.Encoding = "PUT", config.EncodingForm
		},
	} {
		a := &account{answers: map[string]string{}, hang: 1}
		r := twoOf(t, a, "idempotency_prefix: eu-", "idempotency_prefix: us-")
		r.cfg.Gateways[0].Retry.First, r.cfg.Gateways[0].Retry.Max = time.Hour, time.Hour
		d := r.serve()
		r.put(0, 1)
		books := Books(r.db.Client, r.cfg.Gateways[0])
		testkit.Eventually(t, 20*time.Second, "the lost answer", func() bool {
			rec, _, err := books.Find(t.Context(), "j0000")
			return err == nil && rec.State == job.Retrying
		})
		changed := slices.Clone(r.cfg.Gateways)
		change(&changed[0].Request)
		if _, err := d.Reload(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		r.due(0, "j0000")
		if rec := r.settled(0, "j0000"); rec.Reason != job.UnknownOutcome || !strings.Contains(rec.Error, "configuration: "+named+";") || len(rec.History) != 1 {
			t.Errorf("%s: %s %s, %d calls: %s", named, rec.State, rec.Reason, len(rec.History), rec.Error)
		}
	}
}

// Adyen declines with a 200 (docs.adyen.com/development-resources/overview-response-handling).
func TestTheExampleBooksWhatIsPaidAlone(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("../../examples/dispatcher.yaml", config.Options{Secrets: true, Env: func(string) (string, bool) { return "sk_test", true }})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		gateway, body string
		status        int
		want          job.Verdict
		reference     string
	}{
		{"adyen", `{"pspReference":"993617895215577D","resultCode":"Authorised"}`, 200, job.VerdictDone, "993617895215577D"},
		{"adyen", `{"pspReference":"993617895215577D","resultCode":"Refused","refusalReason":"CVC Declined"}`, 200, job.VerdictRefused, ""},
		{"adyen", `{"resultCode":"Cancelled"}`, 200, job.VerdictRefused, ""},
		{"adyen", `{"resultCode":"Error"}`, 200, job.VerdictRefused, ""},
		{"adyen", `{"resultCode":"Received"}`, 200, job.VerdictAccepted, ""},
		{"adyen", `{"resultCode":"Pending"}`, 200, job.VerdictAccepted, ""},
		{"adyen", `{"resultCode":"RedirectShopper"}`, 200, job.VerdictRefused, ""},
		{"adyen", `{"resultCode":"PartiallyAuthorised"}`, 200, job.VerdictUnknown, ""},
		{"adyen", ``, 200, job.VerdictUnknown, ""},
		{"adyen", `{"errorCode":"704","message":"request already processed or in progress"}`, 422, job.VerdictUnknown, ""},
		{"adyen", `{"errorCode":"704"}`, 409, job.VerdictUnknown, ""},
		{"adyen", `{"errorCode":"130"}`, 422, job.VerdictRefused, ""},
		{"stripe", `{"id":"pi_1","status":"succeeded"}`, 200, job.VerdictDone, "pi_1"},
		{"stripe", `{"id":"pi_1","status":"processing"}`, 200, job.VerdictAccepted, "pi_1"},
		{"stripe", `{"id":"pi_1","status":"requires_action"}`, 200, job.VerdictRefused, ""},
	} {
		g, _ := cfg.Gateway(c.gateway)
		judge, err := table(g)
		if err != nil {
			t.Fatal(err)
		}
		j := judge.Judge(outcome.Input{Result: job.Result{Stage: job.Answered, Status: c.status, Body: []byte(c.body)}, KeySent: true, KeyLives: true})
		if j.Verdict != c.want || j.Reference != c.reference {
			t.Errorf("%s %d %s: %s %q, want %s %q", c.gateway, c.status, c.body, j.Verdict, j.Reference, c.want, c.reference)
		}
	}
	g, _ := cfg.Gateway("adyen")
	judge, _ := table(g)
	later := outcome.Input{Result: job.Result{Stage: job.Answered, Status: 422, Body: []byte(`{"errorCode":"704"}`), Header: http.Header{"Transient-Error": {"true"}}}, KeySent: true, KeyLives: true}
	if j := judge.Judge(later); j.Verdict != job.VerdictRetry {
		t.Errorf("Adyen says to come again: %+v", j)
	}
}

func (r *rig) keysAt(at int) redisdb.Keys { return redisdb.NewKeys(r.cfg.Gateways[at].Name) }

// due ends a job's back-off.
func (r *rig) due(at int, id string) {
	r.t.Helper()
	k := r.keysAt(at)
	r.db.Client.HSet(r.t.Context(), k.Job(id), "due", 1)
	r.db.Client.ZAdd(r.t.Context(), k.Retrying(), redis.Z{Score: 1, Member: id})
}
