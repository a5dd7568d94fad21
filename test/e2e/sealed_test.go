package e2e

import (
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
)

// buyer is in the payloads of these stories, and must not be anywhere else.
const buyer = "CANARY-4111111111111112"

// till is a gateway that remembers what it was sent, and refuses certain ids.
type till struct {
	*httptest.Server
	mu     sync.Mutex
	bodies map[string][]string // by idempotency key
	no     map[string]bool     // ids that it refuses
}

func newTill(t *testing.T, no ...string) *till {
	t.Helper()
	p := &till{bodies: map[string][]string{}, no: map[string]bool{}}
	for _, id := range no {
		p.no[id] = true
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		key := r.Header.Get("Idempotency-Key")
		p.mu.Lock()
		defer p.mu.Unlock()
		p.bodies[key] = append(p.bodies[key], string(body))
		if p.no[key] {
			w.WriteHeader(http.StatusPaymentRequired)
		}
		fmt.Fprintln(w, `{"id":"pi_1"}`)
	}))
	t.Cleanup(p.Close)
	return p
}

// got returns the body that came with a key, or several bodies joined.
func (p *till) got(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.bodies[key], " ")
}

func (w *world) sealing(url, keys, active string) {
	w.t.Helper()
	w.config = w.file("dispatcher.yaml", fmt.Sprintf(`redis: %s
encryption: {keys: {%s}, active: %s}
gateways:
  stripe:
    request: {url: %s/charge}
    amount: {field: amount, currency: currency}
    leak: {limits: [200/s]}
    replay: manual
`, w.redis.URL(), keys, active, url))
}

func secretOf(fill string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
}

func payloadOf(n int) string {
	return fmt.Sprintf(`{"z":1.50,"amount":%d,"currency":"EUR","card":"%s","note":"é"}`, 100+n, buyer)
}

// bill writes a billing file of the jobs from to to.
func (w *world) bill(name string, from, to int, more string) string {
	w.t.Helper()
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, `{"id":"inv-%d","payload":%s%s}`+"\n", i, payloadOf(i), more)
	}
	return w.file(name, b.String())
}

const bothKeys = `old: "${KEY_OLD}", new: "${KEY_NEW}"`

// Jobs are enqueued, parked, given another payload, replayed and exported, and the key changes meanwhile. The gateway gets every byte of every
// payload, and Redis gets none, in memory, on its disk or in its slow log.
func TestNoPayloadIsInRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [1/s]}\n")
	w.more = []string{"KEY_OLD=" + secretOf("o"), "KEY_NEW=" + secretOf("n")}
	ctx, r := t.Context(), w.redis.Client()
	for name, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "100000", "rdbcompression": "no"} {
		if err := r.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	pay := newTill(t, "inv-1", "inv-2", "inv-3")
	w.sealing(pay.URL, `old: "${KEY_OLD}"`, "old")
	file := w.bill("a.ndjson", 1, 6, "")
	w.ok("enqueue", "-g", "stripe", "-f", file, "--batch", "b1", "-q")
	w.ok("enqueue", "-g", "stripe", "-f", w.bill("later.ndjson", 7, 8, `,"at":"2099-01-01T00:00:00Z"`), "-q")
	first := w.dispatcher()
	w.shown(t, time.Minute, "three jobs to be done", func() bool { s := w.status(); return s.Done == 3 && s.Parked["refused"] == 3 })
	first.stop()

	w.sealing(pay.URL, bothKeys, "new")
	if got := decode[report](t, w.ok("enqueue", "-g", "stripe", "-f", file, "-o", "json", "-q")); got != (report{Read: 6, Duplicate: 6}) {
		t.Errorf("the same file after the change of the key: %+v", got)
	}
	w.ok("enqueue", "-g", "stripe", "-f", w.bill("b.ndjson", 9, 9, ""), "-q")
	edited := w.file("edited.ndjson", `{"id":"inv-3","gateway":"stripe","payload":{"amount":1,"currency":"EUR","card":"`+buyer+`"}}`+"\n")
	w.ok("enqueue", "--replace", "--yes", "-f", edited, "--why", "a typo", "-q")
	exported := w.ok("dispatcher", "dlq", "export")
	if strings.Contains(exported, buyer) || strings.Count(exported, `"sealed"`) != 2 {
		t.Errorf("the export:\n%s", exported)
	}
	w.ok("dispatcher", "dlq", "replay", "--id", "inv-1", "--yes", "-q")
	if got := w.ok("dispatcher", "dlq", "show", "inv-2", "--payload", "-o", "json"); !strings.Contains(got, buyer) {
		t.Errorf("shown to who has the key: %s", got)
	}
	w.dispatcher()
	w.shown(t, time.Minute, "the others to be done", func() bool { s := w.status(); return s.Done == 6 && s.Parked["refused"] == 1 })
	for key, want := range map[string]string{"inv-1": payloadOf(1), "inv-1~2": payloadOf(1), "inv-4": payloadOf(4), "inv-9": payloadOf(9), "inv-3~2": `{"amount":1,"currency":"EUR","card":"` + buyer + `"}`} {
		if got := pay.got(key); got != want {
			t.Errorf("%s: the gateway got %s, want %s", key, got, want)
		}
	}
	if err := r.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if n := hidden(t, r, w.redis.Dir(), "CANARY"); n < 20 {
		t.Errorf("only %d keys, files and commands were looked at", n)
	}

	elsewhere := newWorld(t, provider.Config{}, "    leak: {limits: [1/s]}\n") // another Redis, the same keys
	elsewhere.more = w.more
	second := newTill(t)
	elsewhere.sealing(second.URL, bothKeys, "new")
	elsewhere.ok("enqueue", "-f", elsewhere.file("exported.ndjson", exported), "-q")
	elsewhere.dispatcher()
	w.shown(t, time.Minute, "the exported jobs to be done there", func() bool { return elsewhere.status().Done == 2 })
	for n := 1; n <= 2; n++ {
		if got := second.got(fmt.Sprintf("inv-%d", n)); got != payloadOf(n) {
			t.Errorf("exported and enqueued elsewhere, inv-%d: the gateway got %s", n, got)
		}
	}
	hidden(t, elsewhere.redis.Client(), elsewhere.redis.Dir(), "CANARY")
}

// hidden checks that a text is not in a Redis's data, files and slow log. It returns how many places it has searched.
func hidden(t *testing.T, r redis.UniversalClient, dir, text string) (looked int) {
	t.Helper()
	search := func(place, in string) {
		looked++
		if strings.Contains(in, text) {
			t.Errorf("%s holds what nobody may read", place)
		}
	}
	ctx := t.Context()
	keys, err := r.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		search("the key "+key, key+fmt.Sprint(r.Get(ctx, key).Val(), r.HGetAll(ctx, key).Val(), r.LRange(ctx, key, 0, -1).Val(),
			r.SMembers(ctx, key).Val(), r.ZRange(ctx, key, 0, -1).Val(), r.XRange(ctx, key, "-", "+").Val()))
		var pieces strings.Builder // a payload may be cut up
		h := r.HGetAll(ctx, key).Val()
		for i := range 8 {
			pieces.WriteString(h[fmt.Sprintf("p%d", i+1)])
		}
		search("the pieces in "+key, pieces.String())
	}
	for _, entry := range r.SlowLogGet(ctx, -1).Val() {
		search("the slow log", fmt.Sprint(entry.Args))
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		search(path, string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return looked
}

// A dispatcher without the key does not call jobs that it can't open, does not park them, and says what is missing.
func TestAForgottenKeyLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [1/s]}\n")
	w.more = []string{"KEY_OLD=" + secretOf("o"), "KEY_NEW=" + secretOf("n")}
	pay := newTill(t)
	w.sealing(pay.URL, `old: "${KEY_OLD}"`, "old")
	w.ok("enqueue", "-g", "stripe", "-f", w.bill("a.ndjson", 1, 3, ""), "-q")
	w.sealing(pay.URL, `new: "${KEY_NEW}"`, "new")
	w.ok("enqueue", "-g", "stripe", "-f", w.bill("b.ndjson", 4, 5, ""), "-q")
	d, begun := w.dispatcher(), time.Now()
	w.shown(t, time.Minute, "those with the key to be done, the others to wait", func() bool {
		s := w.status()
		return s.Done == 2 && s.Retrying == 3
	})
	for id, want := range map[string]string{"inv-1": "", "inv-2": "", "inv-3": "", "inv-4": payloadOf(4), "inv-5": payloadOf(5)} {
		if got := pay.got(id); got != want {
			t.Errorf("%s: the gateway got %s, want %s", id, got, want)
		}
	}
	if got := w.ok("dispatcher", "job", "inv-1"); !strings.Contains(got, "the key old, which is not known here") {
		t.Errorf("the job says\n%s", got)
	}
	log := d.text()
	if n := strings.Count(log, "not known here: give it in encryption.keys.old"); n < 1 || n > 2+int(time.Since(begun).Minutes()) { // once a minute, not for each job
		t.Errorf("the log says %d times\n%s", n, tail(log))
	}
	if r := w.do("dispatcher", "audit"); r.code != 0 {
		t.Errorf("the books: %s%s", r.out, r.err)
	}
}
