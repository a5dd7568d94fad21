package double

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// hands is a clock that only the test moves.
type hands struct {
	mu      sync.Mutex
	at      time.Time
	waiting map[chan time.Time]time.Time
}

func newHands() *hands {
	return &hands{at: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), waiting: map[chan time.Time]time.Time{}}
}

func (h *hands) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at
}

func (h *hands) After(d time.Duration) <-chan time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan time.Time, 1)
	if d <= 0 {
		c <- h.at
		return c
	}
	h.waiting[c] = h.at.Add(d)
	return c
}

// advance moves the clock, and wakes those whose time has come.
func (h *hands) advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = h.at.Add(d)
	for c, at := range h.waiting {
		if !at.After(h.at) {
			c <- h.at
			delete(h.waiting, c)
		}
	}
}

func (h *hands) waiters() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiting)
}

// rig is a double behind a real listener.
type rig struct {
	*Double
	t     *testing.T
	hands *hands
	url   string
	http  *http.Client
}

func newRig(t *testing.T, gateway string, o Options) *rig {
	t.Helper()
	table, err := Load(gateway)
	if err != nil {
		t.Fatal(err)
	}
	return rigOf(t, table, o)
}

func rigOf(t *testing.T, table *Table, o Options) *rig {
	t.Helper()
	r := &rig{t: t, hands: newHands()}
	if o.Clock == nil {
		o.Clock = r.hands
	}
	d, err := New(table, o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(d)
	t.Cleanup(srv.Close)
	// Connections are used once: net/http repeats a call with a key automatically if a connection that it had kept breaks.
	r.Double, r.url, r.http = d, srv.URL, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return r
}

// arm arms a fate as people write it.
func (r *rig) arm(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		f, err := ParseFate(text)
		if err == nil {
			err = r.Arm(f)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// charge is one call as a test makes it.
type charge struct {
	job, key, amount string
	path             string // "": /pay
	host             string
	noAuth           bool
	header           map[string]string
}

// said is an answer.
type said struct {
	status int // 0: the connection was cut
	body   string
	header http.Header
}

// keyOf returns a key that every gateway accepts, one for each text.
func keyOf(text string) string {
	h := uint64(14695981039346656037)
	for _, b := range []byte(text) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	digits := strconv.FormatUint(h&0xffffffffffff, 16)
	return "00000000-0000-4000-8000-" + strings.Repeat("0", 12-len(digits)) + digits
}

// request writes a call as the gateway wants it.
func (r *rig) request(c charge) *http.Request {
	r.t.Helper()
	req := r.table.Request
	if c.amount == "" {
		c.amount = map[string]string{"minor": "1250"}[req.Unit]
		if c.amount == "" {
			c.amount = "12.50"
		}
	}
	fields := map[string]string{}
	if req.Amount != "" {
		fields[req.Amount] = c.amount
	}
	if req.Currency != "" {
		fields[req.Currency] = "EUR"
	}
	if len(req.Reference) > 0 && c.job != "" {
		fields[strings.Replace(req.Reference[0], "*", "job", 1)] = c.job
	}
	header := map[string]string{r.table.Auth.Header: "Bearer sk_test"}
	if c.noAuth {
		header = map[string]string{}
	}
	if len(r.table.Keys) > 0 && c.key != "" {
		k := r.table.Keys[0]
		if k.Max > 0 && len(c.key) > k.Max && uuid.MatchString(c.key) {
			c.key = strings.ReplaceAll(c.key, "-", "") // shorter, and the same for the same
		}
		if k.In == "body" {
			fields[k.Name] = c.key
		} else {
			header[k.Name] = c.key
		}
	}
	body, kind := asForm(fields), "application/x-www-form-urlencoded"
	if req.Encoding == "json" {
		body, kind = asJSON(r.t, fields, req), "application/json"
	}
	path := c.path
	if path == "" {
		path = "/pay"
	}
	out, err := http.NewRequestWithContext(context.Background(), http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	out.Header.Set("Content-Type", kind)
	for name, value := range header {
		out.Header.Set(name, value)
	}
	for name, value := range c.header {
		out.Header.Set(name, value)
	}
	if c.host != "" {
		out.Host = c.host
	}
	return out
}

func asForm(fields map[string]string) string {
	form := url.Values{}
	for path, value := range fields {
		parts := strings.Split(path, ".")
		form.Set(parts[0]+strings.Join(append([]string{""}, brackets(parts[1:])...), ""), value)
	}
	return form.Encode()
}

func brackets(parts []string) (out []string) {
	for _, p := range parts {
		out = append(out, "["+p+"]")
	}
	return out
}

// asJSON nests the fields; a part that is 0 is the only element of a list.
func asJSON(t *testing.T, fields map[string]string, req Request) string {
	t.Helper()
	root := map[string]any{}
	for path, text := range fields {
		var value any = text
		if path == req.Amount && req.Unit != "string" {
			value = json.Number(text)
		}
		at, parts := root, strings.Split(path, ".")
		for i := 0; i < len(parts)-1; i++ {
			if parts[i+1] == "0" {
				list, ok := at[parts[i]].([]any)
				if !ok {
					list = []any{map[string]any{}}
					at[parts[i]] = list
				}
				at = list[0].(map[string]any)
				i++
				continue
			}
			next, ok := at[parts[i]].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[parts[i]] = next
			}
			at = next
		}
		at[parts[len(parts)-1]] = value
	}
	b, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (r *rig) do(req *http.Request) said {
	resp, err := r.http.Do(req)
	if err != nil {
		return said{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return said{}
	}
	return said{status: resp.StatusCode, body: string(body), header: resp.Header}
}

func (r *rig) pay(c charge) said {
	r.t.Helper()
	return r.do(r.request(c))
}

// start pays, and returns once it is answered or waits for the clock.
func (r *rig) start(c charge) chan said {
	r.t.Helper()
	before, out := r.hands.waiters(), make(chan said, 1)
	req := r.request(c)
	go func() { out <- r.do(req) }()
	testkit.EventuallyEvery(r.t, 100*time.Microsecond, time.Minute, "an answer, or a wait for the clock", func() bool { return len(out) == 1 || r.hands.waiters() > before })
	return out
}

func (r *rig) get(path string) said {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set(r.table.Auth.Header, "Bearer sk_test")
	return r.do(req)
}

// want checks an answer: its status, and texts in its body.
func (r *rig) want(what string, got said, status int, texts ...string) {
	r.t.Helper()
	if got.status != status {
		r.t.Errorf("%s: status %d, want %d: %s", what, got.status, status, got.body)
	}
	for _, text := range texts {
		if !strings.Contains(got.body, text) {
			r.t.Errorf("%s: no %s in %s", what, text, got.body)
		}
	}
}

// charged checks how many entries the ledger has.
func (r *rig) charged(what string, n int) []Entry {
	r.t.Helper()
	all := r.Ledger()
	if len(all) != n {
		r.t.Fatalf("%s: charged %d times, want %d: %+v", what, len(all), n, all)
	}
	return all
}

// made returns how many payments there are, charged or not.
func (r *rig) made() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.payments)
}

// firstID returns the id of the first payment.
func (r *rig) firstID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.payments[0].id
}

// awaits waits until that many calls wait for the clock.
func (h *hands) awaits(t *testing.T, n int) {
	t.Helper()
	testkit.EventuallyEvery(t, 100*time.Microsecond, time.Minute, "somebody to wait for the clock", func() bool { return h.waiters() >= n })
}
