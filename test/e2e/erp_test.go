package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/double"
	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// erpCSV is what an ERP system writes: a byte order mark, latin-1, semicolons, decimal commas, CRLF, and a line break in a field.
const erpCSV = "\xef\xbb\xbfRechnung;Kunde;Name;Betrag;Waehrung;Text\r\n" +
	"RE-4711;cus_ba5vkRuW3Aq8JR;M\xfcller & S\xf6hne GmbH;1.698,81;EUR;\"Wartung; November \"\"2026\"\"\"\r\n" +
	"RE-4712;cus_BgnR2amdaZNhXM;B\xe4ckerei Vogel;12,50;EUR;\r\n" +
	"RE-4713;cus_NjM6xUQN8UULa3;Harbour Caf\xe9;1.250,00;GBP;Lizenz = 100 %\r\n" +
	"RE-4714;cus_brVPSYp4uZZptB;Osaka Trading;10.500;JPY;\"zwei\r\nZeilen\"\r\n" +
	"RE-4715;cus_Kw7dFhTq2BzPXo;\xc5se + S\xf8n;7,125;KWD;Lizenz\r\n"

// erpNDJSON is the same payments as another program writes them.
const erpNDJSON = `{"Rechnung":"RE-4711","Kunde":"cus_ba5vkRuW3Aq8JR","Name":"Müller & Söhne GmbH","Betrag":1698.81,"Waehrung":"EUR","Text":"Wartung; November \"2026\""}
{"Rechnung":"RE-4712","Kunde":"cus_BgnR2amdaZNhXM","Name":"Bäckerei Vogel","Betrag":"12,50","Waehrung":"EUR","Text":null}
{"Rechnung":"RE-4713","Kunde":"cus_NjM6xUQN8UULa3","Name":"Harbour Caf\u00e9","Betrag":1250.00,"Waehrung":"GBP","Text":"Lizenz = 100 %"}
{"Rechnung":"RE-4714","Kunde":"cus_brVPSYp4uZZptB","Name":"Osaka Trading","Betrag":10500,"Waehrung":"JPY","Text":"zwei\r\nZeilen"}
{"Rechnung":"RE-4715","Kunde":"cus_Kw7dFhTq2BzPXo","Name":"Åse + Søn","Betrag":7.125,"Waehrung":"KWD","Text":"Lizenz"}
`

const stripeFile = `redis: %s
gateways:
  shop:
    like: stripe/v1
    request: {url: "%s/v1/payment_intents", headers: {Authorization: "Bearer ${TEST_KEY}"}}
    leak: {limits: [100/s]}
    map:
      amount: {from: Betrag, minor: true}
      currency: {from: Waehrung, lower: true}
      customer: {from: Kunde}
      description: {from: Text}
      metadata.invoice: {from: Rechnung}
      metadata.name: {from: Name}
      confirm: {value: true}
      off_session: {value: true}
`

// stripeCalls are the forms that must arrive.
var stripeCalls = []string{
	`amount=169881 confirm=true currency=eur customer=cus_ba5vkRuW3Aq8JR description=Wartung; November "2026" metadata[invoice]=RE-4711 metadata[name]=Müller & Söhne GmbH off_session=true`,
	`amount=1250 confirm=true currency=eur customer=cus_BgnR2amdaZNhXM metadata[invoice]=RE-4712 metadata[name]=Bäckerei Vogel off_session=true`,
	`amount=125000 confirm=true currency=gbp customer=cus_NjM6xUQN8UULa3 description=Lizenz = 100 % metadata[invoice]=RE-4713 metadata[name]=Harbour Café off_session=true`,
	"amount=10500 confirm=true currency=jpy customer=cus_brVPSYp4uZZptB description=zwei\r\nZeilen metadata[invoice]=RE-4714 metadata[name]=Osaka Trading off_session=true",
	`amount=7125 confirm=true currency=kwd customer=cus_Kw7dFhTq2BzPXo description=Lizenz metadata[invoice]=RE-4715 metadata[name]=Åse + Søn off_session=true`,
}

const adyenFile = `redis: %s
gateways:
  shop:
    like: adyen/v72
    request: {url: "%s/v72/payments", headers: {X-API-Key: "${TEST_KEY}"}}
    leak: {limits: [100/s]}
    map:
      amount.value: {from: Betrag, minor: true}
      amount.currency: {from: Waehrung}
      merchantAccount: {value: ShopEU}
      reference: {from: Rechnung}
      shopperReference: {from: Kunde}
      shopperName.lastName: {from: Name}
      shopperStatement: {from: Text}
`

var adyenCalls = []string{
	`{"amount":{"currency":"EUR","value":169881},"merchantAccount":"ShopEU","reference":"RE-4711","shopperName":{"lastName":"Müller & Söhne GmbH"},"shopperReference":"cus_ba5vkRuW3Aq8JR","shopperStatement":"Wartung; November \"2026\""}`,
	`{"amount":{"currency":"EUR","value":1250},"merchantAccount":"ShopEU","reference":"RE-4712","shopperName":{"lastName":"Bäckerei Vogel"},"shopperReference":"cus_BgnR2amdaZNhXM"}`,
	`{"amount":{"currency":"GBP","value":125000},"merchantAccount":"ShopEU","reference":"RE-4713","shopperName":{"lastName":"Harbour Café"},"shopperReference":"cus_NjM6xUQN8UULa3","shopperStatement":"Lizenz = 100 %"}`,
	`{"amount":{"currency":"JPY","value":10500},"merchantAccount":"ShopEU","reference":"RE-4714","shopperName":{"lastName":"Osaka Trading"},"shopperReference":"cus_brVPSYp4uZZptB","shopperStatement":"zwei\r\nZeilen"}`,
	`{"amount":{"currency":"KWD","value":7125},"merchantAccount":"ShopEU","reference":"RE-4715","shopperName":{"lastName":"Åse + Søn"},"shopperReference":"cus_Kw7dFhTq2BzPXo","shopperStatement":"Lizenz"}`,
}

// recorder notes what a gateway is sent, and what it answers.
type recorder struct {
	gateway http.Handler

	mu    sync.Mutex
	calls map[string][]string // by what was sent: the idempotency keys
	said  map[string]string   // to that: status and body
}

// ServeHTTP notes a call and hands it on.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	r.gateway.ServeHTTP(answer, req)
	sent := fields(req.Header.Get("Content-Type"), body)
	r.mu.Lock()
	r.calls[sent] = append(r.calls[sent], req.Header.Get("Idempotency-Key"))
	r.said[sent] = fmt.Sprint(answer.Code, " ", answer.Body)
	r.mu.Unlock()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// fields returns a body in a form in which equal bodies are equal texts.
func fields(contentType string, body []byte) string {
	if !strings.HasPrefix(contentType, "application/x-www-form-urlencoded") {
		var v any
		if err := json.Unmarshal(body, &v); err != nil {
			return err.Error()
		}
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		_ = e.Encode(v)
		return strings.TrimSuffix(text.String(), "\n")
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return err.Error()
	}
	var all []string
	for name, values := range form {
		all = append(all, name+"="+strings.Join(values, ","))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// bill sends the payments of an ERP system to a gateway, as CSV and as NDJSON. Exactly these calls must arrive, each with a key of its own, and the gateway must accept
// them. Both formats must give the same calls. It returns the gateway's answers.
func bill(t *testing.T, file string, gateway func() http.Handler, calls []string) map[string]string {
	t.Helper()
	csv := billed(t, file, gateway(), calls, "-f", "erp.csv", "--separator", ";", "--encoding", "latin-1")
	ndjson := billed(t, file, gateway(), calls, "-f", "erp.ndjson")
	if !reflect.DeepEqual(csv.calls, ndjson.calls) {
		t.Errorf("as CSV they were sent as\n%q, as NDJSON as\n%q", csv.calls, ndjson.calls)
	}
	return csv.said
}

func billed(t *testing.T, file string, gateway http.Handler, calls []string, args ...string) *recorder {
	t.Helper()
	r := &recorder{gateway: gateway, calls: map[string][]string{}, said: map[string]string{}}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	w := newWorld(t, provider.Config{}, plain)
	w.more = []string{"TEST_KEY=sk_test_4242"}
	w.config = w.file("dispatcher.yaml", fmt.Sprintf(file, w.redis.URL(), srv.URL))
	w.file("erp.csv", erpCSV)
	w.file("erp.ndjson", erpNDJSON)
	w.ok("enqueue", append([]string{"--id-field", "Rechnung", "--decimal", ",", "-o", "json"}, args...)...)
	w.dispatcher()
	w.settled(time.Minute)
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := map[string]bool{}
	for _, want := range calls {
		if n := len(r.calls[want]); n != 1 || !strings.HasPrefix(r.said[want], "200 ") {
			t.Errorf("%d times, answered %q, was sent\n%q", n, r.said[want], want)
			continue
		}
		keys[r.calls[want][0]] = true
	}
	if len(r.calls) != len(calls) || len(keys) != len(calls) || keys[""] {
		t.Errorf("%d calls with the keys %v, want %d: %q", len(r.calls), keys, len(calls), r.calls)
	}
	return r
}

// The payments that an ERP system exports arrive complete at Adyen's double.
func TestAnERPFileArrivesAtAdyen(t *testing.T) {
	t.Parallel()
	table, err := double.Load("adyen/v72")
	if err != nil {
		t.Fatal(err)
	}
	bill(t, adyenFile, func() http.Handler {
		d, err := double.New(table, double.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { adds(t, d) })
		return d
	}, adyenCalls)
}

// adds checks that the double has charged the sums of the file.
func adds(t *testing.T, d *double.Double) {
	t.Helper()
	sums := map[string]int{}
	for _, e := range d.Ledger() {
		n, err := strconv.Atoi(e.Amount)
		if err != nil {
			t.Error(err)
		}
		sums[e.Currency] += n
	}
	if got := fmt.Sprint(sums); got != "map[EUR:171131 GBP:125000 JPY:10500 KWD:7125]" {
		t.Errorf("charged %s", got)
	}
}

// Stripe's own mock checks each call against Stripe's specification. It makes PaymentIntents of the same file.
func TestAnERPFileArrivesAtStripeMock(t *testing.T) {
	program, err := exec.LookPath("stripe-mock")
	if err != nil {
		t.Skip("stripe-mock, which is Stripe's own, is not installed: make stripe-mock runs it")
	}
	t.Parallel()
	mock := httputil.NewSingleHostReverseProxy(stripeMock(t, program))
	for sent, said := range bill(t, stripeFile, func() http.Handler { return mock }, stripeCalls) {
		var made struct{ Object, Currency, Customer string }
		_, text, _ := strings.Cut(said, " ")
		if err := json.Unmarshal([]byte(text), &made); err != nil || made.Object != "payment_intent" || !strings.Contains(sent, "currency="+made.Currency+" customer="+made.Customer+" ") {
			t.Errorf("%q made %+v, %v", sent, made, err)
		}
	}
}

// stripeMock starts it on a free port.
func stripeMock(t *testing.T, program string) *url.URL {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
	cmd := exec.CommandContext(t.Context(), program, "-http-addr", address, "-https-port", "-1")
	if err := testkit.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	testkit.Eventually(t, 30*time.Second, "stripe-mock", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return &url.URL{Scheme: "http", Host: address}
}
