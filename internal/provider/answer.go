package provider

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

var bodies = map[int]string{
	http.StatusUnauthorized:        `{"error":{"code":"invalid_api_key","message":"This key has no rights any more."}}`,
	http.StatusForbidden:           `{"error":{"code":"forbidden","message":"This account may not do that."}}`,
	http.StatusPaymentRequired:     `{"error":{"code":"card_declined","message":"Your card was declined."}}`,
	http.StatusConflict:            `{"error":{"code":"idempotency_key_in_use","message":"The first request with this key is still running."}}`,
	http.StatusTooManyRequests:     `{"error":{"code":"rate_limit","message":"Too many requests."}}`,
	http.StatusNotFound:            notFound,
	http.StatusInternalServerError: `{"error":{"code":"internal","message":"Something went wrong."}}`,
	http.StatusServiceUnavailable:  `{"error":{"code":"unavailable","message":"The service is down."}}`,
}

// body is what goes with a status; number is that of the charge.
func body(status, number int) string {
	if text, ok := bodies[status]; ok {
		return text
	}
	if status < http.StatusMultipleChoices {
		return fmt.Sprintf(`{"id":"ch_%[1]d","status":"succeeded","pspReference":"ch_%[1]d","resultCode":"Authorised"}`, number) // Stripe's words, and Adyen's
	}
	return fmt.Sprintf(`{"error":{"code":"status_%d","message":%q}}`, status, http.StatusText(status))
}

func answer(w http.ResponseWriter, o outcome, number int) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if o.replay != nil && !o.unmarked {
		h.Set("Idempotent-Replayed", "true")
	}
	if o.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((o.retryAfter+time.Second-1)/time.Second)))
	}
	if o.status/100 == 3 {
		h.Set("Location", fmt.Sprintf("/v1/charges/ch_%d", number))
	}
	w.WriteHeader(o.status)
	_, _ = io.WriteString(w, body(o.status, number))
}
