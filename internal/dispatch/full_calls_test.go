package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// filling is a hook that fills Redis as soon as an attempt is recorded, so that Redis is full when the call ends.
type filling struct{ server *testkit.RedisServer }

func (f filling) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f filling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f filling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		script, is := cmd.(*redis.Cmd)
		if !is || err != nil {
			return err
		}
		if reply, _ := script.Slice(); len(reply) > 0 && reply[0] == string(job.OpenGo) {
			return f.server.Client().ConfigSet(ctx, "maxmemory", "1").Err()
		}
		return nil
	}
}

// gone returns the address of a gateway that refuses connections.
func gone(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

// A whole dispatcher records the outcome of a call correctly even if Redis is full by then. Otherwise the call would later look like an attempt
// that was cut off, which may have charged.
func TestWhatCallsCameToIsWrittenDownInAFullRedis(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		answer  http.HandlerFunc // nil: nobody is there
		timeout string           // of a call; empty: more than a busy machine's gateway takes
		keyless bool
		state   job.State
		reason  job.Reason
		held    bool
		calls   string // their statuses and verdicts
	}{
		"200":              {answer: status(200), state: job.Done, calls: "[200 done]"},
		"429":              {answer: status(429), state: job.Retrying, held: true, calls: "[429 hold]"},
		"429, wait":        {answer: status(429, "Retry-After", "7"), state: job.Retrying, held: true, calls: "[429 hold]"},
		"429, no key":      {answer: status(429), keyless: true, state: job.Retrying, held: true, calls: "[429 hold]"},
		"500":              {answer: status(500), state: job.Retrying, calls: "[500 retry]"},
		"500, no key":      {answer: status(500), keyless: true, state: job.Parked, reason: job.UnknownOutcome, calls: "[500 unknown]"},
		"503, wait":        {answer: status(503, "Retry-After", "7"), state: job.Retrying, held: true, calls: "[503 hold]"},
		"403":              {answer: status(403), state: job.Retrying, held: true, calls: "[403 hold]"},
		"402":              {answer: status(402), state: job.Parked, reason: job.Refused, calls: "[402 refused]"},
		"fewer":            {answer: status(418), state: job.Retrying, held: true, calls: "[418 fewer]"},
		"accepted":         {answer: status(202), state: job.Parked, reason: job.UnknownOutcome, calls: "[202 accepted]"},
		"new key":          {answer: status(421), state: job.Retrying, calls: "[421 new_key]"},
		"refused":          {state: job.Retrying, calls: "[]"},
		"time-out":         {answer: hang, timeout: "2s", state: job.Retrying, calls: "[0 retry]"},
		"time-out, no key": {answer: hang, timeout: "2s", keyless: true, state: job.Parked, reason: job.UnknownOutcome, calls: "[0 unknown]"},
	}
	var came string
	for _, tc := range cases {
		came += tc.calls
	}
	for _, v := range job.Verdicts() {
		if !strings.Contains(came, string(v)+"]") {
			t.Errorf("no call comes to %s: add a case", v)
		}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, server := full(t, tc.answer, cmp.Or(tc.timeout, "30s"), tc.keyless)
			g := r.cfg.Gateways[0]
			r.serve()
			t.Cleanup(func() { server.Client().ConfigSet(context.Background(), "maxmemory", "0") }) // a dispatcher does not stop before all is written down
			var rec job.Record
			testkit.Eventually(t, 15*time.Second, "the outcome to be written down", func() bool {
				rec, _, _ = Books(server.Client(), g).Find(t.Context(), "j0000")
				if rec.State == job.Queued && rec.Generation > 1 { // its slot passed on a busy machine, and a full Redis gives out no other
					server.Client().ConfigSet(t.Context(), "maxmemory", "0")
				}
				return rec.State != job.Queued && rec.State != job.InFlight || len(rec.History) > 0
			})
			var calls []string
			for _, c := range rec.History {
				calls = append(calls, fmt.Sprintf("%d %s", c.Status, c.Verdict))
			}
			if rec.State != tc.state || rec.Reason != tc.reason || fmt.Sprint(calls) != tc.calls {
				t.Errorf("%s %s, calls %v; want %s %s, %s", rec.State, rec.Reason, calls, tc.state, tc.reason, tc.calls)
			}
			h, err := Hold(t.Context(), server.Client(), g)
			if err != nil || tc.held != strings.HasPrefix(h.Reason, "HTTP ") {
				t.Errorf("held: %+v, %v", h, err)
			}
		})
	}
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for pair := range slices.Chunk(header, 2) {
			w.Header().Set(pair[0], pair[1])
		}
		w.WriteHeader(code)
	}
}

func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then is the end of the connection seen
	<-r.Context().Done()
}

// full returns a rig with one job, on a Redis that is full from the first attempt on.
func full(t *testing.T, answer http.HandlerFunc, timeout string, keyless bool) (*rig, *testkit.RedisServer) {
	t.Helper()
	server := testkit.Server(t)
	url := gone(t)
	if answer != nil {
		gateway := httptest.NewServer(answer)
		t.Cleanup(gateway.Close)
		url = gateway.URL
	}
	header := "Idempotency-Key"
	if keyless {
		header = ""
	}
	text := fmt.Sprintf(`gateways: {g: {request: {url: %q, timeout: %s, idempotency_header: %q}, leak: {limits: [50/s]}, circuit: {failures: 2},
    answers: {rules: [{status: 418, then: fewer}, {status: 202, then: accepted}, {status: 421, then: new_key}]}}}`, url, timeout, header)
	cfg, err := config.Parse("x.yaml", []byte(text), config.Options{Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, cfg: cfg}
	r.on(server)
	r.put(0, 1)
	r.db.Client.AddHook(filling{server})
	return r, server
}
