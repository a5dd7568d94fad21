package dispatch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/outcome"
	"spillway/internal/packs"
)

// packLook is one look-up of a pack: what it asks, and what the documented answers mean.
type packLook struct {
	accepted bool
	request  string // the path of the request
	payload  string
	ref      string // the gateway's reference, as a job has it that was accepted
	asks     string // the path and query of the look-up; {key} and {since} are filled in
	body     string // of the answer; STATUS is filled in
	found    string // the reference that a settled payment has then
	done     []string
	refused  []string
	open     []string
	absent   string // the body of an answer without the payment; "" = there is none
	status   int    // of that answer; 0 = 200
	notDone  bool   // what it means: not_done, and not later
}

const sinceFirst = "{since}"

var packLooks = map[string][]packLook{
	"adyen/v72": nil, "braintree/v1": nil,
	"stripe/v1": {{request: "/v1/payment_intents", payload: `{"amount":4900,"currency":"eur","metadata":{"job":"inv-1"}}`, asks: "/v1/payment_intents/search?query=metadata%5B%27job%27%5D%3A%27inv-1%27",
		body:  `{"object":"search_result","has_more":false,"data":[{"id":"pi_1","object":"payment_intent","amount":4900,"currency":"eur","status":"STATUS","metadata":{"job":"inv-1"}}]}`,
		found: "pi_1", done: []string{"succeeded"}, refused: []string{"requires_payment_method", "canceled"}, open: []string{"processing", "requires_action", "requires_capture", "requires_confirmation"},
		absent: `{"object":"search_result","has_more":false,"data":[]}`},
		{accepted: true, request: "/v1/payment_intents", payload: `{"amount":4900,"currency":"eur"}`, ref: "pi_1", asks: "/v1/payment_intents/pi_1", body: `{"id":"pi_1","amount":4900,"currency":"eur","status":"STATUS"}`,
			found: "pi_1", done: []string{"succeeded"}, refused: []string{"requires_payment_method", "canceled"}, open: []string{"processing"}, absent: `{"error":{"code":"resource_missing"}}`, status: 404}},
	"stripe/v2": {{accepted: true, request: "/v2/money_management/outbound_payments", ref: "obp_1", asks: "/v2/money_management/outbound_payments/obp_1", body: `{"id":"obp_1","status":"STATUS"}`, found: "obp_1",
		done: []string{"posted"}, refused: []string{"failed", "canceled", "returned"}, open: []string{"processing"}, absent: `{"error":{"code":"not_found"}}`, status: 404}},
	"paypal/orders-v2": {{request: "/v2/checkout/orders/5O1/capture", payload: `{}`, asks: "/v2/checkout/orders/5O1",
		body:  `{"id":"5O1","status":"COMPLETED","purchase_units":[{"invoice_id":"inv-1","payments":{"captures":[{"id":"C1","status":"STATUS"}]}}]}`,
		found: "C1", done: []string{"COMPLETED", "REFUNDED", "PARTIALLY_REFUNDED"}, refused: []string{"DECLINED", "FAILED"}, open: []string{"PENDING"}, absent: `{"id":"5O1","status":"APPROVED","purchase_units":[{"invoice_id":"inv-1"}]}`},
		{accepted: true, request: "/v2/checkout/orders/5O1/capture", ref: "C1", asks: "/v2/payments/captures/C1", body: `{"id":"C1","status":"STATUS"}`, found: "C1",
			done: []string{"COMPLETED"}, refused: []string{"DECLINED", "FAILED"}, open: []string{"PENDING"}, absent: `{"name":"RESOURCE_NOT_FOUND"}`, status: 404}},
	"paypal/payments-v2": {{accepted: true, request: "/v2/payments/authorizations/A1/capture", ref: "C1", asks: "/v2/payments/captures/C1", body: `{"id":"C1","status":"STATUS"}`, found: "C1",
		done: []string{"COMPLETED"}, refused: []string{"DECLINED", "FAILED"}, open: []string{"PENDING"}, absent: `{"name":"RESOURCE_NOT_FOUND"}`, status: 404}},
	"paypal/payouts-v1": {{accepted: true, request: "/v1/payments/payouts", ref: "PB1", asks: "/v1/payments/payouts/PB1", body: `{"batch_header":{"payout_batch_id":"PB1","batch_status":"SUCCESS"},"items":[{"transaction_status":"STATUS"}]}`, found: "PB1",
		done: []string{"SUCCESS"}, refused: []string{"FAILED", "RETURNED", "BLOCKED", "REFUNDED", "REVERSED"}, open: []string{"PENDING", "UNCLAIMED", "ONHOLD"}, absent: `{"name":"INVALID_RESOURCE_ID"}`, status: 404}},
	"gocardless/v1": {{request: "/payments", payload: `{"payments":{"amount":4900,"currency":"EUR","metadata":{"job":"inv-1"}}}`, asks: "/payments?limit=500&created_at%5Bgte%5D=" + sinceFirst,
		body:  `{"payments":[{"id":"PM1","amount":4900,"currency":"EUR","status":"STATUS","metadata":{"job":"inv-1"}}],"meta":{"cursors":{"before":null,"after":null},"limit":500}}`,
		found: "PM1", done: []string{"confirmed", "paid_out"}, refused: []string{"failed", "cancelled", "customer_approval_denied"}, open: []string{"pending_submission", "submitted", "pending_customer_approval", "charged_back"},
		absent: `{"payments":[],"meta":{"cursors":{"before":null,"after":null},"limit":500}}`},
		{accepted: true, request: "/payments", payload: `{"payments":{"amount":4900,"currency":"EUR"}}`, ref: "PM1", asks: "/payments/PM1", body: `{"payments":{"id":"PM1","amount":4900,"currency":"EUR","status":"STATUS"}}`, found: "PM1",
			done: []string{"confirmed", "paid_out"}, refused: []string{"failed", "cancelled"}, open: []string{"submitted"}, absent: `{"error":{"type":"invalid_api_usage"}}`, status: 404}},
	"checkout/v1": {{request: "/payments", payload: `{"amount":4900,"currency":"EUR","reference":"inv-1"}`, asks: "/payments?reference=inv-1", body: `{"data":[{"id":"pay_1","amount":4900,"currency":"EUR","reference":"inv-1","status":"STATUS","approved":true}]}`,
		found: "pay_1", done: []string{"Authorized", "Captured", "Paid", "Card Verified", "Partially Captured"}, refused: []string{"Declined", "Canceled", "Expired", "Voided", "Returned"}, open: []string{"Pending", "Requested", "Active", "Retry Scheduled", "Refunded"},
		absent: `{"limit":10,"skip":0,"total_count":0,"data":[]}`},
		{accepted: true, request: "/payments", payload: `{"amount":4900,"currency":"EUR"}`, ref: "pay_1", asks: "/payments/pay_1", body: `{"id":"pay_1","amount":4900,"currency":"EUR","status":"STATUS"}`, found: "pay_1",
			done: []string{"Paid"}, refused: []string{"Declined"}, open: []string{"Pending"}, absent: `{}`, status: 404}},
	"mollie/v2": {{request: "/v2/payments", payload: `{"amount":{"value":"49.00","currency":"EUR"},"metadata":{"job":"inv-1"}}`, asks: "/v2/payments?limit=250",
		body:  `{"count":1,"_embedded":{"payments":[{"id":"tr_1","amount":{"value":"49.00","currency":"EUR"},"status":"STATUS","metadata":{"job":"inv-1"},"createdAt":"2026-11-24T12:00:01+00:00"}]},"_links":{"next":null}}`,
		found: "tr_1", done: []string{"paid"}, refused: []string{"failed", "canceled", "expired"}, open: []string{"open", "pending", "authorized"}, absent: `{"count":0,"_embedded":{"payments":[]},"_links":{"next":null}}`},
		{accepted: true, request: "/v2/payments", payload: `{"amount":{"value":"49.00","currency":"EUR"}}`, ref: "tr_1", asks: "/v2/payments/tr_1", body: `{"id":"tr_1","amount":{"value":"49.00","currency":"EUR"},"status":"STATUS"}`, found: "tr_1",
			done: []string{"paid"}, refused: []string{"failed", "canceled", "expired"}, open: []string{"open"}, absent: `{"status":404,"title":"Not Found"}`, status: 404}},
	"square/v2": {{request: "/v2/payments", payload: `{"reference_id":"inv-1","amount_money":{"amount":4900,"currency":"EUR"}}`, asks: "/v2/payments?begin_time=" + sinceFirst + "&sort_order=ASC&limit=100",
		body: `{"payments":[{"id":"sq1","amount_money":{"amount":4900,"currency":"EUR"},"reference_id":"inv-1","status":"STATUS"}]}`, found: "sq1", done: []string{"COMPLETED"}, refused: []string{"FAILED", "CANCELED"}, open: []string{"PENDING", "APPROVED"}, absent: `{}`},
		{accepted: true, request: "/v2/payments", payload: `{"reference_id":"inv-1"}`, ref: "sq1", asks: "/v2/payments/sq1", body: `{"payment":{"id":"sq1","reference_id":"inv-1","status":"STATUS"}}`, found: "sq1",
			done: []string{"COMPLETED"}, refused: []string{"FAILED", "CANCELED"}, open: []string{"PENDING"}, absent: `{"errors":[{"code":"NOT_FOUND"}]}`, status: 404}},
	"mangopay/v2": {{request: "/v2.01/client/payins/card/direct", payload: `{"DebitedFunds":{"Amount":4900,"Currency":"EUR"}}`, asks: "/v2.01/client/responses/{key}",
		body:  `{"StatusCode":"200","RequestURL":"https://api.mangopay.com/v2.01/client/payins/card/direct","Resource":{"Id":"payin_1","Status":"STATUS","DebitedFunds":{"Amount":4900,"Currency":"EUR"}}}`,
		found: "payin_1", done: []string{"SUCCEEDED"}, refused: []string{"FAILED"}, open: []string{"CREATED"}, absent: `{"Type":"ressource_not_found"}`, status: 404},
		{request: "/v2.01/client/payins/card/direct", payload: `{"DebitedFunds":{"Amount":4900,"Currency":"EUR"}}`, asks: "/v2.01/client/responses/{key}", body: `{"StatusCode":"400","Resource":{"Type":"STATUS"}}`, open: []string{"param_error"}},
		{accepted: true, request: "/v2.01/client/payins/card/direct", ref: "payin_1", asks: "/v2.01/client/payins/payin_1", body: `{"Id":"payin_1","Status":"STATUS"}`, found: "payin_1",
			done: []string{"SUCCEEDED"}, refused: []string{"FAILED"}, open: []string{"CREATED"}, absent: `{"Type":"ressource_not_found"}`, status: 404}},
	"wise/v1": {{accepted: true, request: "/v1/transfers", ref: "1001", asks: "/v1/transfers/1001", body: `{"id":1001,"status":"STATUS"}`, found: "1001",
		done: []string{"outgoing_payment_sent"}, refused: []string{"bounced_back", "funds_refunded", "cancelled"}, open: []string{"incoming_payment_waiting", "processing", "funds_converted"}, absent: `{}`, status: 404}},
	"qonto/v2": {{request: "/v2/sepa/transfers", payload: `{"transfer":{"amount":"49.00","reference":"inv-1"}}`, asks: "/v2/sepa/transfers?per_page=100",
		body:  `{"transfers":[{"id":"qt1","amount":"49.00","reference":"inv-1","status":"STATUS"}],"meta":{"current_page":1,"next_page":null}}`,
		found: "qt1", done: []string{"settled"}, refused: []string{"declined", "canceled"}, open: []string{"pending", "processing"}, absent: `{"transfers":[],"meta":{"current_page":1,"next_page":null}}`},
		{accepted: true, request: "/v2/sepa/transfers", ref: "qt1", asks: "/v2/sepa/transfers/qt1", body: `{"transfer":{"id":"qt1","status":"STATUS"}}`, found: "qt1", done: []string{"settled"}, refused: []string{"declined", "canceled"}, open: []string{"pending"}, absent: `{}`, status: 404}},
	"razorpay/v1": {{accepted: true, request: "/v1/payouts", ref: "pout_1", asks: "/v1/payouts/pout_1", body: `{"id":"pout_1","status":"STATUS"}`, found: "pout_1",
		done: []string{"processed"}, refused: []string{"failed", "rejected", "cancelled", "reversed"}, open: []string{"queued", "pending", "scheduled", "processing"}, absent: `{"error":{"code":"BAD_REQUEST_ERROR"}}`, status: 400}},
	"klarna/v1": {{request: "/ordermanagement/v1/orders/o1/captures", payload: `{"captured_amount":4900,"reference":"inv-1"}`, asks: "/ordermanagement/v1/orders/o1",
		body: `{"order_id":"o1","STATUS":1,"captures":[{"capture_id":"kc1","captured_amount":4900,"reference":"inv-1"}]}`, found: "kc1", done: []string{"whatever"}, absent: `{"order_id":"o1","captures":[]}`, notDone: true}},
	"worldpay/v1": {{request: "/api/payments", payload: `{"transactionReference":"inv-1","instruction":{"value":{"amount":4900,"currency":"EUR"}}}`, asks: "/paymentQueries/payments?transactionReference=inv-1",
		body:  `{"_embedded":{"payments":[{"lastEvent":"STATUS","paymentId":"wp1","transactionReference":"inv-1","value":{"amount":4900,"currency":"EUR"}}]}}`,
		found: "wp1", done: []string{"sentForSettlement", "settlementRequested"}, refused: []string{"authorizationRefused", "authorizationFailed"}, open: []string{"authorizationRequested", "authorizationSucceeded"}, absent: `{"_embedded":{"payments":[]}}`}},
	"worldpay/payouts-v1": {{request: "/accountPayouts", payload: `{"transactionReference":"inv-1","instruction":{"value":{"targetAmount":49.00,"targetCurrency":"EUR"}}}`,
		asks:  "/accountPayouts/events?transactionReference=inv-1&pageSize=100&pageNumber=1",
		body:  `{"items":[{"payoutRequestId":"PZ000001","transactionReference":"inv-1","targetAmount":49,"targetCurrency":"EUR","paymentState":"STATUS"}],"pagination":{"pageNumber":1,"pageSize":100,"pageCount":1,"totalNumberOfRecords":1}}`,
		found: "PZ000001", done: []string{"COMPLETED"}, refused: []string{"REVERSED", "FAILED", "INVALID"}, open: []string{"EXECUTED", "NEW", "REJECTED", "AWAITING_LIQUIDITY"}, absent: `{"items":[],"pagination":{"pageNumber":1}}`},
		{accepted: true, request: "/accountPayouts", payload: `{"transactionReference":"inv-1"}`, ref: "PZ000001", asks: "/accountPayouts/PZ000001", body: `{"payoutRequestId":"PZ000001","transactionReference":"inv-1","paymentState":"STATUS"}`, found: "PZ000001",
			done: []string{"COMPLETED"}, refused: []string{"REVERSED"}, open: []string{"EXECUTED"}, absent: `{"errorName":"notFound","message":"Payment not found"}`, status: 404}},
}

// Each pack makes look-ups as its gateway documents, to a real server, and judges the documented answers correctly. If a payment is not found, this counts only at
// gateways that promise to show payments at once.
func TestWhatEachPackLooksUp(t *testing.T) {
	t.Parallel()
	for _, name := range packs.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			looks, told := packLooks[name]
			if !told {
				t.Fatal("nothing says what it looks up")
			}
			g := packed(t, name, "https://x.example/pay")
			for _, accepted := range []bool{false, true} {
				has := slices.ContainsFunc(looks, func(l packLook) bool { return l.accepted == accepted })
				own := g.Lookup.For(accepted) != nil && (!accepted || g.Lookup.Accepted != g.Lookup.Doubted)
				if has != own {
					t.Errorf("accepted %v: it has a look-up: %v, and a case: %v", accepted, own, has)
				}
			}
			for _, l := range looks {
				l.try(t, name)
			}
		})
	}
}

func packed(t *testing.T, name, url string) config.Gateway {
	t.Helper()
	text := "gateways: {g: {like: " + name + ", request: {url: \"" + url + "\"}, leak: {limits: [1/s]}}}"
	cfg, err := config.Parse("g.yaml", []byte(text), config.Options{Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Gateways[0]
}

func (l packLook) try(t *testing.T, name string) {
	t.Helper()
	var asked, answer string
	status := 200
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.RequestURI
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	defer srv.Close()
	g := packed(t, name, srv.URL+l.request)
	how, err := newLookup(g, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer how.close()
	q := how.For(l.accepted)
	look := job.Look{Job: job.Job{ID: "inv-1", Payload: []byte(l.payload)}, KeyGeneration: 1, Accepted: l.accepted, Reference: l.ref, First: time.Date(2026, 11, 24, 12, 5, 0, 0, time.UTC)}
	find := func() job.Finding {
		return q.Judge(outcome.LookInput{Result: q.Send(t.Context(), job.LookRequest{Look: look, Key: look.Key()}), Look: look})
	}
	want := strings.NewReplacer("{key}", g.Request.Key.Text("inv-1"), sinceFirst, "2026-11-24T12%3A00%3A00Z").Replace("GET " + l.asks)
	for verdict, words := range map[job.LookVerdict][]string{job.LookDone: l.done, job.LookRefused: l.refused, job.LookLater: append(l.open, "a status of next year")} {
		for _, word := range words {
			if len(l.open) == 0 && verdict == job.LookLater {
				continue // there is no status
			}
			answer = strings.Replace(l.body, "STATUS", word, 1)
			f := find()
			if f.Verdict != verdict || f.Failed || asked != want || verdict != job.LookLater && f.Reference != l.found {
				t.Errorf("%s: %+v after %s, want %s of %s after %s", word, f, asked, verdict, l.found, want)
			}
			answer = answer[:len(answer)-1]
			if f = find(); f.Verdict != job.LookLater || !f.Failed {
				t.Errorf("%s, cut off: %+v", word, f)
			}
			answer = strings.NewReplacer("inv-1", "inv-2", `"`+l.ref+`"`, `"of-another"`, "1001", "1002", "4900", "5000", "49.00", "50.00").Replace(strings.Replace(l.body, "STATUS", word, 1))
			if f = find(); f.Verdict == job.LookDone || f.Verdict == job.LookRefused {
				t.Errorf("%s, of another payment: %+v", word, f)
			}
		}
	}
	if l.absent == "" {
		return
	}
	if answer = l.absent; l.status != 0 {
		status = l.status
	}
	if f := find(); (f.Verdict == job.LookNotDone) != l.notDone || f.Verdict == job.LookDone || f.Verdict == job.LookRefused || f.Page != "" {
		t.Errorf("it is not there: %+v", f)
	}
	// A payment that was made without the job's id can't be found by it.
	look.Job.Payload = []byte(strings.ReplaceAll(l.payload, "inv-1", "inv-2"))
	if f := find(); l.notDone && f.Verdict != job.LookLater {
		t.Errorf("the call did not have what it is searched by: %+v", f)
	}
}
