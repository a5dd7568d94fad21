package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/pan"
	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// babbler is a gateway whose answers all hold card numbers, in several notations.
func babbler(t *testing.T, numbers []string) *httptest.Server {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1)) - 1
		card := numbers[i%len(numbers)]
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Card", card)
		switch i % 4 {
		case 0:
			fmt.Fprintf(w, `{"id":"%s","card":"%s"}`, card, card)
		case 1:
			w.WriteHeader(http.StatusPaymentRequired)
			fmt.Fprintf(w, `{"error":"card %s %s was declined","n":%s}`, card[:4], card[4:], card)
		case 2:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `<p>&#%d;%s</p> %s`, card[0], card[1:], strings.ReplaceAll(card, "1", "%31"))
		default:
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "card=%s+exp=12", strings.ReplaceAll(card, "0", `\u0030`))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// Card numbers of every scheme arrive in payloads, keys, ids, batches, the name of a file, the API, a replacement and the gateway's answers. Afterwards none is found
// in Redis's files, a log, an answer, an export, a metric or the feed.
func TestNoCardNumberIsKept(t *testing.T) {
	t.Parallel()
	numbers := testkit.CardNumbers(200)
	w := newWorld(t, provider.Config{}, "")
	w.config = w.file("dispatcher.yaml", fmt.Sprintf(`redis: %s
gateways:
  stripe:
    request: {url: %s/charge, key_lifetime: 24h}
    leak: {limits: [500/s]}
    admission: {burst: 5000}
    circuit: {failures: 1000, ratio: 100%%, calls: 1000}
    batch_brake: off
    retry: {attempts: 2, first: 10ms, max: 10ms}
    replay: manual
    pan: {allow: [token]}
    outcomes: {keep: 1h}
`, w.redis.URL(), babbler(t, numbers).URL))

	var file strings.Builder
	good, bad := 0, 0
	for i, n := range numbers {
		spaced := n[:4] + " " + n[4:8] + "-" + n[8:]
		lines := []string{
			`{"id":"bad-%d","payload":{"card":{"number":"` + n + `"}}}`, `{"id":"bad-%d","payload":{"n":[` + n + `]}}`, `{"id":"bad-%d","payload":{"` + n + `":1}}`,
			`{"id":"%d-` + n + `"}`, `{"id":"bad-%d","batch":"` + spaced + `"}`, `{"id":"bad-%d","payload":{"note":"of ` + spaced + `, thanks"}}`,
			`{"id":"bad-%d","lane":"l-` + n + `"}`, `{"id":"bad-%d","route":"r` + n + `"}`, `{"id":"bad-%d","payload":{"n":"` + strings.ReplaceAll(n, "1", `\u0031`) + `"}}`,
		}
		for _, line := range lines { // each number in each place
			fmt.Fprintf(&file, line+"\n", bad)
			bad++
		}
		fmt.Fprintf(&file, `{"id":"good-%d","payload":{"amount":%d}}`+"\n", i, i)
		good++
	}
	said := &strings.Builder{}
	note := func(r result) result { said.WriteString(r.out + r.err); return r }
	r := note(w.do("enqueue", "-g", "stripe", "-f", w.file("all.ndjson", file.String()), "-o", "json", "--rejects", "rejects.ndjson", "--batch", "b"))
	if r.code != 3 {
		t.Fatalf("exit code %d\n%s", r.code, r.err)
	}
	if got := decode[report](t, r.out); r.code != 3 || got.Invalid != bad || got.Enqueued != good {
		t.Fatalf("exit code %d, %+v\n%s", r.code, got, r.err)
	}
	w.has("enqueue", r.err, "line 1: the field card.number has what looks like a card number")
	said.WriteString(read(t, filepath.Join(w.dir, "rejects.ndjson")))
	for _, args := range [][]string{{"-f", "of-" + numbers[0] + ".ndjson"}, {"-f", "all.ndjson", "--batch", numbers[1]}, {"-f", "all.ndjson", "--rejects", numbers[2]}} {
		if r := note(w.do("enqueue", append([]string{"-g", "stripe"}, args...)...)); r.code != 2 {
			t.Errorf("%v: exit code %d\n%s", args, r.code, r.err)
		}
	}

	d := w.dispatcherAsIs("--listen", "127.0.0.1:0")
	base := "http://" + d.address()
	ask := func(method, path, kind, body string) string {
		t.Helper()
		req, err := http.NewRequest(method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", kind)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(text)
		return fmt.Sprint(resp.StatusCode, " ", string(text))
	}
	const jobs = "/v1/gateways/stripe/jobs"
	if got := ask("POST", jobs, "application/json", `{"id":"api","payload":{"pan":"`+numbers[3]+`"}}`); !strings.HasPrefix(got, "400 ") || !strings.Contains(got, "the field pan has what") {
		t.Error(got)
	}
	if got := ask("POST", jobs, "application/x-ndjson", `{"id":"`+numbers[4]+`"}`+"\n"+`{"id":"api-2"}`+"\n"); !strings.HasPrefix(got, "202 ") || !strings.Contains(got, "the id has what") {
		t.Error(got)
	}
	var ids strings.Builder
	for _, n := range numbers {
		fmt.Fprintf(&ids, `{"id":"inv-%s"}`+"\n"+`{"id":"x","payload":{"a":{"pan":%s}}}`+"\n", n, n)
	}
	refused := 0
	answers := strings.Split(ask("POST", jobs, "application/x-ndjson", ids.String()), `{"line":`)
	for _, answer := range answers[1:] {
		if strings.Contains(answer, "the id has what") || strings.Contains(answer, "the field a.pan has what") {
			refused++
		}
	}
	if refused != 2*len(numbers) {
		t.Errorf("of %d jobs, %d were refused for their card number: %.900s", 2*len(numbers), refused, answers)
	}
	if resp, err := http.Get(base + jobs + "/" + numbers[5]); err != nil || resp.StatusCode != 404 { // its answer is the caller's own word
		t.Error(err)
	} else {
		resp.Body.Close()
	}
	s := w.settled(time.Minute)
	if s.Done == 0 || s.Parked["refused"] == 0 || s.Parked["exhausted"] == 0 {
		t.Fatalf("%+v", s)
	}
	note(w.do("enqueue", "--replace", "--yes", "-g", "stripe", "-f", w.file("r.ndjson", `{"id":"good-1","payload":{"amount":1,"pan":"`+numbers[6]+`"}}`+"\n")))
	note(w.do("dispatcher", "dlq", "discard", "--id", "good-1", "--yes", "--why", "of "+numbers[7]))
	note(w.do("dispatcher", "pause", "-g", "stripe", "--why", "of "+numbers[8]))
	for _, args := range [][]string{{"dlq", "list", "--payload", "-o", "json"}, {"dlq", "list"}, {"dlq", "export", "--plain"}, {"batch", "b", "--export"}, {"batch", "b", "--export", "-o", "json"},
		{"outcomes", "-g", "stripe"}, {"dlq", "history"}, {"job", "good-0"}, {"job", "good-1", "--payload"}, {"status"}, {"audit"}} {
		r := note(w.do("dispatcher", args...))
		if r.code != 0 && args[0] != "dlq" {
			t.Errorf("%v: exit code %d\n%s", args, r.code, r.err)
		}
	}
	for _, path := range []string{"/metrics", "/", "/v1/status", "/gateways/stripe", "/jobs/good-1", jobs + "/good-0", "/v1/gateways/stripe/outcomes?limit=1000"} {
		ask("GET", path, "", "")
	}
	d.stop()
	said.WriteString(d.text())
	if !strings.Contains(said.String(), "was declined") || !strings.Contains(said.String(), "*****") {
		t.Error("the gateway's answers are not among what was looked through")
	}
	w.nowhere(t, numbers, said.String())
}

var fraction = regexp.MustCompile(`^\d+\.\d+$`)

// nowhere looks for card numbers in what was said, and in the files of Redis.
func (w *world) nowhere(t *testing.T, numbers []string, said string) {
	t.Helper()
	c := w.redis.Client()
	if err := c.ConfigSet(t.Context(), "rdbcompression", "no").Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, "Redis to save", func() bool { return c.Save(t.Context()).Err() == nil })
	looked := 0
	look := func(what string, text []byte) {
		for _, n := range numbers {
			if bytes.Contains(text, []byte(n)) {
				t.Errorf("%s has %s", what, n)
			}
		}
		looked += len(text)
	}
	look("what was said", []byte(said))
	for _, span := range pan.Find([]byte(said)) {
		if found := said[span.From:span.To]; !fraction.MatchString(found) { // a metric's seconds are one by chance now and then
			t.Errorf("what was said has %s", found)
		}
	}
	look("Redis", everything(t, c)) // in its files, a number alone may be in binary
	files := 0
	err := filepath.Walk(w.redis.Dir(), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && len(text) > 0 {
			look(filepath.Base(path), text)
			files++
		}
		return err
	})
	if err != nil || files < 2 {
		t.Errorf("%d files of Redis, %v", files, err)
	}
	t.Logf("looked through %d bytes", looked)
}

// everything returns all data of a Redis, as text.
func everything(t *testing.T, c redis.UniversalClient) []byte {
	t.Helper()
	var all bytes.Buffer
	ctx := t.Context()
	for keys := c.Scan(ctx, 0, "*", 1000).Iterator(); keys.Next(ctx); {
		key := keys.Val()
		var value any
		var err error
		switch kind := c.Type(ctx, key).Val(); kind {
		case "string":
			value, err = c.Get(ctx, key).Result()
		case "hash":
			value, err = c.HGetAll(ctx, key).Result()
		case "list":
			value, err = c.LRange(ctx, key, 0, -1).Result()
		case "set":
			value, err = c.SMembers(ctx, key).Result()
		case "zset":
			value, err = c.ZRange(ctx, key, 0, -1).Result()
		case "stream":
			value, err = c.XRange(ctx, key, "-", "+").Result()
		case "none": // it has expired
		default:
			t.Errorf("%s is a %s", key, kind)
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Error(key, err)
		}
		fmt.Fprintln(&all, key, value)
	}
	return all.Bytes()
}
