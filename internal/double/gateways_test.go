package double

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// What the documents of single gateways say, in the words of a caller.

func TestStripeSavesA500AndMarksIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v1", Options{})
	r.arm("saved-500=job=inv-1,charge=true,final=failed,delay=2h", "decline=job=inv-2")
	c := charge{job: "inv-1", key: "k1"}
	first, again := r.pay(c), r.pay(c)
	r.want("first", first, 500, "api_error")
	r.want("again", again, 500, "api_error")
	if first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("marks: %q, then %q", first.header.Get("Idempotent-Replayed"), again.header.Get("Idempotent-Replayed"))
	}
	if e := r.charged("a 500 that charged", 1)[0]; e.State != "paid" {
		t.Errorf("it is %s", e.State)
	}
	r.hands.advance(2 * time.Hour)
	if e := r.charged("rolled back", 1)[0]; e.State != "failed" {
		t.Errorf("two hours later it is %s", e.State)
	}
	r.want("the saved answer stays", r.pay(c), 500)
	r.want("other parameters", r.pay(charge{job: "inv-1", key: "k1", amount: "1251"}), 400, "idempotency_error")
	r.want("another endpoint", r.pay(charge{job: "inv-1", key: "k1", path: "/v1/refunds"}), 400, "idempotency_error")
	r.want("another account", r.pay(charge{job: "inv-1", key: "k1", header: map[string]string{"Stripe-Account": "acct_2"}}), 200)
	r.want("a decline", r.pay(charge{job: "inv-2", key: "k2"}), 402, "insufficient_funds")
	r.want("is saved", r.pay(charge{job: "inv-2", key: "k2"}), 402, "insufficient_funds")
	r.want("another key", r.pay(charge{job: "inv-2", key: "k2~2"}), 200, "succeeded")
}

func TestStripeRollsA500Forward(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v1", Options{})
	r.arm("saved-500=job=inv-1,charge=false,final=paid,delay=2h")
	r.want("first", r.pay(charge{job: "inv-1", key: "k1"}), 500)
	r.hands.advance(2*time.Hour - 1)
	r.charged("nothing within two hours", 0)
	r.hands.advance(1)
	if e := r.charged("and then", 1)[0]; e.State != "paid" || e.Job != "inv-1" || e.Key != "k1" || e.Fate != "saved-500" {
		t.Errorf("%+v", e)
	}
	r.want("the saved answer stays", r.pay(charge{job: "inv-1", key: "k1"}), 500)
	r.want("the payment is found", r.get("/v1/payment_intents/pi_00000001"), 200, "succeeded")
}

func TestStripeDoesNotSaveWhatWasNotExecuted(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v1", Options{})
	r.arm("expired-token=job=inv-1")
	r.want("no token", r.pay(charge{job: "inv-1", key: "k1", noAuth: true}), 401)
	r.want("an expired one", r.pay(charge{job: "inv-1", key: "k1"}), 401)
	r.want("no amount", r.pay(charge{job: "inv-1", key: "k1", amount: "a lot"}), 400, "parameter_invalid")
	r.want("a long key", r.pay(charge{job: "inv-1", key: strings.Repeat("k", 256)}), 400, "255")
	r.want("at last", r.pay(charge{job: "inv-1", key: "k1"}), 200)
	r.want("no key", r.pay(charge{job: "inv-1"}), 200)
	r.want("once more without a key", r.pay(charge{job: "inv-1"}), 200)
	r.charged("each call without a key, and the one with one", 3)
	json := r.request(charge{job: "inv-1"})
	json.Header.Set("Content-Type", "application/json")
	r.want("JSON for a form", r.do(json), 400)
}

func TestStripeLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v1", Options{})
	for i := range 25 {
		r.want("within the limit", r.pay(charge{job: fmt.Sprint(i), key: fmt.Sprint(i)}), 200)
		r.hands.advance(time.Millisecond)
	}
	over := r.pay(charge{job: "25", key: "25"})
	if over.status != 429 || over.header.Get("Stripe-Rate-Limited-Reason") != "endpoint-rate" || over.header.Get("Retry-After") != "" {
		t.Errorf("the 26th in a second: %d %v", over.status, over.header)
	}
	r.hands.advance(time.Second - 25*time.Millisecond - 1) // the first one is a nanosecond short of leaving the window
	r.want("just before", r.pay(charge{job: "25", key: "25"}), 429)
	r.hands.advance(1)
	r.want("when the first has left the window", r.pay(charge{job: "25", key: "25"}), 200)
	r.hands.advance(time.Minute)
	r.arm("429=job=inv-1,calls=5")
	reasons := map[string]bool{}
	for range 5 {
		reasons[r.pay(charge{job: "inv-1", key: "k"}).header.Get("Stripe-Rate-Limited-Reason")] = true
	}
	if len(reasons) != 5 {
		t.Errorf("429s of %v, want all five reasons", reasons)
	}
}

func TestStripeSearchLags(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v1", Options{})
	r.arm("not-found-yet=job=inv-2")
	r.want("a payment", r.pay(charge{job: "inv-1", key: "k1"}), 200)
	r.want("whose answer is lost", r.pay(charge{job: "inv-2", key: "k2"}), 0)
	find := func(job string) said {
		return r.get("/v1/payment_intents/search?query=" + url.QueryEscape("metadata['job']:'"+job+"'"))
	}
	r.hands.advance(time.Minute - 1)
	r.want("within a minute", find("inv-1"), 200, `"data":[]`)
	r.hands.advance(1)
	r.want("after it", find("inv-1"), 200, `"id":"pi_00000001"`)
	r.want("in an outage", find("inv-2"), 200, `"data":[]`)
	r.hands.advance(time.Hour)
	r.want("after the outage", find("inv-2"), 200, `"job":"inv-2"`)
	r.want("one that there is not", find("inv-3"), 200, `"data":[]`)
	r.want("by its id", r.get("/v1/payment_intents/pi_00000002"), 200, "succeeded")
	r.want("by a wrong one", r.get("/v1/payment_intents/pi_9"), 404)
}

func TestStripeV2RunsFailuresAgainAndShowsTheState(t *testing.T) {
	t.Parallel()
	r := newRig(t, "stripe/v2", Options{})
	r.arm("5xx=job=inv-1", "state-moves=job=inv-2")
	r.want("a failure", r.pay(charge{job: "inv-1", key: "k1"}), 500)
	r.want("again", r.pay(charge{job: "inv-1", key: "k1"}), 200, "succeeded")
	r.want("a lost answer", r.pay(charge{job: "inv-2", key: "k2"}), 0)
	r.want("refunded since", r.pay(charge{job: "inv-2", key: "k2"}), 200, "refunded")
	r.want("the same key for another API", r.pay(charge{job: "inv-2", key: "k2", path: "/v2/other"}), 200, "succeeded")
	r.charged("inv-1, inv-2 and the other API", 3)
}

func TestAdyenRegionsCompaniesAndItsStoreOfKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, "adyen/v72", Options{})
	r.arm("store-down=job=inv-1", "409-or=job=inv-2", "scope=job=inv-3", "hint-against-status=job=inv-4,reason=hint-stop")
	down := r.pay(charge{job: "inv-1", key: "k1"})
	r.want("the store of keys is down", down, 503, `"703"`)
	if down.header.Get("transient-error") != "true" {
		t.Errorf("no hint: %v", down.header)
	}
	r.want("later", r.pay(charge{job: "inv-1", key: "k1"}), 200, "Authorised")
	r.want("in another region", r.pay(charge{job: "inv-1", key: "k1", host: "live-us.example.com"}), 200, "Authorised")
	r.charged("once in each region", 2)
	r.want("a lost answer", r.pay(charge{job: "inv-2", key: "k2"}), 0)
	r.want("processed or in progress", r.pay(charge{job: "inv-2", key: "k2"}), 409, `"704"`)
	r.want("with another status", r.pay(charge{job: "inv-2", key: "k2"}), 422, `"704"`)
	r.want("another merchant's key", r.pay(charge{job: "inv-3", key: "k3"}), 200, "of-somebody-else", `"value":2250`)
	r.charged("nothing for the key of somebody else", 3)
	stop := r.pay(charge{job: "inv-4", key: "k4"})
	r.want("a 500 without a hint", stop, 500)
	if stop.header.Get("transient-error") != "" || stop.header.Get("Idempotency-Key") != "k4" {
		t.Errorf("headers %v", stop.header)
	}
	r.charged("which has charged", 4)
}

func TestPayPalsThreeStores(t *testing.T) {
	t.Parallel()
	r := newRig(t, "paypal/payouts-v1", Options{})
	r.want("a payout", r.pay(charge{job: "inv-1", key: "batch-1"}), 201, "PENDING")
	r.want("again", r.pay(charge{job: "inv-1", key: "batch-1"}), 400, "already exists", "/v1/payments/payouts/PB00000001")
	r.hands.advance(10 * time.Minute)
	r.want("the link", r.get("/v1/payments/payouts/PB00000001"), 200, `"batch_status":"SUCCESS"`)
	if e := r.charged("once", 1)[0]; e.State != "paid" || e.Amount != "12.50" || e.Key != "batch-1" {
		t.Errorf("%+v", e)
	}
	r.arm("2xx-later=job=inv-9,reason=unclaimed")
	r.want("nobody claims it", r.pay(charge{job: "inv-9", key: "batch-9"}), 201, "UNCLAIMED")
	r.hands.advance(30 * day)
	if e := r.charged("30 days later", 2)[1]; e.State != "returned" {
		t.Errorf("%+v", e)
	}
}

func TestPayPalOrdersOfTwoSteps(t *testing.T) {
	t.Parallel()
	r := newRig(t, "paypal/orders-v2", Options{})
	r.arm("two-steps=job=inv-1", "guess=job=inv-2", "2xx-no=job=inv-3")
	r.want("created", r.pay(charge{job: "inv-1", key: "k1"}), 201, `"CREATED"`)
	r.charged("an order that is not captured", 0)
	capture := charge{job: "inv-1", key: "k2", path: "/v2/checkout/orders/5O00000001/capture"}
	r.want("the capture's answer is lost", r.pay(capture), 0)
	r.want("the same key", r.pay(capture), 201, "COMPLETED")
	capture.key = "k3"
	r.want("another key", r.pay(capture), 422, "ORDER_ALREADY_CAPTURED")
	r.charged("captured once", 1)
	r.want("a lost call", r.pay(charge{job: "inv-2", key: "k4"}), 0)
	r.want("whose repeat is guessed at", r.pay(charge{job: "inv-2", key: "k4"}), 422, "DUPLICATE_INVOICE_ID")
	r.want("a decline that comes as 201", r.pay(charge{job: "inv-3", key: "k5"}), 201, `"DECLINED"`)
	r.charged("the capture, and the lost call", 2)
}

func TestGoCardlessNamesThePaymentInItsConflict(t *testing.T) {
	t.Parallel()
	r := newRig(t, "gocardless/v1", Options{})
	r.arm("409-done=job=inv-1", "other-body-replays=job=inv-2", "2xx-later=job=inv-3,final=charged_back")
	c := charge{job: "inv-1", key: "k1"}
	r.want("a lost answer", r.pay(c), 0)
	r.want("again", r.pay(c), 409, "idempotent_creation_conflict", `"conflicting_resource_id":"PM00000001"`)
	r.hands.advance(24 * time.Hour)
	r.want("on its way", r.get("/payments/PM00000001"), 200, `"submitted"`)
	r.hands.advance(48 * time.Hour)
	r.want("confirmed", r.get("/payments/PM00000001"), 200, `"confirmed"`, `"amount":1250`)
	r.hands.advance(3650 * 24 * time.Hour)
	r.want("ten years later", r.pay(c), 409)
	r.want("somebody else's key", r.pay(charge{job: "inv-2", key: "k2"}), 409, `"PM00000002"`)
	r.want("shows another amount", r.get("/payments/PM00000002"), 200, `"amount":2250`)
	third := r.pay(charge{job: "inv-3", key: "k3"})
	r.want("accepted", third, 201, "pending_submission")
	if third.header.Get("Ratelimit-Limit") != "1000" || third.header.Get("Ratelimit-Remaining") != "996" {
		t.Errorf("headers %v", third.header)
	}
	r.hands.advance(120 * time.Hour)
	if e := r.charged("inv-1 and inv-3", 2); e[0].State != "paid_out" || e[1].State != "charged_back" {
		t.Errorf("%+v", e)
	}
}

func TestBraintreeTellsItsCasesApart(t *testing.T) {
	t.Parallel()
	r := newRig(t, "braintree/v1", Options{})
	r.arm("5xx=job=inv-1", "running-elsewhere=job=inv-2,delay=10s")
	r.want("a failure", r.pay(charge{job: "inv-1", key: "k1"}), 500)
	r.want("that stored nothing", r.pay(charge{job: "inv-1", key: "k1"}), 422, "915234")
	r.want("a lost call", r.pay(charge{job: "inv-2", key: "k2"}), 0)
	r.want("in flight", r.pay(charge{job: "inv-2", key: "k2"}), 422, "915233")
	r.hands.advance(10 * time.Second)
	r.want("done", r.pay(charge{job: "inv-2", key: "k2"}), 200, "SUBMITTED_FOR_SETTLEMENT")
	r.hands.advance(24 * time.Hour)
	r.want("as it is now", r.pay(charge{job: "inv-2", key: "k2"}), 200, `"SETTLED"`)
	r.want("other parameters", r.pay(charge{job: "inv-2", key: "k2", amount: "13.00"}), 422, "915232", "bt00000001")
	r.want("no key", r.pay(charge{job: "inv-3"}), 200)
	r.want("a twin", r.pay(charge{job: "inv-3"}), 200, "GATEWAY_REJECTED")
	r.hands.advance(30 * time.Second)
	r.want("30 s later", r.pay(charge{job: "inv-3"}), 200)
	r.charged("inv-2 once, inv-3 twice", 3)
}

func TestCheckoutSaves2xxAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, "checkout/v1", Options{})
	r.arm("5xx-not-saved=job=inv-1", "saved-decline=job=inv-2")
	r.want("a 502", r.pay(charge{job: "inv-1", key: "k1"}), 502)
	r.want("the same key", r.pay(charge{job: "inv-1", key: "k1"}), 201)
	r.charged("twice", 2)
	for range 2 {
		r.want("a decline", r.pay(charge{job: "inv-2", key: "k2"}), 201, `"approved":false`)
	}
	r.want("by reference", r.get("/payments?reference=inv-2"), 200, `"Declined"`)
}

func TestQontoAndKlarnaReplayWhateverTheBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, "qonto/v2", Options{})
	r.want("no key", r.pay(charge{job: "inv-1"}), 400, "mandatory")
	r.want("a transfer", r.pay(charge{job: "inv-1", key: "k1"}), 201, `"12.50"`)
	r.want("another body", r.pay(charge{job: "inv-2", key: "k1", amount: "99.00"}), 201, `"12.50"`, "inv-1")
	r.charged("the first one alone", 1)
	k := newRig(t, "klarna/v1", Options{})
	k.want("no UUID", k.pay(charge{job: "inv-1", key: "k1"}), 400)
	first, again := k.pay(charge{job: "inv-1", key: oneKey}), k.pay(charge{job: "inv-2", key: oneKey, amount: "1"})
	if first.status != 201 || again.status != 201 || first.header.Get("Capture-Id") == "" || again.header.Get("Capture-Id") != first.header.Get("Capture-Id") {
		t.Errorf("%v, then %v", first.header, again.header)
	}
	k.charged("once", 1)
}

func TestMangopayBlocksAndStores(t *testing.T) {
	t.Parallel()
	r := newRig(t, "mangopay/v2", Options{})
	r.arm("409-blocked=job=inv-1", "long-windows=job=inv-2", "slow=job=inv-3")
	c := charge{job: "inv-1", key: oneKey}
	r.want("a short key", r.pay(charge{job: "inv-1", key: "k1"}), 400, "16 to 36")
	r.want("a failure", r.pay(c), 500)
	r.want("is blocked all the same", r.pay(c), 409, "already been created")
	r.charged("nothing", 0)
	r.want("the stored answer", r.get("/v2.01/client/responses/"+oneKey), 200, `"StatusCode":"500"`, `"Internal Server Error"`)
	slow := charge{job: "inv-3", key: keyOf("inv-3")}
	first := r.start(slow)
	r.want("nothing is stored yet", r.get("/v2.01/client/responses/"+slow.key), 404)
	r.hands.advance(30 * time.Second)
	r.want("the first", <-first, 200)
	r.want("stored", r.get("/v2.01/client/responses/"+slow.key), 200, `"StatusCode":"200"`, `"SUCCEEDED"`)
	r.hands.advance(24 * time.Hour)
	r.want("after its life", r.get("/v2.01/client/responses/"+oneKey), 404)
	over := r.pay(charge{job: "inv-2", key: keyOf("inv-2")})
	r.want("a full window", over, 429, "contact support")
	if got := over.header.Get("X-Ratelimit-Remaining"); got != "2299,4499,8799,0" {
		t.Errorf("remaining %q", got)
	}
	r.want("look-ups count", r.get("/v2.01/client/payins/payin_00000001"), 429)
	r.hands.advance(144 * time.Minute)
	r.want("a tenth of a day later", r.pay(charge{job: "inv-2", key: keyOf("inv-2")}), 200)
}

func TestWorldpayPayoutsAreAcceptedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, "worldpay/payouts-v1", Options{})
	key := strings.Repeat("k", 35)
	r.want("a payout", r.pay(charge{job: "inv-1", key: key}), 202, `"payoutRequestId":"PZ00000001","idempotencyKey":"`+key+`"`)
	r.want("again", r.pay(charge{job: "inv-1", key: key}), 200, `"payoutRequestId":"PZ00000001"`)
	r.want("a key of 36 characters", r.pay(charge{job: "inv-2", key: key + "k"}), 400)
	r.want("a search before the lag is over", r.get("/accountPayouts/events?transactionReference=inv-1"), 200, `{"items":[]}`)
	r.hands.advance(24 * time.Hour)
	r.want("the next day", r.get("/accountPayouts/events?transactionReference=inv-1"), 200, `"targetAmount":12.50`, `"paymentState":"COMPLETED"`)
	if e := r.charged("once", 1)[0]; e.State != "paid" || e.Amount != "12.50" {
		t.Errorf("%+v", e)
	}
}

func TestSquareCancelsNothingAndTheLateCallCharges(t *testing.T) {
	t.Parallel()
	r := newRig(t, "square/v2", Options{})
	r.arm("guess=job=inv-1")
	r.want("no key", r.pay(charge{job: "inv-0"}), 400, "idempotency_key")
	c := charge{job: "inv-1", key: "k1"}
	r.want("lost, and still running", r.pay(c), 0)
	cancel := c
	cancel.path = "/v2/payments/cancel"
	r.want("to cancel it succeeds", r.pay(cancel), 200)
	r.hands.advance(30 * time.Second)
	r.charged("and it charges", 1)
	r.want("to cancel it again", r.pay(cancel), 200)
	if e := r.charged("the entry stays", 1)[0]; e.State != "canceled" {
		t.Errorf("it is %s", e.State)
	}
}

func TestWiseFundsTwiceWithoutAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, "wise/v1", Options{})
	r.arm("two-steps=job=inv-1")
	c := charge{job: "inv-1", key: oneKey}
	r.want("a transfer", r.pay(c), 200, "incoming_payment_waiting")
	r.want("again", r.pay(c), 200, `"id":100000001`)
	r.charged("no money has moved", 0)
	fund := charge{job: "inv-1", path: "/v3/profiles/1/transfers/100000001/payments"}
	r.want("the funding's answer is lost", r.pay(fund), 0)
	r.want("its state", r.get("/v1/transfers/100000001"), 200, "processing")
	r.want("once more", r.pay(fund), 201, "COMPLETED")
	r.charged("twice", 2)
	r.want("no such transfer", r.pay(charge{path: "/v3/profiles/1/transfers/7/payments"}), 404)
	plain := newRig(t, "worldpay/v1", Options{})
	plain.arm("two-steps=job=inv-1")
	plain.want("lost", plain.pay(charge{job: "inv-1"}), 0)
	plain.want("repeated", plain.pay(charge{job: "inv-1"}), 201, "sentForSettlement")
	plain.charged("Worldpay's cards know no key", 2)
}

func TestQontoThrottles401s(t *testing.T) {
	t.Parallel()
	r := newRig(t, "qonto/v2", Options{})
	for range 200 {
		r.want("no token", r.pay(charge{job: "inv-1", key: "k1", noAuth: true}), 401)
		r.hands.advance(time.Second)
	}
	r.want("the 201st within an hour", r.pay(charge{job: "inv-1", key: "k1", noAuth: true}), 429, "unauthorized")
	r.want("with a token", r.pay(charge{job: "inv-1", key: "k1"}), 201)
}
