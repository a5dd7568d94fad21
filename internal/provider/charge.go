package provider

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// charge is what is known about one idempotency key.
type charge struct {
	running bool
	status  int // of the first answer
	number  int // of the charge
	// retryAfter is that of the first answer.
	retryAfter time.Duration
}

// payer is what is known about one job id.
type payer struct {
	number  int // among the job ids that were executed, from 1
	charges int
	charge  int // the number of the last one
	// chargedAt is when that was.
	chargedAt time.Time
	declined  bool // by DeclineEvery: once, so that a replay with a new key goes through
	failed    bool // by FailEvery, once
}

var generation = regexp.MustCompile(`~[0-9]+$`)

// jobID returns the job of a key: the key without its generation.
func jobID(key string) string { return generation.ReplaceAllString(key, "") }

// newCall reads whose call it is. Without an idempotency key the job's id is that of X-Job-Id, of the query's id, or the
// last piece of the path.
func (p *Provider) newCall(r *http.Request, at time.Time) *call {
	c := &call{at: p.reckoned(at), key: r.Header.Get("Idempotency-Key"), common: commons(r, p.Config().Limits)}
	c.id = jobID(c.key)
	for _, id := range []string{r.Header.Get("X-Job-Id"), r.URL.Query().Get("id"), path.Base(r.URL.Path)} {
		if c.id == "" {
			c.id = id
		}
	}
	return c
}

// outcome is the result of a call. It is decided when the call arrives.
type outcome struct {
	status     int // 0: it will hang
	replay     *charge
	entry      *charge // of its key, settled at the end of the service time; nil if nothing is kept
	charges    bool
	service    time.Duration
	retryAfter time.Duration
	unmarked   bool // a repeated answer without its mark
}

// serveCharge answers one call.
func (p *Provider) serveCharge(w http.ResponseWriter, r *http.Request, at time.Time) {
	c := p.newCall(r, at)
	o := p.arrive(c)
	defer p.leave()
	// The whole body is read: else net/http would notice neither the next request nor that the caller has gone.
	c.paid = p.paid(r)
	sleep(o.service)
	number := p.settle(c, o)
	if o.status == 0 {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // net/http's way to close a connection without an answer
	}
	answer(w, o, number)
}

// sleep waits for the time of the work, also if the caller has hung up: the card is charged nevertheless.
func sleep(d time.Duration) {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		<-t.C
	}
}

// arrive counts the call and decides its outcome.
func (p *Provider) arrive(c *call) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	who := p.ids[c.id]
	if c.first = who == nil; c.first {
		who = &payer{}
		p.ids[c.id] = who
		p.counts.FirstCalls++
	}
	p.log.arrive(c, p.cfg.Limits, p.cfg.CountRefused)
	p.counts.Calls++
	p.flying++
	p.counts.MaxInFlight = max(p.counts.MaxInFlight, p.flying)
	if c.over {
		p.counts.Over++
	}
	return p.decide(c, who, p.fated(c))
}

// fated finds the fate of the call's job, and counts the call for it. Nil: it has none.
func (p *Provider) fated(c *call) *Fate {
	i := slices.IndexFunc(p.cfg.Fates, func(f Fate) bool { return f.Fits(c.id) })
	if i < 0 {
		return nil
	}
	f := p.cfg.Fates[i]
	s := p.fates[f.String()]
	if s == nil {
		s = &FateStats{Fate: f.String()}
		p.fates[s.Fate] = s
	}
	s.Calls++
	if c.first {
		s.Jobs++
	}
	return &f
}

func (p *Provider) decide(c *call, who *payer, f *Fate) outcome {
	if o, refused := p.before(c, f); refused {
		return o
	}
	if e := p.keys[c.key]; c.key != "" && e != nil && !p.cfg.NoKeys {
		switch {
		case e.running:
			return outcome{status: http.StatusConflict}
		case f != nil && f.Status == 0:
			return outcome{status: 0, replay: e, service: p.cfg.Service}
		}
		return outcome{status: e.status, replay: e, retryAfter: e.retryAfter, unmarked: p.cfg.NoMarks}
	}
	return p.begin(c, who, f)
}

// before decides whether the call is refused before its key is read: by an outage, a limit or a bar.
func (p *Provider) before(c *call, f *Fate) (o outcome, refused bool) {
	incident := p.cfg.Incident
	switch {
	case p.cfg.Down:
		return outcome{status: http.StatusServiceUnavailable, retryAfter: p.cfg.RetryAfter}, true
	case incident.Status != 0 && incident.Status != http.StatusInternalServerError && p.chance(incident.share()):
		return outcome{status: incident.Status, retryAfter: incident.RetryAfter}, true
	case c.over && p.cfg.NoHint:
		return outcome{status: http.StatusTooManyRequests}, true
	case c.over:
		return outcome{status: http.StatusTooManyRequests, retryAfter: max(c.wait, 1)}, true
	case f != nil && !f.works():
		return outcome{status: f.Status, retryAfter: f.RetryAfter}, true
	}
	return outcome{}, false
}

// begin starts to execute a call whose key is new, or whose earlier calls left nothing.
func (p *Provider) begin(c *call, who *payer, f *Fate) outcome {
	if who.number == 0 {
		p.payers++
		who.number = p.payers
	}
	o := p.execute(who, f)
	o.service = p.cfg.Service
	if p.keeps(o) {
		o.entry = &charge{running: true}
		if c.key != "" && !p.cfg.NoKeys {
			p.keys[c.key] = o.entry
		}
	}
	return o
}

// execute draws the result of the work.
func (p *Provider) execute(who *payer, f *Fate) outcome {
	switch {
	case f != nil:
		return outcome{status: f.Status, charges: f.Charge, retryAfter: f.RetryAfter}
	case p.cfg.Incident.Status == http.StatusInternalServerError && p.chance(p.cfg.Incident.share()):
		return outcome{status: http.StatusInternalServerError, charges: p.cfg.Charge500, retryAfter: p.cfg.Incident.RetryAfter}
	case p.fails(who):
		return outcome{status: http.StatusInternalServerError, charges: p.cfg.Charge500}
	case p.declines(who):
		return outcome{status: http.StatusPaymentRequired}
	case p.chance(p.cfg.Hang):
		return outcome{status: 0, charges: true}
	}
	return outcome{status: http.StatusOK, charges: true}
}

// keeps reports whether the key keeps the answer. Of answers without a charge, only a decline and a redirection are kept.
func (p *Provider) keeps(o outcome) bool {
	switch {
	case o.status == http.StatusInternalServerError:
		return p.cfg.Save500
	case o.status == http.StatusPaymentRequired, o.status/100 == 3:
		return true
	}
	return o.charges
}

func (p *Provider) declines(who *payer) bool {
	if n := p.cfg.DeclineEvery; n > 0 && who.number%n == 0 && !who.declined {
		who.declined = true
		return true
	}
	return p.chance(p.cfg.Decline)
}

func (p *Provider) fails(who *payer) bool {
	if n := p.cfg.FailEvery; n > 0 && who.number%n == 0 && !who.failed {
		who.failed = true
		return true
	}
	return p.chance(p.cfg.Fail)
}

func (p *Provider) chance(share float64) bool { return share > 0 && p.rand.Float64() < share }

// settle charges and counts, and returns the number of the charge of the answer.
func (p *Provider) settle(c *call, o outcome) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.status = o.status
	p.count(o)
	if o.replay != nil {
		return o.replay.number
	}
	number := 0
	if o.charges {
		number = p.book(c)
		c.charge = number
	}
	if o.entry != nil {
		*o.entry = charge{status: o.status, number: number, retryAfter: o.retryAfter}
		if o.status == 0 {
			o.entry.status = http.StatusOK // a repeat is answered
		}
	}
	return number
}

// book charges, and returns the number of the charge.
func (p *Provider) book(c *call) int {
	p.charges++
	p.counts.Charged++
	if who := p.ids[c.id]; who != nil { // nil after a reset
		who.charges++
		who.charge, who.chargedAt = p.charges, time.Now()
		if who.charges == 2 {
			p.counts.ChargedTwice++
		}
	}
	return p.charges
}

func (p *Provider) count(o outcome) {
	if o.replay != nil {
		p.counts.Replayed++
	}
	switch o.status {
	case 0:
		p.counts.Hung++
	case http.StatusOK:
		p.counts.OK++
	case http.StatusPaymentRequired:
		if o.replay == nil {
			p.counts.Declined++
		}
	case http.StatusConflict:
		p.counts.Conflicts++
	case http.StatusTooManyRequests:
		p.counts.TooMany++
	case http.StatusInternalServerError:
		p.counts.Failed++
	case http.StatusServiceUnavailable:
		p.counts.Down++
	default:
		p.counts.Other++
	}
}

func (p *Provider) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying--
}

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
