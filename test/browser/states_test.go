package browser

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"spillway/internal/config"
	"spillway/internal/console"
	"spillway/internal/dispatch"
	"spillway/internal/doctor"
	"spillway/internal/httpapi"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// longWhy is a reason about as long as people write them.
const longWhy = "the acquirer moves its data centre until 06:00 UTC and asked all merchants to send nothing meanwhile; Jo in treasury knows, ticket OPS-20417, call +49 30 555 0199 before you resume"

// each answers as the gateway of that name in the path, and for cards as the job asks for.
func each(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/keys":
		w.WriteHeader(http.StatusUnauthorized)
	case "/down":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/busy":
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		card(w, r)
	}
}

func card(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch text := string(body); {
	case strings.Contains(text, "decline"):
		w.WriteHeader(http.StatusPaymentRequired)
		fmt.Fprint(w, `{"error":{"code":"card_declined"}}`)
	case strings.Contains(text, "moved"):
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	case strings.Contains(text, "broken"):
		w.WriteHeader(http.StatusInternalServerError)
	default:
		fmt.Fprint(w, `{"id":"ch_3MmlLrLkdIwHu7ix0snN0B15"}`)
	}
}

// states is a rig with a gateway in each state. A console of this process shows all of them; the dispatcher serves all but two.
func states(t *testing.T) (r *rig, on *testkit.RedisServer) {
	t.Helper()
	r = newRig(t)
	gateway := httptest.NewServer(http.HandlerFunc(each))
	t.Cleanup(gateway.Close)
	on = testkit.Server(t)
	text := fmt.Sprintf("redis: %s\ngateways:\n", on.URL())
	for _, g := range []struct{ name, path, more string }{
		{"cards", "cards", "retry: {attempts: 1}\n    circuit: off\n    reference: id\n    replay: manual\n    admission: {limits: [5/s], burst: 40}"},
		{"keys", "keys", "replay: manual"},
		{"down", "down", "circuit: {failures: 2}"},
		{"busy", "busy", "replay: manual"},
		{"sepa-direct-debit-recurring-de-at-ch", "cards", "replay: manual"},
		{"nobody", "cards", "replay: manual"},
		{"lost", "cards", "replay: manual"},
		{"platform", "cards", "lanes: {key: payload.account, limits: [1/h]}\n    routes: {refund: {request: {url: \"" + gateway.URL + "/cards\"}, limits: [1/d]}}\n" +
			"    priority: {classes: [urgent, normal, bulk], default: normal, floors: {bulk: 5%}}\n    approval: {batch_over: EUR 100}"},
	} {
		text += fmt.Sprintf("  %s:\n    request: {url: %q, idempotency_prefix: %q}\n    amount: {field: amount, currency: currency}\n    leak: {limits: [50/s, 20000/d]}\n    %s\n", g.name, gateway.URL+"/"+g.path, g.name+"-", g.more)
	}
	r.write(text)
	r.serve("-g", "cards", "-g", "keys", "-g", "down", "-g", "busy", "-g", "sepa-direct-debit-recurring-de-at-ch", "-g", "platform")
	r.console()
	return r, on
}

// console serves the console of this process, for all gateways of the file.
func (r *rig) console() {
	r.t.Helper()
	cfg, err := config.Load(filepath.Join(r.dir, "dispatcher.yaml"), config.Options{Secrets: true})
	if err != nil {
		r.t.Fatal(err)
	}
	db, err := dispatch.Open(r.t.Context(), cfg, 5*time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = db.Close() })
	guard := httpapi.NewGuard("")
	pages := console.New(console.Config{Redis: db.Client, Gateways: cfg.Gateways, Guard: guard, Log: slog.New(slog.DiscardHandler),
		Examiner: doctor.NewExaminer(func() doctor.Params { return doctor.Params{Config: cfg, Gateways: cfg.Gateways, DB: db} })})
	server := httptest.NewServer(httpapi.New(httpapi.Config{Guard: guard, Console: pages, Login: pages.Login()}))
	r.t.Cleanup(server.Close)
	r.url = server.URL
}

// run runs a command of an operator.
func (r *rig) run(args ...string) {
	r.t.Helper()
	if out, err := r.command("dispatcher", args...).CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// trouble brings every gateway, and jobs of cards, into the states.
func (r *rig) trouble(on *testkit.RedisServer) {
	r.t.Helper()
	line := func(id, amount, currency, fate, more string) string {
		return fmt.Sprintf(`{"id":%q,"batch":"2026-11","payload":{"amount":%s,"currency":%q,"fate":%q}%s}`+"\n", id, amount, currency, fate, more)
	}
	r.run("limit", "set", "-g", "cards", "20/s", "--why", "they asked us to")
	r.run("pause", "-g", "sepa-direct-debit-recurring-de-at-ch", "--why", longWhy)
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	text := line("paid", "4900", "EUR", "pay", "") + line("declined-eur", "963586", "EUR", "decline", "") + line("declined-jpy", "120000000", "JPY", "decline", "") +
		line("declined-kwd", "1234567", "KWD", "decline", "") + line("broken", "990", "EUR", "broken", "") + line("moved", "250000", "EUR", "moved", "") +
		line("thrown-away", "100", "EUR", "decline", "") + line("hurt", "4200", "EUR", "decline", "") + line("withdrawn", "800", "EUR", "pay", fmt.Sprintf(`,"at":%q`, tomorrow))
	r.feed("cards", text)
	var later, crowd strings.Builder
	for i := range 3 {
		fmt.Fprintf(&later, `{"id":"december-%d","batch":"december direct debits","at":%q,"payload":{"amount":%d,"currency":"EUR"}}`+"\n", i, tomorrow, 15000+i)
	}
	for i := range 45 {
		fmt.Fprintf(&crowd, `{"id":"crowd-%02d","payload":{"amount":100,"currency":"EUR"}}`+"\n", i)
	}
	r.platform()
	r.feed("cards", later.String())
	r.feed("cards", crowd.String())
	for _, g := range []string{"keys", "down", "busy", "sepa-direct-debit-recurring-de-at-ch", "nobody", "lost"} {
		r.enqueue(g, "november-"+g, 6)
	}
	r.run("batch", "pause", "december direct debits", "--why", "the wrong file, ticket 4711", "--yes")
	r.run("park", "withdrawn", "--why", "wrong customer, ticket 4712", "--yes")
	if err := on.Client().HSet(r.t.Context(), redisdb.NewKeys("lost").Pace(), "v", 1_000_000, "c", 1).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// platform gives the gateway with lanes jobs in many of them, and a batch that awaits an approval. One lane is paused.
func (r *rig) platform() {
	r.t.Helper()
	var lanes, large strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lanes, `{"id":"lane-%02d","priority":%q,"route":%q,"payload":{"amount":%d,"currency":"EUR","account":"acct_1NsvbCLkdIwHu7ix%d"}}`+"\n", i, []string{"urgent", "normal", "bulk"}[i%3], []string{"", "refund"}[i%2], 100+i, i%(2+i/5))
		fmt.Fprintf(&large, `{"id":"large-%02d","batch":"2026-11 payouts","payload":{"amount":%d,"currency":"EUR","account":"acct_%d"}}`+"\n", i, 99000+i, i)
	}
	r.feed("platform", lanes.String())
	r.feed("platform", large.String())
	r.run("lane", "pause", "-g", "platform", "acct_1NsvbCLkdIwHu7ix1", "--why", "fraud, ticket 17")
}

// TestTheConsoleInEveryState has a look at what the story of one good operator does not meet.
func TestTheConsoleInEveryState(t *testing.T) {
	r, on := states(t)
	r.browser()
	r.trouble(on)
	r.do("the overview", chromedp.Navigate(r.url+"/"))
	for _, text := range []string{"check the credentials", "circuit open", "no dispatcher has ever served", "Redis has lost the version of the limits", "OPS-20417", "paused 3", "unknown outcome 1"} {
		r.sees(text)
	}
	r.run("dlq", "discard", "-g", "cards", "--id", "thrown-away", "--why", "a test of ours", "--yes")
	if err := on.Client().HSet(t.Context(), redisdb.NewKeys("cards").Job("hurt"), "pn", 3000000000).Err(); err != nil {
		t.Fatal(err)
	}
	r.picture("states")
	for _, g := range []string{"cards", "keys", "down", "busy", "sepa-direct-debit-recurring-de-at-ch", "nobody", "lost", "platform"} {
		r.do(g, chromedp.Navigate(r.url+"/gateways/"+g))
		r.sees("Dead letters")
		r.picture("state-" + g)
	}
	for id, text := range map[string]string{"paid": "ch_3MmlLrLkdIwHu7ix0snN0B15", "thrown-away": "are deleted", "hurt?payload=1": "damaged", "december-1": "dispatcher batch resume",
		"moved": "Resolve", "declined-kwd": "KWD 1,234.567", "crowd-44": "no room"} {
		r.do(id, chromedp.Navigate(r.url+"/jobs/"+id))
		r.sees(text)
		r.picture("job-" + strings.TrimSuffix(id, "?payload=1"))
	}
	for path, text := range map[string]string{"/batches/2026-11%20payouts": "Awaits an approval", "/gateways/platform?reason=awaiting_approval": "large-00", "/hours": "By gateway", "/health": "Redis and the file", "/batches": "december", "/runbook": "Runbook", "/search": "Field of the payload",
		"/gateways/cards/answers": "card_declined", "/jobs?id=crowd-*": "All keys of Redis were looked at", "/gateways/cards/park?id=crowd-44": "crowd-44"} {
		r.do(path, chromedp.Navigate(r.url+path))
		r.sees(text)
		r.picture("page" + strings.Map(func(c rune) rune {
			if strings.ContainsRune("/?=*%", c) {
				return '-'
			}
			return c
		}, path))
	}
	r.do("a preview", chromedp.Navigate(r.url+"/gateways/cards/clear?do=replay"))
	r.sees("Would be held back")
	r.picture("preview-many")
}
