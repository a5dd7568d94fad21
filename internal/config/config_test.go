package config

import (
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	units "github.com/docker/go-units"

	"spillway/internal/job"
)

// parse reads a text that must be right.
func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("dispatcher.yaml", []byte(text), Options{Secrets: true, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// documented returns the YAML blocks of docs/configuration.md.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		blocks = append(blocks, string(m[1]))
	}
	return blocks
}

func TestDocumentedSample(t *testing.T) {
	t.Parallel()
	want := &Config{
		File:          "dispatcher.yaml",
		Redis:         "redis://127.0.0.1:6379/0",
		Listen:        "127.0.0.1:9400",
		ListenWritten: true,
		Token:         canary,
		DedupeScope:   DedupeGateway,
		Gateways: []Gateway{{
			Name: "stripe",
			At:   Position{"dispatcher.yaml", 5, 3},
			Request: Request{
				URL:         "https://api.stripe.com/v1/payment_intents",
				URLText:     "https://api.stripe.com/v1/payment_intents",
				Method:      "POST",
				Encoding:    "form",
				Headers:     map[string]Secret{"Authorization": "Bearer " + canary},
				Key:         job.KeyShape{Name: "Idempotency-Key"},
				KeyLifetime: 24 * time.Hour,
				Timeout:     30 * time.Second,
			},
			Answers:    Answers{Profile: "stripe"},
			Reference:  "id",
			Amount:     Amount{Field: "amount", Currency: "currency", Least: 1, Most: MostAmount},
			Leak:       Leak{Limits: []job.Limit{{N: 25, Window: time.Second}, {N: 1000, Window: time.Minute}}, Burst: 1, Jitter: 5 * time.Millisecond, MaxInFlight: 64},
			Admission:  Admission{Algorithm: "token-bucket", Limits: []job.Limit{{N: 25, Window: time.Second}}, Burst: 1500, Precision: 60, given: 1500},
			Retry:      Retry{Attempts: 6, First: 2 * time.Second, Max: 10 * time.Minute},
			Circuit:    job.Circuit{Failures: 5, Ratio: 50, Calls: 20, Window: 10 * time.Second, Max: 5 * time.Second},
			Hold:       Hold{Max: 15 * time.Minute},
			BatchBrake: job.Brake{Calls: 50, Refused: 90},
			Brakes:     job.Brakes{Limits: []job.MoneyLimit{{Most: euros(50000), Window: time.Minute}}, Single: []job.Money{euros(20000)}},
			Approval:   job.Approval{BatchOver: job.Amounts{"EUR": big.NewInt(10_000_000)}},
			Parked:     Parked{Most: 5_000_000, Bytes: 4 << 30},
			Pan:        job.CardRule{Then: job.CardsRefuse, Allow: []string{"token"}},
			Outcomes:   &Outcomes{Readers: []string{"ledger"}, Keep: 7 * 24 * time.Hour, MaxBehind: 1_000_000, Then: OutcomesHold},
			Replay:     "auto",
			Exhausted:  "manual",
			Dedupe:     30 * 24 * time.Hour,
		}},
	}
	got := parse(t, documented(t)[0])
	want.RedisAt = Position{want.File, 1, 8}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// documentedMerchants returns the merchants file of docs/configuration.md, and a key for each of its lines.
func documentedMerchants(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	csv := regexp.MustCompile("(?s)```csv\n(.*?)```").FindStringSubmatch(string(text))[1]
	all := map[string]string{"merchants.csv": csv, keyFiles + "own-shop": canary}
	for _, line := range strings.Split(strings.TrimSpace(csv), "\n")[1:] {
		name, _, _ := strings.Cut(line, ",")
		all[keyFiles+name] = canary
	}
	return all
}

func TestDocumentedBlocksParse(t *testing.T) {
	t.Parallel()
	blocks := documented(t)
	if len(blocks) < 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	read := files(t, documentedMerchants(t))
	for _, b := range blocks {
		if _, err := read(b); err != nil {
			t.Error(err)
		}
	}
	rules := parse(t, blocks[3]).Gateways
	if want := (job.Rule{Status: 200, Body: map[string]string{"response_code": "301"}, Then: "hold"}); !reflect.DeepEqual(rules[0].Answers.Rules[0], want) {
		t.Errorf("got %+v, want %+v", rules[0].Answers.Rules[0], want)
	}
	if a := rules[1].Answers; a.Profile != "stripe" || len(a.Rules) != 1 || a.Rules[0].Body["error.code"] == "" {
		t.Errorf("got %+v", a)
	}
}

const minimal = `
gateways:
  g:
    request: {url: https://api.example.com/}
    leak: {limits: [100/s]}
`

func TestDefaults(t *testing.T) {
	t.Parallel()
	got := parse(t, minimal)
	want := DefaultGateway()
	want.Name, want.At = "g", Position{"dispatcher.yaml", 3, 3}
	want.Request.URL, want.Request.URLText = "https://api.example.com/", "https://api.example.com/"
	want.Leak.Limits = []job.Limit{{N: 100, Window: time.Second}}
	want.Admission.Limits, want.Admission.Burst, want.Admission.Follows = want.Leak.Limits, 6000, true
	if !reflect.DeepEqual(got.Gateways[0], want) {
		t.Errorf("got\n%+v\nwant\n%+v", got.Gateways[0], want)
	}
	if got.Redis != Default().Redis || got.Listen != Default().Listen || got.ListenWritten || got.Token != "" {
		t.Errorf("got %+v", got)
	}
}

// Acts that a second person must approve. A number of jobs may be 0, which differs from never.
func TestApprovalsOfActs(t *testing.T) {
	t.Parallel()
	some, none := int64(50), int64(0)
	for text, want := range map[string]job.Approval{
		"{replay_over: 50, discard: always, brake_lift: always}": {ReplayOver: &some, Discard: true, BrakeLift: true},
		"{replay_over: 0}": {ReplayOver: &none},
		"{replay_over: never, discard: never, brake_lift: never}": {},
	} {
		got := parse(t, minimal+"    approval: "+text+"\n").Gateways[0].Approval
		if !reflect.DeepEqual(got, want) || got.OfActs() != (want.ReplayOver != nil || want.Discard) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestBatchBrake(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]job.Brake{
		"off":                        {},
		"{}":                         {Calls: 50, Refused: 90},
		"{calls: 2, refused: 100%}":  {Calls: 2, Refused: 100},
		"{calls: 100, refused: 89%}": {Calls: 100, Refused: 89},
	} {
		if got := parse(t, minimal+"    batch_brake: "+text+"\n").Gateways[0].BatchBrake; got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
	for b, want := range map[job.Brake]string{{}: "", {Calls: 50, Refused: 90}: "50 45", {Calls: 3, Refused: 50}: "3 2", {Calls: 7, Refused: 100}: "7 7"} {
		if got := b.Setting(); got != want {
			t.Errorf("%+v is %q for the scripts, want %q", b, got, want)
		}
	}
}

func TestCircuit(t *testing.T) {
	t.Parallel()
	usual := DefaultGateway().Circuit
	for text, want := range map[string]job.Circuit{
		"off":   {},
		`"off"`: {},
		"{}":    usual,
		"{failures: 3, ratio: 100%, calls: 2, window: 2m, max: 100ms}": {Failures: 3, Ratio: 100, Calls: 2, Window: 2 * time.Minute, Max: 100 * time.Millisecond},
		"{ratio: 5%}": {Failures: usual.Failures, Ratio: 5, Calls: usual.Calls, Window: usual.Window, Max: usual.Max},
	} {
		if got := parse(t, minimal+"    circuit: "+text+"\n").Gateways[0].Circuit; got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

// While limits are set live, admission follows them as it would follow the file's, except for what it sets itself.
func TestAdmissionUnderLimitsSetLive(t *testing.T) {
	t.Parallel()
	live := []job.Limit{{N: 5, Window: time.Second}, {N: 240, Window: time.Minute}}
	for text, want := range map[string]Admission{
		"{}":                         {"token-bucket", live, 240, 60, true, 0},
		"{burst: 7}":                 {"token-bucket", live, 7, 60, true, 7},
		"{algorithm: fixed-window}":  {"fixed-window", live, 5, 60, true, 0},
		"{limits: [3/s]}":            {"token-bucket", []job.Limit{{N: 3, Window: time.Second}}, 180, 60, false, 0},
		"{limits: [3/s], burst: 12}": {"token-bucket", []job.Limit{{N: 3, Window: time.Second}}, 12, 60, false, 12},
	} {
		got := parse(t, "gateways:\n  g:\n    request: {url: https://api.example.com/}\n    leak: {limits: [100/s]}\n    admission: "+text+"\n").Gateways[0].Admission.Under(live)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	for text, want := range map[string]Admission{
		"{algorithm: token-bucket, burst: 7}":                  {"token-bucket", []job.Limit{{N: 100, Window: time.Second}, {N: 5000, Window: time.Minute}}, 7, 60, true, 7},
		"{algorithm: leaky-bucket, burst: 1, limits: [3/s]}":   {"leaky-bucket", []job.Limit{{N: 3, Window: time.Second}}, 1, 60, false, 1},
		"{algorithm: leaky-bucket}":                            {"leaky-bucket", []job.Limit{{N: 100, Window: time.Second}, {N: 5000, Window: time.Minute}}, 5000, 60, true, 0},
		"{algorithm: fixed-window}":                            {"fixed-window", []job.Limit{{N: 100, Window: time.Second}, {N: 5000, Window: time.Minute}}, 100, 60, true, 0},
		"{algorithm: sliding-window, limits: [1/365d]}":        {"sliding-window", []job.Limit{{N: 1, Window: 365 * job.Day}}, 1, 60, false, 0},
		"{algorithm: sliding-window, precision: 1000}":         {"sliding-window", []job.Limit{{N: 100, Window: time.Second}, {N: 5000, Window: time.Minute}}, 100, 1000, true, 0},
		"{algorithm: sliding-log, limits: [300/10s, 10000/d]}": {"sliding-log", []job.Limit{{N: 300, Window: 10 * time.Second}, {N: 10000, Window: job.Day}}, 300, 60, false, 0},
	} {
		got := parse(t, "gateways:\n  g:\n    request: {url: https://api.example.com/}\n    leak: {limits: [100/s, 5000/m]}\n    admission: "+text+"\n")
		if a := got.Gateways[0].Admission; !reflect.DeepEqual(a, want) {
			t.Errorf("%s: got %+v, want %+v", text, a, want)
		}
		tried[want.Algorithm] = true
	}
	if len(tried) != len(job.Algorithms()) {
		t.Errorf("only %v were tried", tried)
	}
}

func TestAdmissionBurstDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		leak, admission string
		want            int64
	}{
		{"100/s", "", 6000},
		{"100/s, 5000/m", "", 5000}, // the tightest in the long run
		{"300/10s", "", 1800},       //
		{"1/10ms", "", 6000},        //
		{"3/h", "", 3},              // a job may cost 3
		{"100/s, 1000/d", "", 100},  // 60 s' worth would be 0
		{"1/d", "", 1},              // at least 1
		{"100/s", "[7/s]", 420},     // admission's own limit
		{"1000/s", "[1/s]", 1000},   // and the cost that the leak grants
		{"5/s", "[50/s, 60/m]", 60}, //
		{"70368744177664/1us", "", job.MaxCount},
	} {
		text := strings.Replace(minimal, "100/s]", c.leak+"], jitter: 0", 1)
		if c.admission != "" {
			text += "    admission: {limits: " + c.admission + "}\n"
		}
		if got := parse(t, text).Gateways[0].Admission.Burst; got != c.want {
			t.Errorf("%s %s: %d, want %d", c.leak, c.admission, got, c.want)
		}
	}
}

// TestDocumentedKeys compares the table of docs/configuration.md with the defaults, key by key.
func TestDocumentedKeys(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| [^|]+ \\| ([^|]+) \\| ").FindAllStringSubmatch(string(text), -1) {
		got[m[1]] = strings.Trim(m[2], "`")
	}
	c, g, s := Default(), DefaultGateway(), defaultSign()
	want := map[string]string{
		"oidc.issuer":                   "required",
		"oidc.client_id":                "required",
		"oidc.client_secret":            "none",
		"oidc.redirect":                 "none",
		"oidc.device_client_id":         "client_id",
		"oidc.audiences":                "none",
		"oidc.scopes":                   "[profile, email]",
		"oidc.name":                     "email",
		"oidc.session":                  "the token's life",
		"oidc.roles.claim":              "required",
		"oidc.roles.is":                 "required",
		"oidc.roles.role":               "required",
		"oidc.roles.gateways":           "all",
		"request.tls.ca":                "the system's roots",
		"request.tls.cert":              "none",
		"request.tls.key":               "none",
		"request.proxy":                 "none",
		"request.sign.header":           "required",
		"request.sign.secret":           "required",
		"request.sign.secret_encoding":  "text",
		"request.sign.private_key":      "none",
		"request.sign.jws.key_id":       "none",
		"request.sign.jws.protected":    "none",
		"request.sign.jws.unencoded":    "false",
		"request.sign.algorithm":        s.Algorithm,
		"request.sign.content":          s.Content,
		"request.sign.encoding":         s.Encoding,
		"request.sign.value":            s.Value,
		"request.sign.timestamp_header": "none",
		"request.sign.timestamp":        s.Timestamp,
		"request.oauth2.token_url":      "required",
		"request.oauth2.client_id":      "required",
		"request.oauth2.client_secret":  "required",
		"request.oauth2.scope":          "none",
		"request.oauth2.audience":       "none",
		"request.oauth2.auth":           AuthHeader,
		"redis":                         c.Redis.Reveal(),
		"redis.url":                     "required",
		"defaults":                      "none",
		"templates":                     "none",
		"merchants.file":                "required",
		"merchants.like":                "none",
		"merchants.separator":           ",",
		"like":                          "none",
		"redis.tls.ca":                  "the system's roots",
		"redis.tls.cert":                "none",
		"redis.tls.key":                 "none",
		"redis.tls.server_name":         "the host of the address",
		"wait_replicas":                 strconv.Itoa(c.WaitReplicas),
		"listen":                        c.Listen,
		"token":                         "none",
		"token_previous":                "none",
		"tokens.name":                   "required",
		"tokens.person":                 "none",
		"tokens.role":                   "required",
		"tokens.secret":                 "required",
		"tokens.sha256":                 "none",
		"tokens.gateways":               "all",
		"tokens.expires":                "never",
		"cookie_secure":                 "false",
		"dedupe_scope":                  string(c.DedupeScope),
		"encryption.keys":               "required",
		"encryption.active":             "required",
		"encryption.require":            "false",
		"request.url":                   "required",
		"request.method":                g.Request.Method,
		"request.encoding":              g.Request.Encoding,
		"request.headers":               "none",
		"request.strip":                 "none",
		"request.idempotency_header":    g.Request.Key.Name,
		"request.idempotency_prefix":    "none",
		"request.key.in":                job.KeyInHeader,
		"request.key.name":              g.Request.Key.Name,
		"request.key.prefix":            "none",
		"request.key.form":              job.KeyID,
		"request.key.min":               "none",
		"request.key.max":               "none",
		"request.key.alphabet":          "visible ASCII",
		"request.key_lifetime":          job.FormatDuration(g.Request.KeyLifetime),
		"request.timeout":               job.FormatDuration(g.Request.Timeout),
		"answers":                       g.Answers.Profile,
		"answers.done_needs":            "none",
		"answers.matches":               "none",
		"answers.saved":                 "none",
		"lookup.url":                    "required",
		"lookup.method":                 "GET",
		"lookup.body":                   "{}",
		"lookup.schedule":               "5s, 1m, 10m, 1h, 1d, 1d",
		"lookup.share":                  strconv.Itoa(usualShare) + "%",
		"lookup.limits":                 "none",
		"lookup.scan.items":             "the answer",
		"lookup.scan.match":             "required",
		"lookup.scan.next":              "none",
		"lookup.scan.parameter":         "none",
		"lookup.scan.until":             "none",
		"lookup.scan.pages":             strconv.Itoa(usualPages),
		"lookup.matches":                "required",
		"lookup.answers":                "required",
		"lookup.accepted":               "as the others",
		"lanes.key":                     "required",
		"lanes.limits":                  "none",
		"lanes.max_in_flight":           "0",
		"lanes.weight":                  "1",
		"lanes.strip":                   "false",
		"lanes.header":                  "none",
		"priority.classes":              "none",
		"priority.default":              "required",
		"priority.floors":               "none",
		"routes":                        "none",
		"routes.request":                "the gateway's",
		"routes.answers":                "the gateway's",
		"routes.lookup":                 "the gateway's",
		"routes.limits":                 "none",
		"routes.max_in_flight":          "0",
		"routes.circuit":                "account",
		"routes.reference":              "the gateway's",
		"reference":                     g.Reference,
		"amount.field":                  "none",
		"amount.currency":               "none",
		"amount.least":                  "1",
		"amount.most":                   "9007199254740991",
		"amount.required":               "false",
		"map":                           "none",
		"leak.limits":                   "required",
		"leak.burst":                    strconv.FormatInt(g.Leak.Burst, 10),
		"leak.jitter":                   job.FormatDuration(g.Leak.Jitter),
		"leak.max_in_flight":            strconv.FormatInt(g.Leak.MaxInFlight, 10),
		"admission.algorithm":           g.Admission.Algorithm,
		"admission.limits":              "leak.limits",
		"admission.burst":               "60 s",
		"admission.precision":           strconv.FormatInt(g.Admission.Precision, 10),
		"retry.attempts":                strconv.Itoa(g.Retry.Attempts),
		"retry.first":                   job.FormatDuration(g.Retry.First),
		"retry.max":                     job.FormatDuration(g.Retry.Max),
		"circuit.failures":              strconv.FormatInt(g.Circuit.Failures, 10),
		"circuit.ratio":                 strconv.FormatInt(g.Circuit.Ratio, 10) + "%",
		"circuit.calls":                 strconv.FormatInt(g.Circuit.Calls, 10),
		"circuit.window":                job.FormatDuration(g.Circuit.Window),
		"circuit.max":                   job.FormatDuration(g.Circuit.Max),
		"hold.max":                      job.FormatDuration(g.Hold.Max),
		"brakes":                        "none",
		"brakes.unknown_currency":       "allow",
		"approval.batch_over":           "never",
		"approval.payee":                "none",
		"approval.replay_over":          "never",
		"approval.discard":              "never",
		"approval.brake_lift":           "never",
		"batch_brake.calls":             strconv.FormatInt(g.BatchBrake.Calls, 10),
		"batch_brake.refused":           strconv.FormatInt(g.BatchBrake.Refused, 10) + "%",
		"parked.most":                   strconv.FormatInt(g.Parked.Most, 10),
		"parked.bytes":                  units.BytesSize(float64(g.Parked.Bytes)),
		"pan.then":                      "refuse",
		"pan.allow":                     "none",
		"erase.payload":                 whenDone,
		"outcomes.readers":              "none",
		"outcomes.keep":                 job.FormatDuration(DefaultOutcomes().Keep),
		"outcomes.max_behind":           strconv.FormatInt(DefaultOutcomes().MaxBehind, 10),
		"outcomes.then":                 DefaultOutcomes().Then,
		"replay":                        string(g.Replay),
		"dedupe":                        job.FormatDuration(g.Dedupe),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the table says\n%v\nthe program\n%v", got, want)
	}
	for key := range want {
		top, below, nested := strings.Cut(key, ".")
		known := strings.Split(keysOf(t, ""), ", ")
		if !slices.Contains([]string{"redis", "wait_replicas", "listen", "token", "token_previous", "cookie_secure", "dedupe_scope", "defaults", "templates"}, key) {
			known = strings.Split(keysOf(t, "  g: {zzzzzz: 1}"), ", ")
		}
		switch {
		case top == "encryption":
			known, top = []string{"keys", "active", "require"}, below // the tests of encryption read them
		case top == "merchants":
			known, top = []string{"file", "like", "separator"}, below // TestMerchantsOfSeveralFiles reads them
		case top == "tokens":
			known, top = []string{"name", "person", "role", "secret", "sha256", "gateways", "expires"}, below // TestTokensWithNames reads them, and bad-tokens-key lists them
		case top == "brakes" && nested:
			known, top = []string{"limit", "single", "unknown_currency"}, below // TestBrakesOfMoney reads them
		case top == "oidc":
			continue // TestLoginsWithAProvider reads them, and TestFaultsOfAProvider lists them
		case top == "redis" && nested:
			known, top = []string{"url", "tls.ca", "tls.cert", "tls.key", "tls.server_name"}, below // TestTheTLSOfRedis reads them
		case top == "routes" && nested:
			known, top = strings.Split(keysOf(t, "  g: {routes: {r: {zzzzzz: 1}}}"), ", "), below
		case nested:
			levels := strings.Split(key, ".")
			text := "{zzzzzz: 1}"
			for _, level := range slices.Backward(levels[:len(levels)-1]) {
				text = "{" + level + ": " + text + "}"
			}
			known, top = strings.Split(keysOf(t, "  g: "+text), ", "), levels[len(levels)-1]
		}
		if !slices.Contains(known, top) {
			t.Errorf("the program does not know %s, only %v", key, known)
		}
	}
}

// keysOf returns the keys that the program lists for an unknown one.
func keysOf(t *testing.T, below string) string {
	t.Helper()
	text := "gateways:\n" + below + "\n"
	if below == "" {
		text = "zzzzzz: 1\n"
	}
	_, err := Parse("f", []byte(text), Options{})
	m := regexp.MustCompile("zzzzzz: unknown key: use one of (.*)").FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatal(err)
	}
	return m[1]
}

func TestOrderAndLookUp(t *testing.T) {
	t.Parallel()
	c := parse(t, minimal+`
  b:
    request: {url: https://b.example.com/}
    leak: {limits: [1/s]}
  a-1_x:
    request: {url: https://a.example.com/}
    leak: {limits: [2/s]}
`)
	if got := c.Names(); !slices.Equal(got, []string{"g", "b", "a-1_x"}) {
		t.Errorf("got %v", got)
	}
	if g, ok := c.Gateway("a-1_x"); !ok || g.Leak.Limits[0].N != 2 || g.At.Line != 10 {
		t.Errorf("got %+v %v", g, ok)
	}
	if _, ok := c.Gateway("c"); ok {
		t.Error("there is no gateway c")
	}
}

func TestUnsetVariablesInRequest(t *testing.T) {
	t.Parallel()
	text := `
gateways:
  g:
    request:
      url: https://${HOST}/
      headers: {Authorization: "Bearer ${KEY}", X-Set: "${STRIPE_KEY}"}
    leak: {limits: [100/s]}
`
	c, err := Parse("f", []byte(text), Options{Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	q := c.Gateways[0].Request
	if q.URL != "" || q.URLText != "https://${HOST}/" || q.Headers["Authorization"] != "" || q.Headers["X-Set"].Reveal() != canary {
		t.Errorf("got %#v", q)
	}
	_, err = Parse("f", []byte(text), Options{Secrets: true, Env: testEnv})
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 2 || faults[0].Line != 5 || faults[1].Line != 6 {
		t.Errorf("got %v", err)
	}
	for _, needed := range []string{"${KEY}", "\"\"\n      key_lifetime: ${KEY}"} {
		bad := strings.Replace(text, "    leak", "      idempotency_header: "+needed+"\n    leak", 1)
		if _, err := Parse("f", []byte(bad), Options{Env: testEnv}); err == nil {
			t.Errorf("%s: no error", needed)
		}
	}
}

func TestVariablesAnywhere(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) {
		return map[string]string{"RATE": "7", "HOST": "x.example.com"}[name], true
	}
	text := `
gateways:
  g:
    request: {url: "https://${HOST}/a$${b}", idempotency_header: ""}
    leak: {limits: ["${RATE}/s"], burst: "${RATE}"}
`
	_, err := Parse("f", []byte(text), Options{Env: env})
	if err == nil || !strings.Contains(err.Error(), "unknown placeholder") {
		t.Fatalf("$$ did not make a dollar sign: %v", err)
	}
	c, err := Parse("f", []byte(strings.Replace(text, "$${b}", "$$b", 1)), Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	g := c.Gateways[0]
	if g.Request.URL.Reveal() != "https://x.example.com/a$b" || g.Leak.Burst != 7 || g.Leak.Limits[0].String() != "7/s" || g.Request.KeyLifetime != 0 {
		t.Errorf("got %+v", g)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte("\ufeff"+strings.ReplaceAll(minimal, "\n", "\r\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(good, Options{}); err != nil || c.File != good {
		t.Errorf("got %v, %v", c, err)
	}
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                           "this is a directory: name a file in it, with -c FILE",
		filepath.Join(dir, "no.yaml"): "there is no such file: name the configuration with -c FILE or $DISPATCHER_CONFIG",
		filepath.Join(good, "a.yaml"): "the file can't be opened: not a directory",
		large:                         "the file is larger than 1 MiB, so it can't be a configuration: name the right one with -c FILE",
	} {
		_, err := Load(path, Options{})
		if err == nil || err.Error() != path+": "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestDeepNestingIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("[", 1<<20), strings.Repeat("- ", 1<<18), "a: " + strings.Repeat("{a: ", 1<<17)} {
		if _, err := Parse("f", []byte(text), Options{}); err == nil || !strings.Contains(err.Error(), "nested") {
			t.Errorf("got %v", err)
		}
	}
}

func TestExampleFile(t *testing.T) {
	t.Parallel()
	c, err := Load("../../examples/dispatcher.yaml", Options{Secrets: true, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Names(); !slices.Equal(got, []string{"stripe", "adyen"}) {
		t.Errorf("got %v", got)
	}
	if _, err := Load("../../examples/dispatcher.yaml", Options{Env: func(string) (string, bool) { return "", false }}); err != nil {
		t.Errorf("enqueue needs no secret: %v", err)
	}
}

func euros(n int64) job.Money { return job.Money{Minor: big.NewInt(100 * n), Currency: "EUR"} }

func TestBrakesOfMoney(t *testing.T) {
	t.Parallel()
	g := parse(t, minimal+"    amount: {field: amount, currency: currency}\n    brakes: [{limit: EUR 2000000/24h}, {limit: JPY 50000/90s}, {single: EUR 99.50}, {unknown_currency: refuse}]\n").Gateways[0]
	const want = "EUR:86400000000:200000000=EUR 2000000/1d;JPY:90000000:50000=JPY 50000/90s;|EUR:9950=EUR 99.50;|1"
	if got := g.Brakes.Setting(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
