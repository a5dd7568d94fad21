package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// secrets are those of this story, by what they are.
var secrets = map[string]string{
	"the password of Redis": "redis-CANARY-1",
	"the token":             "token-CANARY-2",
	"a header's secret":     "sk-CANARY-3",
	"another header's":      "hdr-CANARY-4",
	"a secret in a URL":     "url-CANARY-5",
	"a payload's field":     "pay-CANARY-6",
	"a key of signatures":   "sig-CANARY-7",
	"a key of payloads":     secretOf("c"),
	"a key in the clear":    strings.Repeat("c", 32),
}

// shown collects all output, by place.
type shown struct {
	t   *testing.T
	mu  sync.Mutex
	all map[string]string
}

func (s *shown) add(where, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[where] += text + "\n"
}

// search looks for the secrets in all output, also encoded. Payloads may be where somebody asked for them.
func (s *shown) search(deliberate func(where string) bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := 0
	for where, text := range s.all {
		for what, secret := range secrets {
			for form, as := range map[string]string{"": secret, " in base64": base64.StdEncoding.EncodeToString([]byte(secret)),
				" in hex": hex.EncodeToString([]byte(secret)), " escaped": url.QueryEscape(secret)} {
				at := strings.Index(text, as)
				if at >= 0 && what == "a payload's field" && deliberate(where) {
					asked++
				} else if at >= 0 {
					s.t.Errorf("%s%s is in %s: …%s…", what, form, where, text[max(0, at-80):min(len(text), at+40)])
				}
			}
		}
	}
	if asked < 5 {
		s.t.Errorf("payloads were found in only %d of the places that show them: does the search see anything?", asked)
	}
}

// mirror is a gateway that fails in several ways. The job's id says which.
func mirror(w http.ResponseWriter, r *http.Request) {
	id, _, _ := strings.Cut(r.Header.Get("Idempotency-Key")+r.Header.Get("X-Job"), "-")
	switch id {
	case "no":
		w.WriteHeader(http.StatusPaymentRequired)
	case "mirror": // it says again who asked
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "refused %v ?%s", r.Header, r.URL.RawQuery)
		return
	case "err":
		w.WriteHeader(http.StatusInternalServerError)
	case "cut":
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintln(w, `{"id":"pi_1"}`)
}

const leaky = `redis: redis://:%[1]s@%[2]s/0
token: ${TOKEN}
encryption: {keys: {k1: "${PAYLOAD_KEY}"}, active: k1}
gateways:
  stripe:
    request:
      url: %[3]s/charge/{payload.card}?api_key=${URL_KEY}
      headers: {Authorization: "Bearer ${HEADER_KEY}", X-Extra: "${EXTRA}"}
      sign: {header: X-Signature, secret: "${SIGN_KEY}", value: "t={timestamp},v1={signature}"}
    amount: {field: amount, currency: currency}
    leak: {limits: [200/s]}
    retry: {attempts: 2, first: 10ms, max: 10ms}
    circuit: off
    replay: manual
  keyless:
    request: {url: "%[3]s/form?api_key=${URL_KEY}", encoding: form, idempotency_header: "", headers: {X-Job: err-1, Authorization: "${HEADER_KEY}"}}
    leak: {limits: [200/s]}
    circuit: off
  gone:
    request: {url: "http://127.0.0.1:%[4]d/{payload.card}?api_key=${URL_KEY}"}
    leak: {limits: [200/s]}
  full:
    request: {url: "%[3]s/x", idempotency_prefix: full-}
    leak: {limits: [200/s]}
    admission: {limits: [1/h], burst: 1}
    replay: manual
`

// No output of a program holds a secret, or a payload that nobody asked for.
func TestNoSecretAndNoPayloadIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [1/s]}\n")
	if err := w.redis.Client().ConfigSet(t.Context(), "requirepass", secrets["the password of Redis"]).Err(); err != nil {
		t.Fatal(err)
	}
	pay := httptest.NewServer(http.HandlerFunc(mirror))
	t.Cleanup(pay.Close)
	w.config = w.file("dispatcher.yaml", fmt.Sprintf(leaky, secrets["the password of Redis"], w.redis.Addr(), pay.URL, testkit.FreePort(t)))
	s := &shown{t: t, all: map[string]string{}}
	spans := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.add("the traces", string(body))
	}))
	t.Cleanup(spans.Close)
	w.more = []string{"TOKEN=" + secrets["the token"], "HEADER_KEY=" + secrets["a header's secret"], "EXTRA=" + secrets["another header's"],
		"URL_KEY=" + secrets["a secret in a URL"], "PAYLOAD_KEY=" + secrets["a key of payloads"], "SIGN_KEY=" + secrets["a key of signatures"],
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_BSP_SCHEDULE_DELAY=100"}

	w.feed(s)
	at := w.talkative(s)
	w.shown(t, 60*time.Second, "every job to be somewhere", func() bool { return w.waiting(s) == 0 })
	w.commands(s)
	w.requests(s, "http://"+at)
	w.pages(s, "http://"+at)
	for _, r := range w.runs {
		r.stop()
		s.add("the log of "+r.log.Name(), r.text())
	}
	if s.all["the traces"] == "" {
		t.Error("no trace came")
	}
	if !strings.Contains(s.all["dispatcher job mirror-1"], "X-Extra:[<secret>]") {
		t.Errorf("the gateway's words are not shown:\n%s", s.all["dispatcher job mirror-1"])
	}
	s.search(func(where string) bool {
		return strings.Contains(where, "--payload") || strings.Contains(where, "payload=1") || strings.Contains(where, "--plain") || where == "the rejects"
	})
	inside := redis.NewClient(&redis.Options{Addr: w.redis.Addr(), Password: secrets["the password of Redis"]})
	defer inside.Close()
	t.Logf("looked at %d outputs, and at %d places in Redis", len(s.all), hidden(t, inside, w.redis.Dir(), "CANARY"))
}

// say runs a program and collects its output.
func (w *world) say(s *shown, program string, args ...string) result {
	w.t.Helper()
	r := w.do(program, args...)
	s.add(program+" "+strings.Join(args, " "), r.out+"\n"+r.err)
	return r
}

func card(more string) string {
	return `{"amount":5,"currency":"EUR","card":"` + secrets["a payload's field"] + `"` + more + `}`
}

// feed enqueues good lines for every way to fail, and bad lines.
func (w *world) feed(s *shown) {
	w.t.Helper()
	var good strings.Builder
	for _, id := range []string{"ok-1", "ok-2", "no-1", "mirror-1", "err-1", "cut-1", "later-1"} {
		at := ""
		if id == "later-1" {
			at = `,"at":"2099-01-01T00:00:00Z"`
		}
		fmt.Fprintf(&good, `{"id":%q,"payload":%s%s}`+"\n", id, card(""), at)
	}
	good.WriteString(`{"id":"unfilled-1","payload":{"amount":5,"currency":"EUR","other":"` + secrets["a payload's field"] + `"}}` + "\n")
	file := w.file("good.ndjson", good.String())
	w.say(s, "enqueue", "-g", "stripe", "-f", file, "--batch", "b1", "-o", "json")
	w.say(s, "enqueue", "-g", "stripe", "-f", file, "--batch", "b1")
	var others strings.Builder
	for _, g := range []string{"keyless", "gone", "full", "full"} {
		fmt.Fprintf(&others, `{"id":"a-%d","gateway":%q,"payload":%s}`+"\n", others.Len(), g, card(""))
	}
	w.say(s, "enqueue", "-f", w.file("others.ndjson", others.String()))
	c := secrets["a payload's field"]
	bad := w.file("bad.ndjson", strings.Join([]string{
		`{"id":"x1","payload":{"card":"` + c + `}`, c, `["` + c + `"]`, `{"id":"x2","payload":"` + c + `"}`, `{"id":"x3","payload":{"n":01,"card":"` + c + `"}}`,
		`{"id":"x4","payload":` + card(`,"card":1`) + `}`, `{"id":"x5","cost":"` + c + `","payload":{}}`, `{"id":"x6","at":"` + c + `","payload":{}}`,
		`{"id":"x7","payload":` + card("") + `} ` + c, `{"id":"ok-1","payload":` + card(`,"n":2`) + `}`, `{"id":"x8","sealed":"` + c + `"}`,
		`{"id":"x9","payload":{"card":"` + c + `\ud800"}}`, `{"payload":` + card("") + `}`, `{"id":"x10","payload":{"card":"` + c + strings.Repeat("x", 1<<20) + `"}}`,
	}, "\n")+"\n")
	rejects := filepath.Join(w.dir, "rejects")
	if r := w.say(s, "enqueue", "-g", "stripe", "-f", bad, "--rejects", rejects); r.code != 3 {
		w.t.Errorf("bad lines: exit code %d\n%s", r.code, r.err)
	}
	if text, err := os.ReadFile(rejects); err == nil { // they go back to who brought them
		s.add("the rejects", string(text))
	}
	w.say(s, "enqueue", "-g", "stripe", "-f", bad, "--dry-run", "-o", "json")
	w.say(s, "enqueue", "-g", "stripe", "-f", file, "--expect-sum", "1")
	table := w.file("bad.csv", "invoice,card\n1,"+c+","+c+"\n2,\""+c+"\n")
	w.say(s, "enqueue", "-g", "stripe", "-f", table, "--id-field", "invoice")
}

// talkative starts two dispatchers that log everything, and returns the address of one.
func (w *world) talkative(s *shown) string {
	w.t.Helper()
	at := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(w.t))
	w.dispatcherAsIs("--listen", at, "--log-level", "debug", "-o", "json")
	w.dispatcherAsIs("--listen", "", "--log-level", "debug")
	testkit.Eventually(w.t, time.Minute, "the dispatcher to answer", func() bool {
		resp, err := http.Get("http://" + at + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == 200
	})
	return at
}

// waiting counts the jobs that are queued, retrying or in flight, without those of the gateway that does not exist.
func (w *world) waiting(s *shown) (n int) {
	w.t.Helper()
	for _, g := range decode[struct {
		Gateways []struct {
			Gateway          string
			Queued, Retrying int
			InFlight         int `json:"in_flight"`
		}
	}](w.t, w.say(s, "dispatcher", "status", "-o", "json").out).Gateways {
		if g.Gateway != "gone" {
			n += g.Queued + g.Retrying + g.InFlight
		}
	}
	return n
}

// commands runs every command that shows something.
func (w *world) commands(s *shown) {
	w.t.Helper()
	password := secrets["the password of Redis"]
	for _, line := range []string{"job mirror-1", "job cut-1", "job err-1 -o json", "job unfilled-1", "job later-1", "job nobody", "dlq show mirror-1 -o json", "dlq show unfilled-1", "dlq show no-1 --payload",
		"job no-1 --payload -o json", "dlq list --payload", "dlq export --plain", "status", "top", "dlq list", "dlq list -o json", "dlq list --match CANARY", "dlq stats", "dlq export", "dlq replay",
		"dlq discard --why x -g full --yes", "dlq resolve --done --why x --yes", "dlq replay --reason refused --yes --why again", "dlq history -o json", "batch b1", "batch b1 --export",
		"park later-1 --why x", "park later-1 --why x -o json", "batch pause b1 --why x", "batch resume b1 --why x", "batch cancel b1 --why x", "audit", "doctor", "limit show -g stripe", "limit set -g stripe 100/s", "limit forgive -g stripe --why x", "pause -g keyless --why x",
		"status --redis redis://:" + password + "@127.0.0.1:nowhere/0", "status --redis http://u:" + password + "@x", "doctor --redis redis://:" + password + "@127.0.0.1:1/0"} {
		args := strings.Fields(line)
		r := w.do("dispatcher", args...)
		where := "dispatcher " + line
		if at := slices.Index(args, "--redis"); at >= 0 { // what was typed is not what was said
			where = "dispatcher " + args[0] + " with an address that fails"
		}
		s.add(where, r.out+"\n"+r.err)
	}
	for _, broken := range []string{"redis: redis://", "key: ${TOKEN}"} {
		text := strings.Replace(strings.Replace(read(w.t, w.config), "token:", "key:", 1), broken, broken+"\n  }: x${", 1)
		r := w.do("dispatcher", "run", "-c", w.file("broken.yaml", text))
		s.add("a configuration with a fault behind "+broken, r.out+r.err)
	}
}

// ask makes a request with the token and notes the answer, headers and all.
func (w *world) ask(s *shown, method, address, kind, body string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secrets["the token"])
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		s.add(method+" "+address, err.Error())
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	s.add(method+" "+address, fmt.Sprint(resp.Status, resp.Header, string(text)))
	return string(text)
}

func (w *world) requests(s *shown, at string) {
	w.t.Helper()
	c := secrets["a payload's field"]
	jobs := at + "/v1/gateways/stripe/jobs"
	for _, body := range []string{`{"id":"ok-7","payload":` + card("") + `}`, `{"id":"ok-1","payload":` + card(`,"n":1`) + `}`, `{"id":"y1","payload":{"card":"` + c, c, `{"id":"y2","payload":"` + c + `"}`,
		`{"id":"y3","sealed":"` + c + `"}`, `{"id":"y4","cost":"` + c + `"}`, `{"payload":` + card("") + `}`, `{"id":"y5","payload":{"card":"` + c + strings.Repeat("x", 1<<20) + `"}}`} {
		w.ask(s, "POST", jobs, "application/json", body)
		w.ask(s, "POST", jobs, "application/x-ndjson", body+"\n"+body+"\n")
		w.ask(s, "POST", jobs, "text/plain", body)
		w.ask(s, "POST", at+"/v1/gateways/nobody/jobs", "application/json", body)
		w.ask(s, "POST", at+"/v1/gateways/full/jobs", "application/json", body)
	}
	for _, path := range []string{"/v1/status", "/v1/gateways/stripe/jobs/no-1", "/v1/gateways/stripe/jobs/mirror-1", "/v1/gateways/stripe/jobs/nobody", "/v1/none", "/metrics", "/healthz",
		"/readyz", "/openapi.json", "/queues/", "/queues/api/queues", "/queues/api/queues/stripe", "/queues/api/queues/stripe/pending_tasks", "/queues/api/queues/stripe/archived_tasks", "/queues/api/redis_info", "/login", "/nowhere", "/gateways/nobody", "/jobs/nobody"} {
		w.ask(s, "GET", at+path, "", "")
		w.ask(s, "DELETE", at+path, "", c)
	}
	w.ask(s, "POST", at+"/login", "application/x-www-form-urlencoded", "token="+secrets["the token"]+"&next=/")
	w.ask(s, "POST", at+"/login", "application/x-www-form-urlencoded", "token="+secrets["a header's secret"])
	w.ask(s, "POST", at+"/gateways/stripe/pause", "application/x-www-form-urlencoded", "why=x&who=y")
	w.ask(s, "POST", at+"/gateways/stripe/resume", "application/x-www-form-urlencoded", "why=x&who=y")
}

var link = regexp.MustCompile(`(?:href|src)="(/[^"]*)"`)

// pages follows every link of the console.
func (w *world) pages(s *shown, at string) {
	w.t.Helper()
	seen, left := map[string]bool{}, []string{"/", "/gateways/stripe?payload=1", "/jobs/no-1?payload=1&gateway=stripe", "/jobs/no-1", "/jobs/mirror-1", "/jobs/ok-1", "/gateways/stripe/clear?do=replay",
		"/gateways/stripe/clear?do=discard", "/gateways/keyless/clear?do=done", "/gateways/stripe/limit?limits=1/s"}
	for len(left) > 0 && len(seen) < 150 {
		path := strings.ReplaceAll(left[0], "&amp;", "&")
		left = left[1:]
		path, _, _ = strings.Cut(path, "#")
		if seen[path] || strings.HasPrefix(path, "/queues") {
			continue
		}
		seen[path] = true
		for _, m := range link.FindAllStringSubmatch(w.ask(s, "GET", at+path, "", ""), -1) {
			left = append(left, m[1])
		}
	}
	if len(seen) < 15 {
		w.t.Errorf("only %d pages were seen", len(seen))
	}
}
