package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/testkit"
)

// patient is a configuration of one gateway g, to be examined.
type patient struct {
	t *testing.T
	p Params
}

// sound are the arguments of a redis-server for which doctor has no warning.
var sound = []string{"--appendonly", "yes", "--maxmemory", "200mb"}

// newPatient returns a patient. gateway is the gateway's part of the file in YAML, without indent.
func newPatient(t *testing.T, redis string, gateway ...string) *patient {
	t.Helper()
	return newNamed(t, redis, "g", gateway...)
}

func newNamed(t *testing.T, redis, name string, gateway ...string) *patient {
	t.Helper()
	if !strings.Contains(strings.Join(gateway, "\n"), "answers:") {
		gateway = append(slices.Clone(gateway), "answers: stripe") // nothing unwise in that
	}
	text := fmt.Sprintf("redis: %s\ngateways:\n  %s:\n    %s\n", redis, name, strings.Join(gateway, "\n    "))
	cfg, err := config.Parse("d.yaml", []byte(text), config.Options{Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	return &patient{t, Params{Config: cfg, Gateways: cfg.Gateways, ReachWithin: time.Minute}}
}

// listening returns the URL of a server, and the number of requests to it.
func listening(t *testing.T) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = &atomic.Int64{}
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	t.Cleanup(srv.Close)
	return srv.URL, calls
}

func (p *patient) examine() Report {
	p.t.Helper()
	r, err := Run(p.t.Context(), p.p)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range r.Checks {
		if (c.Hint == "") != (c.Level == OK) || c.Message == "" || c.Name == "" {
			p.t.Errorf("a check without what to do, or without need to: %+v", c)
		}
	}
	return r
}

// unhurried returns the report without the warnings that a busy machine adds: Redis answers late, and its clock seems to be off.
func unhurried(r Report) Report {
	r.Checks = slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool {
		late := c.Level == Warn && (c.Name == "latency" || c.Name == "clock")
		if late {
			r.Warned--
		}
		return late
	})
	return r
}

// expect fails the test unless there is a check of this name and level, with these texts in its message and hint.
func expect(t *testing.T, r Report, name string, level Level, message, hint string) {
	t.Helper()
	if !has(r, name, level, message, hint) {
		t.Errorf("no %s %q with %q and hint %q in:\n%s", level, name, message, hint, list(r))
	}
}

func has(r Report, name string, level Level, message, hint string) bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool {
		return c.Name == name && c.Level == level && strings.Contains(c.Message, message) && strings.Contains(c.Hint, hint)
	})
}

func list(r Report) string {
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%s %s %s: %s (%s)\n", c.Level, c.Name, c.Gateway, c.Message, c.Hint)
	}
	return b.String()
}

const limits = "leak: {limits: [100/s]}"

func request(url string) string { return `request: {url: "` + url + `/{id}"}` }

func TestAllIsWell(t *testing.T) {
	t.Parallel()
	url, calls := listening(t)
	all := newPatient(t, testkit.Server(t, sound...).URL(), request(url), limits).examine()
	r := unhurried(all)
	if !r.OK || r.Warned > 0 || r.Away != nil {
		t.Errorf("found on a sound system:\n%s", list(r))
	}
	for _, name := range []string{"redis", "role", "persistence", "eviction", "memory", "replicas", "standing", "configuration", "reach", "secrets"} {
		expect(t, r, name, OK, "", "")
	}
	for _, name := range []string{"clock", "latency"} {
		if !has(all, name, OK, "", "") && !has(all, name, Warn, "", "") {
			t.Errorf("no %s in:\n%s", name, list(all))
		}
	}
	if n := calls.Load(); n > 0 {
		t.Errorf("the gateway was called %d times: it counts them", n)
	}
}

func TestRedisThatLosesJobs(t *testing.T) {
	t.Parallel()
	url, _ := listening(t)
	for name, c := range map[string]struct {
		args          []string
		check         string
		level         Level
		message, hint string
	}{
		"evicting":        {[]string{"--appendonly", "yes", "--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru"}, "eviction", Fail, "may delete jobs", "maxmemory-policy noeviction"},
		"nothing on disk": {[]string{"--maxmemory", "200mb"}, "persistence", Fail, "NOTHING ON DISK", "appendonly yes"},
		"snapshots only":  {[]string{"--maxmemory", "200mb", "--save", "60 1"}, "persistence", Warn, "only takes snapshots", "appendonly yes"},
		"fsync off":       {append([]string{"--appendfsync", "no"}, sound...), "persistence", Warn, "appendfsync no", "everysec"},
		"no bound":        {[]string{"--appendonly", "yes"}, "memory", Warn, "no maxmemory", "set maxmemory"},
		"nearly full":     {[]string{"--appendonly", "yes", "--maxmemory", "3mb"}, "memory", Warn, "more jobs", "raise maxmemory"},
		"full":            {[]string{"--appendonly", "yes", "--maxmemory", "100kb"}, "memory", Fail, "takes no jobs", "raise maxmemory"},
		"no replicas":     {append([]string{"--min-replicas-to-write", "1"}, sound...), "replicas", Fail, "takes no writes", "min-replicas-to-write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := unhurried(newPatient(t, testkit.Server(t, c.args...).URL(), request(url), limits).examine())
			expect(t, r, c.check, c.level, c.message, c.hint)
			if r.Warned+r.Failed != 1 {
				t.Errorf("more was found than what is wrong:\n%s", list(r))
			}
		})
	}
}

// Without idempotency keys, a call that Redis has forgotten would be made again. Doctor warns of a Redis that may forget.
func TestAKeylessGatewayOnARedisThatForgets(t *testing.T) {
	t.Parallel()
	url, _ := listening(t)
	keyless := `request: {url: "` + url + `/{id}", idempotency_header: ""}`
	for name, c := range map[string]struct {
		request, fsync string
		message        string // empty: there is nothing to say
	}{
		"always":        {keyless, "always", ""},
		"with a key":    {request(url), "everysec", ""},
		"every second":  {keyless, "everysec", "the last second (appendfsync everysec)"},
		"when it likes": {keyless, "no", "the last half minute"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPatient(t, testkit.Server(t, append([]string{"--appendfsync", c.fsync}, sound...)...).URL(), c.request, limits).examine()
			if c.message != "" {
				expect(t, r, "forgotten_calls", Warn, c.message, "appendfsync always")
			}
			if has(r, "forgotten_calls", Warn, "", "") != (c.message != "") {
				t.Errorf("found:\n%s", list(r))
			}
		})
	}
}

func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	url, _ := listening(t)
	p := newPatient(t, testkit.Server(t, sound...).URL(), request(url), limits)
	p.p.Config.WaitReplicas = 1
	expect(t, p.examine(), "replicas", Fail, "NOTHING IS TAKEN IN OR CALLED", "bring the replicas back")
}

func TestSkewedClock(t *testing.T) {
	t.Parallel()
	url, _ := listening(t)
	p := newPatient(t, testkit.Server(t, sound...).URL(), request(url), limits)
	// On a busy machine, the clocks seem further apart if an answer takes long.
	seen := func(ahead time.Duration, level Level, message, hint string) {
		p.p.Now = func() time.Time { return time.Now().Add(ahead) }
		testkit.Eventually(t, time.Minute, message, func() bool { return has(p.examine(), "clock", level, message, hint) })
	}
	seen(5*time.Second, Warn, "5s behind this machine's", "time service")
	seen(-5*time.Second, Warn, "5s ahead of this machine's", "time service")
	seen(900*time.Millisecond, OK, "within ", "")
}

func TestRedisAway(t *testing.T) {
	t.Parallel()
	url, _ := listening(t)
	s := testkit.Server(t, sound...)
	s.Kill()
	r := newPatient(t, s.URL(), request(url), limits, "admission: {limits: [200/s]}").examine()
	if r.Away == nil {
		t.Error("nobody says that Redis is away")
	}
	expect(t, r, "redis", Fail, "is away", "start it")
	expect(t, r, "admission", Warn, "200/s", "")
	expect(t, r, "reach", OK, "answers", "")
}

func TestRedisRefusesUs(t *testing.T) {
	t.Parallel()
	url, _ := listening(t)
	s := testkit.Server(t, append([]string{"--requirepass", "hunter2"}, sound...)...)
	r := newPatient(t, "redis://:wrong-word@"+s.Addr()+"/0", request(url), limits).examine()
	if r.Away != nil {
		t.Errorf("it is there: %v", r.Away)
	}
	expect(t, r, "redis", Fail, "does not let us in", "password")
	if strings.Contains(list(r), "wrong-word") {
		t.Errorf("the password is shown:\n%s", list(r))
	}
}

func TestLints(t *testing.T) {
	t.Parallel()
	const req = `request: {url: "https://pay.example/{id}"}`
	for name, c := range map[string]struct {
		gateway              []string
		check, message, hint string
	}{
		"admission above leak": {[]string{req, "leak: {limits: [100/s, 3000/m]}", "admission: {limits: [100/s]}"}, "admission", "lets in 100/s, but only 50/s leave", "admission.limits"},
		"burst":                {[]string{req, limits, "admission: {burst: 1000000}"}, "admission", "busy for 2h46m40s", "smaller"},
		"no jitter":            {[]string{req, "leak: {limits: [100/s], jitter: 0s}"}, "jitter", "jitter is 0", "5ms"},
		"much jitter":          {[]string{req, "leak: {limits: [1/10ms], jitter: 4ms}"}, "jitter", "71 % of the limit", "measure"},
		"long time-out":        {[]string{`request: {url: "https://pay.example/", timeout: 5m, key_lifetime: 24h}`, limits}, "timeout", "a time-out of 5m:", "shorter|really needs"},
		"short time-out":       {[]string{`request: {url: "https://pay.example/", timeout: 500ms}`, limits}, "timeout", "unknown", "longer"},
		"default answers":      {[]string{req, limits, "answers: default"}, "answers", "every 2xx counts as paid", "done_needs"},
		"few in flight":        {[]string{req, "leak: {limits: [100/s], max_in_flight: 10}"}, "in_flight", "no more than 100ms", "raise leak.max_in_flight to 50"},
		"dedupe":               {[]string{req, limits, "dedupe: 1m"}, "idempotency", "forgotten 1m after", "make dedupe"},
		"no keys":              {[]string{`request: {url: "https://pay.example/", idempotency_header: ""}`, limits}, "idempotency", "no idempotency header and no lookup", "write lookup; if it does have idempotency keys, name its header in request.idempotency_header"},
		"keys that forget":     {[]string{req, limits, "answers: {saved: {5xx: runs_again}, rules: [{status: 200, then: done}]}"}, "idempotency", "a call again whose answer was a failure", "write lookup"},
		"new keys of none":     {[]string{`request: {url: "https://pay.example/", idempotency_header: ""}`, limits, "answers: [{status: 409, then: new_key}]", `lookup: {url: "/{id}", matches: {r: "{id}"}, answers: [{status: 200, then: done}]}`}, "answers", "no idempotency keys", "then: refused"},
		"not_done by a status": {[]string{req, limits, "answers: [{status: 200, then: done}]", `lookup: {url: "/{id}", matches: {r: "{id}"}, answers: [{status: 404, then: not_done, after: 1m}]}`}, "lookup", "a status alone for not_done", "body"},
		"not encrypted":        {[]string{`request: {url: "http://pay.example/{id}"}`, limits}, "url", "pay.example unencrypted", "https://"},
		"key in the url":       {[]string{`request: {url: "https://pay.example/?api_key=hunter2"}`, limits}, "url", "credential", "header"},
		"no placeholder":       {[]string{`request: {url: "https://pay.example/", headers: {X-Key: "{}", X-Own: "{hunter2}", X-Id: "{id}"}}`, limits}, "headers", "X-Own has a word in braces", "{payload.FIELD}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, "redis://127.0.0.1:1/0", c.gateway...)
			x := &examination{p: p.p}
			x.lint(p.p.Gateways[0], 0)
			hint, other, _ := strings.Cut(c.hint, "|")
			if len(x.Checks) != 1 {
				t.Fatalf("want one warning:\n%s", list(x.Report))
			}
			if got := x.Checks[0]; got.Name != c.check || got.Level != Warn || !strings.HasPrefix(got.Message, "d.yaml:3: ") ||
				!strings.Contains(got.Message, c.message) || !strings.Contains(got.Hint, hint) && (other == "" || !strings.Contains(got.Hint, other)) {
				t.Errorf("%+v", got)
			}
			if strings.Contains(list(x.Report), "hunter2") {
				t.Errorf("a secret is shown:\n%s", list(x.Report))
			}
		})
	}
}

func TestFineConfigurations(t *testing.T) {
	t.Parallel()
	const req = `request: {url: "https://pay.example/{payload.customer.id}?k={id}"}`
	for name, gateway := range map[string][]string{
		"slow":      {req, "leak: {limits: [5/d]}"},
		"short":     {req, "leak: {limits: [1/10ms], jitter: 2ms}"},
		"loopback":  {`request: {url: "http://localhost:8080/"}`, limits},
		"loopback6": {`request: {url: "http://[::1]:8080/"}`, limits},
		"capped":    {req, "leak: {limits: [100/s], max_in_flight: 64}"},
		"a need":    {req, limits, "answers: {done_needs: {status: paid}}"},
		"a rule":    {req, limits, "answers: [{status: 200, then: done}]"},
		"a look-up": {`request: {url: "https://pay.example/", idempotency_header: ""}`, limits, "answers: [{status: 200, then: done}]", `lookup: {url: "/{id}", matches: {r: "{id}"}, answers: [{status: 404, body: {code: x}, then: not_done, after: 1m}]}`},
	} {
		p := newPatient(t, "redis://127.0.0.1:1/0", gateway...)
		x := &examination{p: p.p}
		x.lint(p.p.Gateways[0], 0)
		if x.Warned > 0 {
			t.Errorf("%s:\n%s", name, list(x.Report))
		}
	}
}

// The cap on calls in flight is compared with the measured duration of calls, if it is known.
func TestInFlightAgainstMeasuredCalls(t *testing.T) {
	t.Parallel()
	p := newPatient(t, "redis://127.0.0.1:1/0", `request: {url: "https://pay.example/"}`, "leak: {limits: [100/s], max_in_flight: 100}")
	x := &examination{p: p.p, latency: map[string]time.Duration{"g": 3 * time.Second}}
	x.lint(p.p.Gateways[0], 0)
	expect(t, x.Report, "in_flight", Warn, "latest calls took (median) 3s", "to 300")
	x = &examination{p: p.p}
	x.lint(p.p.Gateways[0], 2*time.Second)
	expect(t, x.Report, "in_flight", Warn, "a connection alone took 2s", "to 200")
}

func TestGatewaysThatCantBeReached(t *testing.T) {
	t.Parallel()
	plain, _ := listening(t)
	for name, c := range map[string]struct{ url, check, message, hint string }{
		"dead":       {fmt.Sprintf("https://127.0.0.1:%d", testkit.FreePort(t)), "reach", "refused", "none is lost"},
		"no name":    {"https://pay.invalid", "reach", "can't be looked up", "DNS"},
		"not TLS":    {strings.Replace(plain, "http:", "https:", 1), "tls", "no TLS", "speaks TLS"},
		"never read": {"https://" + silent(t), "tls", "no TLS", "speaks TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, "redis://127.0.0.1:1/0", request(c.url), limits)
			if name == "never read" { // time to be taken up, and never heard
				p.p.ReachWithin = 2 * time.Second
			}
			expect(t, p.examine(), c.check, Fail, c.message, c.hint)
		})
	}
}

// silent returns an address that accepts connections and never sends anything.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	ends := srv.Certificate().NotAfter
	for name, c := range map[string]struct {
		url     string
		trusted bool
		now     time.Time
		level   Level
		message string
	}{
		"well":       {srv.URL, true, time.Now(), OK, "valid for"},
		"ends soon":  {srv.URL, true, ends.Add(-72 * time.Hour), Warn, "valid for 3 days"},
		"expired":    {srv.URL, true, ends.Add(time.Hour), Fail, "has expired"},
		"unknown":    {srv.URL, false, time.Now(), Fail, "no trusted authority has signed"},
		"other name": {strings.Replace(srv.URL, "127.0.0.1", "localhost", 1), true, time.Now(), Fail, "is not for localhost"},
	} {
		p := newPatient(t, "redis://127.0.0.1:1/0", request(c.url), limits)
		p.p.Now = func() time.Time { return c.now }
		if c.trusted {
			p.p.TLS = &tls.Config{RootCAs: roots, Time: p.p.Now}
		}
		t.Run(name, func(t *testing.T) { expect(t, p.examine(), "tls", c.level, c.message, "") })
	}
	if calls.Load() > 0 {
		t.Error("the gateway was called")
	}
}

func TestUnsetVariables(t *testing.T) {
	t.Parallel()
	text := []byte("gateways:\n  g:\n    request: {url: \"${PAY_URL}\", headers: {A: \"${PAY_KEY}\"}}\n    leak: {limits: [1/s]}\n")
	none := func(string) (string, bool) { return "", false }
	cfg, err := config.Parse("d.yaml", text, config.Options{Env: none})
	if err != nil {
		t.Fatal(err)
	}
	_, unset := config.Parse("d.yaml", text, config.Options{Env: none, Secrets: true})
	p := &patient{t, Params{Config: cfg, Gateways: cfg.Gateways, Unset: unset}}
	r := p.examine()
	expect(t, r, "secrets", Fail, "${PAY_URL} is not set", "dispatcher run")
	expect(t, r, "secrets", Fail, "d.yaml:3", "")
	expect(t, r, "reach", Warn, "not tried", "variables")
	if r.Failed != 3 { // the two, and Redis
		t.Errorf("one line a variable:\n%s", list(r))
	}
}

func TestChecksAsJSON(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal([]Check{ok("reach", "", "x"), warn("reach", "g", "do", "x")})
	if want := `[{"check":"reach","level":"ok","message":"x"},{"check":"reach","gateway":"g","level":"warn","message":"x","hint":"do"}]`; err != nil || string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Doctor checks from the address whether others can read or change the data in Redis, also if Redis can't be reached.
func TestARedisThatOthersCanReach(t *testing.T) {
	t.Parallel()
	const open, bare = "redis_tls", "redis_password"
	for url, want := range map[string][]string{
		"redis://redis.invalid:6379/0":                         {open, bare},
		"redis://:secret@redis.invalid:6379/0":                 {open},
		"rediss://redis.invalid:6379/0":                        {bare},
		"rediss://u:secret@redis.invalid:6379/0":               nil,
		"redis-cluster://127.0.0.1:1,redis.invalid:1":          {open, bare},
		"redis-cluster://u:secret@redis.invalid:1?tls=true":    nil,
		"redis-sentinel://u:secret@redis.invalid:1/0?master=m": {open},
		"redis://127.0.0.1:1/0":                                nil,
		"redis://[::1]:1/0":                                    nil,
		"redis://localhost:1/0":                                nil,
		"redis-socket:///nowhere/redis.sock?db=0":              nil,
	} {
		p := newPatient(t, url, "request: {url: https://127.0.0.1:1/x}", "leak: {limits: [100/s]}")
		var got []string
		for _, c := range p.examine().Checks {
			if c.Name == open || c.Name == bare {
				got = append(got, c.Name)
			}
			if strings.Contains(c.Message+c.Hint, "secret@") {
				t.Errorf("the password is in %+v", c)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", url, got, want)
		}
	}
}

func TestSecretsThatEverybodyMayRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	for mode, want := range map[os.FileMode]Level{0o644: Warn, 0o604: Warn, 0o640: "", 0o600: ""} {
		_ = os.Remove(file)
		if err := os.WriteFile(file, []byte("sk_live_1"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		p := newPatient(t, "redis://127.0.0.1:1/0", `request: {url: https://127.0.0.1:1/x, headers: {Authorization: "Bearer ${file:`+file+`}", X-Key: "${file:`+file+`}"}}`, "leak: {limits: [100/s]}")
		var got []Level
		for _, c := range p.examine().Checks {
			if strings.Contains(c.Message, file) {
				got = append(got, c.Level)
			}
		}
		if (want == "" && len(got) > 0) || (want != "" && (len(got) != 1 || got[0] != want)) {
			t.Errorf("mode %v: %v, want %q", mode, got, want)
		}
	}
}
