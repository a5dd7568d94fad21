package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/feed"
	"spillway/internal/job"
)

const (
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// This is the example of the standard, with which its libraries are tested.
func TestTheSignatureIsTheStandards(t *testing.T) {
	t.Parallel()
	s, err := New(Config{URL: "https://h/", Secrets: []string{oldSecret}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Error(got)
	}
}

// receiver verifies requests as the standard says, and records the events that it accepted.
type receiver struct {
	t      *testing.T
	secret string
	answer func(id string, times int) int // what it answers; nil: 204

	mu    sync.Mutex
	times map[string]int
	taken []event
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	id, at := q.Header.Get("webhook-id"), q.Header.Get("webhook-timestamp")
	if err := verify(r.secret, q.Header, body); err != nil {
		r.t.Error(err)
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil || e.ID != id || q.Header.Get("Content-Type") != "application/cloudevents+json" || at == "" {
		r.t.Errorf("%v %s", err, body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[id]++
	status := http.StatusNoContent
	if r.answer != nil {
		status = r.answer(id, r.times[id])
	}
	if status < 300 {
		r.taken = append(r.taken, e)
	}
	w.WriteHeader(status)
}

// verify verifies a request as the standard says, with constant-time comparison and a tolerance of five minutes.
func verify(secret string, h http.Header, body []byte) error {
	at, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if age := time.Since(time.Unix(at, 0)); err != nil || age > 5*time.Minute || age < -5*time.Minute {
		return fmt.Errorf("its timestamp is %q", h.Get("webhook-timestamp"))
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	for versioned := range strings.SplitSeq(h.Get("webhook-signature"), " ") {
		version, signature, _ := strings.Cut(versioned, ",")
		got, err := base64.StdEncoding.DecodeString(signature)
		if err == nil && version == "v1" && hmac.Equal(got, mac.Sum(nil)) {
			return nil
		}
	}
	return errors.New("no signature is of this secret: " + h.Get("webhook-signature"))
}

func rig(t *testing.T, secret string, answer func(id string, times int) int) (*receiver, *Sender) {
	r := &receiver{t: t, secret: secret, answer: answer, times: map[string]int{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	s, err := New(Config{URL: server.URL + "/hooks?token=canary", Secrets: []string{newSecret, oldSecret}, Reader: "mailer"})
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

// outcomes returns three outcomes of each of some jobs, mixed, then one of their batch and one of a later job.
func outcomes(jobs int) (page []feed.Outcome) {
	put := func(id, state string) {
		at := time.UnixMicro(1_763_742_851_000_000 + int64(len(page))).UTC()
		page = append(page, feed.Outcome{Cursor: fmt.Sprintf("1763742851-%d", at.UnixMicro()), Gateway: "stripe", ID: id, Batch: "b", State: state, Attempts: len(page), At: at})
	}
	for _, state := range []string{"parked", "parked", "done"} {
		for i := range jobs {
			put(fmt.Sprint("inv-", i), state)
		}
	}
	put("", feed.BatchDone)
	put("late", "done")
	return page
}

// ordered fails the test unless each outcome was accepted once, those of one job in order, and that of the batch after all before it.
func (r *receiver) ordered(page []feed.Outcome) {
	r.t.Helper()
	last, seen := map[string]int{}, map[string]bool{}
	for i, e := range r.taken {
		if seen[e.ID] {
			r.t.Errorf("%s was taken twice", e.ID)
		}
		seen[e.ID] = true
		if e.Data.Attempts < last[e.Subject] {
			r.t.Errorf("%s comes out of order", e.ID)
		}
		last[e.Subject] = e.Data.Attempts
		if e.Type == "spillway.outcome.batch_done" && i != len(page)-2 {
			r.t.Errorf("the batch's outcome is number %d of %d", i, len(page))
		}
	}
	if len(r.taken) != len(page) {
		r.t.Errorf("%d of %d were taken", len(r.taken), len(page))
	}
}

func TestOutcomesAreSentInOrderWithinAJob(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{oldSecret, newSecret} {
		r, s := rig(t, secret, nil)
		page := outcomes(40)
		upto, n, err := s.Put(t.Context(), "stripe", "", page)
		if err != nil || n != len(page) || upto != page[len(page)-1].Cursor {
			t.Fatal(upto, n, err)
		}
		r.ordered(page)
		if e := r.taken[0]; e.SpecVersion != "1.0" || e.Source != "/spillway/gateways/stripe" || e.Subject == "" || e.Time.IsZero() || e.ContentType != "application/json" {
			t.Errorf("%+v", e)
		}
	}
}

// An outcome that the receiver can't accept now is sent again until it is accepted. Accepted outcomes are not sent again.
func TestOutcomesAreSentAgainUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	failures := []int{500, 503, 408, 429, 425}
	r, s := rig(t, newSecret, func(id string, times int) int {
		if sum := sha256.Sum256([]byte(id)); times <= int(sum[0]%3) {
			return failures[sum[1]%5]
		}
		return 200
	})
	page, at, all := outcomes(30), "", 0
	for rest := page; len(rest) > 0; {
		upto, n, err := s.Put(t.Context(), "stripe", at, rest)
		if err != nil && job.CodeOf(err) != job.CodeUnavailable {
			t.Fatal(err)
		}
		all += n
		for len(rest) > 0 && rest[0].Cursor <= upto {
			rest = rest[1:]
		}
		at = upto
	}
	r.ordered(page)
	if all != len(page) {
		t.Errorf("%d were put", all)
	}
}

// A refused outcome stops the sending. All outcomes before it were accepted, and the error says how to go on.
func TestARefusalStopsTheSendingThere(t *testing.T) {
	t.Parallel()
	for _, status := range []int{410, 400, 301} {
		page := outcomes(30)
		refused := page[47]
		r, s := rig(t, newSecret, func(id string, _ int) int {
			if id == "stripe_"+refused.Cursor {
				return status
			}
			return 200
		})
		upto, _, err := s.Put(t.Context(), "stripe", "", page)
		if job.CodeOf(err) != job.CodeFailed || upto != page[46].Cursor || !strings.Contains(err.Error(), fmt.Sprintf("job inv-17 (parked) at stripe: HTTP %d", status)) || strings.Contains(err.Error(), "canary") {
			t.Fatal(upto, err)
		}
		for _, o := range page[:47] {
			if r.times["stripe_"+o.Cursor] != 1 {
				t.Errorf("%s was sent %d times", o.Cursor, r.times["stripe_"+o.Cursor])
			}
		}
		for _, o := range page[48:] {
			if o.ID == "inv-17" && r.times["stripe_"+o.Cursor] != 0 {
				t.Errorf("%s of the same job was sent", o.Cursor)
			}
		}
	}
}

func TestAReceiverSaysWhenItWantsToBeAskedAgain(t *testing.T) {
	t.Parallel()
	now, calls := time.Now(), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(server.Close)
	s, err := New(Config{URL: server.URL, Secrets: []string{newSecret}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	page := outcomes(1)[:1]
	for _, later := range []time.Duration{0, time.Minute, 59 * time.Second, 2 * time.Second} {
		now = now.Add(later)
		if _, _, err := s.Put(t.Context(), "stripe", "", page); job.CodeOf(err) != job.CodeUnavailable {
			t.Error(err)
		}
	}
	if calls != 2 {
		t.Errorf("it was asked %d times, want 2", calls)
	}
	server.Close()
	now = now.Add(time.Hour)
	if _, _, err := s.Put(t.Context(), "stripe", "", page); job.CodeOf(err) != job.CodeUnavailable || strings.Contains(err.Error(), server.URL) {
		t.Error(err)
	}
}

// Retry-After has more seconds than a duration can have. As with any long time, the next try is in an hour.
func TestAReceiverThatWantsToBeAskedNeverAgainIsAskedInAnHour(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, text := range []string{"9999999999", "18446744074", now.Add(48 * time.Hour).UTC().Format(http.TimeFormat)} {
		s := &Sender{cfg: Config{Now: func() time.Time { return now }}}
		if s.hold(text); !s.until.Equal(now.Add(time.Hour)) {
			t.Errorf("%s: in %v", text, s.until.Sub(now))
		}
	}
}

func TestWhenItIsToldToStopNoMoreIsSent(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	r, s := rig(t, newSecret, func(string, int) int { stop(); return 200 })
	page := outcomes(100)
	upto, n, err := s.Put(ctx, "stripe", "", page)
	if err != nil || n == 0 || n > lanes || len(r.taken) != n {
		t.Fatal(upto, n, err)
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{
		{URL: "https://h/", Secrets: nil}, {URL: "https://h/", Secrets: []string{"canary"}}, {URL: "https://h/", Secrets: []string{"whsec_c2hvcnQ="}}, {URL: "https://h/", Secrets: []string{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
		{URL: "https://h/", Secrets: []string{oldSecret, oldSecret, newSecret}}, {URL: "https:///canary", Secrets: []string{oldSecret}}, {URL: "ftp://canary", Secrets: []string{oldSecret}},
	} {
		if _, err := New(c); job.CodeOf(err) != job.CodeUsage || strings.Contains(err.Error(), "canary") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
