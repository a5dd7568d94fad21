package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

// The examples that others publish of their ways to sign.
func TestSignaturesAsPublished(t *testing.T) {
	t.Parallel()
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sign       Sign
		id, body   string
		at         int64
		want, time string
	}{
		"GitHub's documentation": {Sign{Header: "X-Hub-Signature-256", Value: "sha256={signature}", Secret: []byte("It's a Secret to Everybody"), Content: "{body}"},
			"j", "Hello, World!", 0, "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", ""},
		"Standard Webhooks": {Sign{Header: "webhook-signature", Value: "v1,{signature}", Secret: key, Content: "{id}.{timestamp}.{body}", Encoding: "base64",
			TimestampHeader: "webhook-timestamp"},
			"msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`, 1614265330, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "1614265330"},
	} {
		s, err := newSigner(c.sign)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "https://api.example.com/v1", nil)
		s.sign(&message{head: *r, body: []byte(c.body)}, job.Request{Job: job.Job{ID: c.id}}, time.Unix(c.at, 0))
		if got := r.Header.Get(c.sign.Header); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := r.Header.Get("webhook-timestamp"); got != c.time {
			t.Errorf("%s: timestamp %q", name, got)
		}
	}
}

// A server checks each call by what came in, as a gateway would.
func TestASignedCallAtAServer(t *testing.T) {
	t.Parallel()
	const secret = "whsec_" + canary
	type got struct{ line, body, key, signature, stamp string }
	calls := make(chan got, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- got{r.Method + " " + r.RequestURI, string(body), r.Header.Get("Idempotency-Key"), r.Header.Get("X-Signature"), r.Header.Get("X-Time")}
	}))
	defer srv.Close()
	for _, c := range []struct {
		cfg  Config
		sign func(g got) string // what the server makes of a call
		tick time.Duration      // one of the timestamp
	}{
		{Config{URL: srv.URL + "/v1/{id}?a=b%20c", Sign: Sign{Content: "{method} {path}?{query}\n{key}\n{timestamp}.{body}", TimestampHeader: "X-Time"}},
			func(g got) string {
				mac := hmac.New(sha256.New, []byte(secret))
				io.WriteString(mac, g.line+"\n"+g.key+"\n"+g.stamp+"."+g.body)
				return hex.EncodeToString(mac.Sum(nil))
			}, time.Second},
		{Config{URL: srv.URL, Encoding: "form", Sign: Sign{Algorithm: "sha512", Encoding: "base64", Value: "t={timestamp},v1={signature}", Content: "{path} {timestamp} {body}", Timestamp: "unix-ms"}},
			func(g got) string {
				stamp, _, _ := strings.Cut(strings.TrimPrefix(g.signature, "t="), ",")
				mac := hmac.New(sha512.New, []byte(secret))
				io.WriteString(mac, "/ "+stamp+" "+g.body)
				return "t=" + stamp + ",v1=" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
			}, time.Millisecond},
	} {
		c.cfg.Sign.Header, c.cfg.Sign.Secret = "X-Signature", []byte(secret)
		due := time.Now().Add(1100 * time.Millisecond) // the timestamp is the attempt's, not that of its preparation
		res := client(t, c.cfg).Send(context.Background(), job.Request{Job: job.Job{ID: "in 1/ä{body}", Payload: []byte(`{"a":"{key}"}`)}, Key: "k1", Due: due})
		if res.Status != http.StatusOK {
			t.Fatalf("%+v", res)
		}
		g := <-calls
		if want := c.sign(g); g.signature != want || g.body == "" {
			t.Errorf("%s %q is signed %s, the server computes %s", g.line, g.body, g.signature, want)
		}
		stamp := g.stamp
		if stamp == "" {
			stamp, _, _ = strings.Cut(strings.TrimPrefix(g.signature, "t="), ",")
		}
		ticks, err := strconv.ParseInt(stamp, 10, 64)
		if from, to := due.UnixNano()/int64(c.tick), res.Wrote.UnixNano()/int64(c.tick); err != nil || ticks < from || ticks > to {
			t.Errorf("timestamp %s, want %d to %d", stamp, from, to)
		}
	}
}

func TestAttemptsOfAJobAreSignedAnew(t *testing.T) {
	t.Parallel()
	s, err := newShape(Config{URL: "https://x.example/", Sign: Sign{Header: "X-Signature", Secret: []byte("s"), Content: "{timestamp}.{body}", TimestampHeader: "X-Time", Timestamp: "rfc3339"}})
	if err != nil {
		t.Fatal(err)
	}
	var last string
	for i, want := range []string{"2026-11-01T00:00:00Z", "2026-11-01T00:00:09Z"} {
		m, err := s.message(call("j"), time.Date(2026, 11, 1, 0, 0, 9*i, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		if m.head.Header.Get("X-Time") != want || m.head.Header.Get("X-Signature") == last {
			t.Errorf("%v", m.head.Header)
		}
		last = m.head.Header.Get("X-Signature")
	}
}
