package dispatch

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

const clientSecret = "s3cret-of-the-client"

// authority is a token endpoint and the gateway that accepts its tokens.
type authority struct {
	*rig
	log *testkit.Log

	mu      sync.Mutex
	life    int                                                    // of tokens, in seconds
	granted []string                                               // in order
	valid   map[string]bool                                        // those that the gateway takes
	secret  string                                                 // of the client
	asked   int                                                    // requests for tokens
	down    bool                                                   // the endpoint gives no token
	called  int                                                    // calls of the gateway
	refused int                                                    // calls that it answered with 401
	answer  func(call int, w http.ResponseWriter, r *http.Request) // nil: 200
}

// opened makes a gateway that requires access tokens. settings is the rest of its configuration.
func opened(t *testing.T, settings string) *authority {
	t.Helper()
	a := &authority{rig: &rig{t: t}, log: &testkit.Log{}, life: 3600, valid: map[string]bool{}, secret: clientSecret}
	endpoint := httptest.NewServer(http.HandlerFunc(a.grant))
	gateway := httptest.NewServer(http.HandlerFunc(a.pay))
	t.Cleanup(endpoint.Close)
	t.Cleanup(gateway.Close)
	a.parse(fmt.Sprintf("redis: %s\ngateways:\n  %s:\n    request:\n      url: %q\n      timeout: 20s\n      oauth2: {token_url: %q, client_id: me, client_secret: %q}\n    %s\n",
		testkit.Redis(t), testkit.Gateway(t), gateway.URL, endpoint.URL+"/token", clientSecret, strings.ReplaceAll(settings, "\n", "\n    ")))
	var err error
	if a.db, err = Open(t.Context(), a.cfg, patience); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.db.Close() })
	return a
}

func (a *authority) grant(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	w.Header().Set("Content-Type", "application/json")
	_, secret, _ := r.BasicAuth()
	switch {
	case a.down:
		w.WriteHeader(http.StatusBadGateway)
	case secret != a.secret:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":"invalid_client","error_description":"not `+secret+`"}`)
	default:
		token := fmt.Sprintf("access-token-%d", len(a.granted)+1)
		a.granted = append(a.granted, token)
		a.valid[token] = true
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token, a.life)
	}
}

func (a *authority) pay(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.called++
	call, answer := a.called, a.answer
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	valid := a.valid[token]
	if !valid {
		a.refused++
	}
	a.mu.Unlock()
	switch {
	case !valid:
		w.WriteHeader(http.StatusUnauthorized)
	case answer != nil:
		answer(call, w, r)
	}
}

// revoke makes the gateway reject all tokens granted so far.
func (a *authority) revoke() {
	a.set(func() { clear(a.valid) })
}

func (a *authority) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *authority) counts() (asked, called, refused int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked, a.called, a.refused
}

// start starts a dispatcher whose log the test reads.
func (a *authority) start() *Dispatcher {
	a.t.Helper()
	a.t.Cleanup(func() {
		for _, secret := range []string{"access-token", clientSecret} {
			if strings.Contains(a.log.String(), secret) {
				a.t.Errorf("%s is in the log", secret)
			}
		}
	})
	return a.serveWith(slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

func (a *authority) done(n int64) func() bool {
	return func() bool { return a.standing(0).Done == n }
}

func (a *authority) record(id string) job.Record {
	a.t.Helper()
	r, ok, err := Books(a.db.Client, a.cfg.Gateways[0]).Find(a.t.Context(), id)
	if err != nil || !ok {
		a.t.Fatal(err, ok)
	}
	return r
}

func (a *authority) look() Glance {
	a.t.Helper()
	v, err := Look(a.t.Context(), a.db.Client, a.cfg.Gateways[0])
	if err != nil {
		a.t.Fatal(err)
	}
	return v
}

// Two processes share one access token. When it is revoked, each job is called again with a new one: no attempt is spent, no history has a 401, and no gateway is held.
func TestARevokedTokenCostsNoAttempt(t *testing.T) {
	t.Parallel()
	a := opened(t, "leak: {limits: [100/s]}\nretry: {attempts: 1}")
	a.start()
	a.start()
	a.put(0, 100)
	testkit.Eventually(t, 20*time.Second, "some calls", func() bool { _, called, _ := a.counts(); return called >= 30 })
	a.revoke()
	testkit.Eventually(t, 20*time.Second, "all to be done", a.done(100))
	asked, called, refused := a.counts()
	if asked != 2 || refused == 0 || called != 100+refused {
		t.Errorf("%d requests for tokens, %d calls, %d of them answered 401", asked, called, refused)
	}
	for i := range 100 {
		if r := a.record(fmt.Sprintf("j%04d", i)); len(r.History) != 1 || r.History[0].Status != 200 || r.Spent != 0 {
			t.Errorf("%s: spent %d, %+v", r.Job.ID, r.Spent, r.History)
		}
	}
	if strings.Contains(a.log.String(), "does not let us in") {
		t.Error("the gateway was held")
	}
}

// A gateway that answers 401 to every token is held. It gets few calls, and its token endpoint few requests.
func TestAGatewayThatAlwaysRefusesSeesFewCalls(t *testing.T) {
	t.Parallel()
	a := opened(t, "leak: {limits: [20/s]}")
	a.refuseAll()
	a.start()
	a.put(0, 100)
	testkit.Eventually(t, 20*time.Second, "the gateway to be held", func() bool { return a.look().Hold.Denied })
	began := time.Now()
	testkit.Eventually(t, 20*time.Second, "five seconds of a hold", func() bool { return time.Since(began) > 5*time.Second })
	asked, called, _ := a.counts()
	if asked > 2 || called > 12 {
		t.Errorf("%d requests for tokens and %d calls", asked, called)
	}
	if v := a.look(); v.Retrying+v.Queued+v.InFlight != 100 || !strings.Contains(v.Stopped, "does not let calls in") {
		t.Errorf("%+v, stopped: %s", v.Standing, v.Stopped)
	}
}

// Without a token no call is made and no slot is used, and status, job and log say why. After the secret is corrected, a reload is enough.
func TestWithoutATokenNothingIsCalled(t *testing.T) {
	t.Parallel()
	a := opened(t, "leak: {limits: [1/h], jitter: 1m}\ncircuit: {max: 1s}") // if the slot is lost, the job waits for an hour
	a.set(func() { a.secret = "rotated-secret" })
	d := a.start()
	a.put(0, 1)
	testkit.Eventually(t, 20*time.Second, "status to say why", func() bool { return a.look().Stopped != "" && a.look().Hold.NoToken })
	v := a.look()
	if want := "no access token: HTTP 401 from http://"; !strings.HasPrefix(v.Stopped, want) || !strings.Contains(v.Stopped, ": invalid_client; one is asked for again at ") {
		t.Errorf("stopped: %s", v.Stopped)
	}
	r := a.record("j0000")
	why, err := WhyNot(t.Context(), a.db.Client, a.cfg.Gateways[0], r)
	if err != nil || !strings.Contains(why, "no access token: HTTP 401") || r.Spent != 0 || len(r.History) != 0 {
		t.Errorf("%s, %v, %+v", why, err, r.History)
	}
	if !strings.Contains(a.log.String(), "no access token: HTTP 401 from http://") {
		t.Error("the log does not say why")
	}
	g := a.cfg.Gateways[0]
	g.Request.OAuth2.ClientSecret = "rotated-secret"
	if _, err := d.Reload(t.Context(), []config.Gateway{g}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, "the job to be done", a.done(1))
	if v := a.look(); v.Stopped != "" || v.Hold.NoToken {
		t.Errorf("stopped: %s", v.Stopped)
	}
}

// A token endpoint that is down for a while is an outage like any other: no attempt is spent, and calls continue when it is back.
func TestATokenEndpointThatIsDownForAWhile(t *testing.T) {
	t.Parallel()
	a := opened(t, "leak: {limits: [100/s]}\nretry: {attempts: 1}\ncircuit: {max: 1s}")
	a.set(func() { a.down, a.life = true, 1 })
	a.start()
	a.put(0, 20)
	testkit.Eventually(t, 20*time.Second, "it to be asked twice", func() bool { asked, _, _ := a.counts(); return asked >= 2 })
	if _, called, _ := a.counts(); called != 0 {
		t.Errorf("%d calls without a token", called)
	}
	a.set(func() { a.down = false })
	back := time.Now()
	testkit.Eventually(t, 20*time.Second, "all to be done", a.done(20))
	if took := time.Since(back); took > 30*time.Second {
		t.Errorf("it took %s after the endpoint was back", took)
	}
	if r := a.record("j0000"); r.Spent != 0 || len(r.History) != 1 {
		t.Errorf("%+v", r)
	}
}

// A rule on 401 in the file applies, whatever happens to the token.
func TestARuleOn401Wins(t *testing.T) {
	t.Parallel()
	a := opened(t, "leak: {limits: [100/s]}\nanswers: {rules: [{status: 401, then: refused}]}")
	a.refuseAll()
	a.start()
	a.put(0, 1)
	testkit.Eventually(t, 20*time.Second, "the job to be parked", func() bool { return a.standing(0).Parked[job.Refused] == 1 })
	if _, called, _ := a.counts(); called != 1 {
		t.Errorf("%d calls", called)
	}
}

// refuseAll makes the gateway reject every token, also those granted later.
func (a *authority) refuseAll() {
	a.set(func() {
		a.answer = func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	})
}

// After a 401, a job whose earlier call may have charged is as unsure as before: the same key is sent, and the record says that it may have charged.
func TestA401LeavesAnUnsureJobUnsure(t *testing.T) {
	t.Parallel()
	a := opened(t, "leak: {limits: [100/s]}\nretry: {first: 50ms}")
	var keys []string
	var seen job.Record
	a.set(func() {
		a.answer = func(call int, w http.ResponseWriter, r *http.Request) {
			a.set(func() { keys = append(keys, r.Header.Get("Idempotency-Key")) })
			switch call {
			case 1: // it charges, and the answer is lost
				a.revoke()
				if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
					c.Close()
				}
			default:
				got := a.record("j0000")
				a.set(func() { seen = got })
			}
		}
	})
	a.start()
	a.put(0, 1)
	testkit.Eventually(t, 20*time.Second, "the job to be done", a.done(1))
	_, called, refused := a.counts()
	if called != 3 || refused != 1 || len(keys) != 2 || keys[0] != keys[1] {
		t.Errorf("%d calls, %d answered 401, keys %q", called, refused, keys)
	}
	if !seen.Unsure || seen.KeyGeneration > 1 {
		t.Errorf("after the 401 the record was %+v", seen)
	}
}

// If the gateway repeats the token in its answer, the record does not contain it.
func TestTheTokenIsNotInRecordedAnswers(t *testing.T) {
	t.Parallel()
	a := opened(t, "leak: {limits: [100/s]}")
	a.set(func() {
		a.answer = func(_ int, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprintf(w, `{"sent":%q,"secret":%q}`, r.Header.Get("Authorization"), clientSecret)
		}
	})
	a.start()
	a.put(0, 1)
	testkit.Eventually(t, 20*time.Second, "the job to be parked", func() bool { return a.standing(0).Parked[job.Refused] == 1 })
	if r := a.record("j0000"); r.Error != `HTTP 422: {"sent":"Bearer <secret>","secret":"<secret>"}` {
		t.Errorf("recorded: %s", r.Error)
	}
}
