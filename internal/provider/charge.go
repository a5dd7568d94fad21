package provider

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"time"
)

// charge is what is known of one idempotency key.
type charge struct {
	running bool
	status  int // of the first answer
	number  int // of the charge
}

// payer is what is known of one job id.
type payer struct {
	number   int // of the job ids seen, from 1
	charges  int
	declined bool // by DeclineEvery: once, so that a replay with a new key goes through
	failed   bool // by FailEvery, once
}

var generation = regexp.MustCompile(`~[0-9]+$`)

// jobID is the job that a key belongs to: the key without its generation.
func jobID(key string) string { return generation.ReplaceAllString(key, "") }

// newCall reads who calls. Without an idempotency key the job's id is looked for in X-Job-Id, the query's id, and the
// last piece of the path.
func (p *Provider) newCall(r *http.Request, at time.Time) *call {
	c := &call{at: p.reckoned(at), key: r.Header.Get("Idempotency-Key")}
	c.id = jobID(c.key)
	for _, id := range []string{r.Header.Get("X-Job-Id"), r.URL.Query().Get("id"), path.Base(r.URL.Path)} {
		if c.id == "" {
			c.id = id
		}
	}
	return c
}

// fate is what will become of a call, decided when it arrives.
type fate struct {
	status     int // 0: it will be charged and hang
	replay     *charge
	entry      *charge // to be settled at the end of the service time
	service    time.Duration
	retryAfter time.Duration
}

// serveCharge answers one call.
func (p *Provider) serveCharge(w http.ResponseWriter, r *http.Request, at time.Time) {
	c := p.newCall(r, at)
	f := p.arrive(c)
	defer p.leave()
	// The whole body is read, or net/http would notice neither the next request nor that the caller has gone.
	_, _ = io.Copy(io.Discard, r.Body)
	if f.entry != nil || f.status == http.StatusInternalServerError {
		sleep(f.service)
	}
	number := p.settle(c, f)
	if f.status == 0 {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // net/http's way to close a connection without an answer
	}
	answer(w, f, number)
}

// sleep is the time that the work takes. It goes on when the caller has hung up: his card is charged all the same.
func sleep(d time.Duration) {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		<-t.C
	}
}

// arrive counts the call and decides its fate.
func (p *Provider) arrive(c *call) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.arrive(c, p.cfg.Limits, p.cfg.CountRefused)
	p.counts.Calls++
	p.flying++
	p.counts.MaxInFlight = max(p.counts.MaxInFlight, p.flying)
	if c.over {
		p.counts.Over++
	}
	return p.decide(c)
}

func (p *Provider) decide(c *call) fate {
	switch {
	case p.cfg.Down:
		return fate{status: http.StatusServiceUnavailable, retryAfter: p.cfg.RetryAfter}
	case c.over && p.cfg.NoHint:
		return fate{status: http.StatusTooManyRequests}
	case c.over:
		return fate{status: http.StatusTooManyRequests, retryAfter: max(c.wait, 1)}
	}
	if e := p.keys[c.key]; c.key != "" && e != nil && !p.cfg.NoKeys {
		if e.running {
			return fate{status: http.StatusConflict}
		}
		return fate{status: e.status, replay: e}
	}
	return p.begin(c)
}

// begin starts work on a key that is new.
func (p *Provider) begin(c *call) fate {
	who := p.ids[c.id]
	if who == nil {
		who = &payer{number: len(p.ids) + 1}
		p.ids[c.id] = who
	}
	f := fate{status: http.StatusOK, service: p.cfg.Service}
	switch {
	case p.fails(who):
		f.status = http.StatusInternalServerError
		return f
	case p.declines(who):
		f.status = http.StatusPaymentRequired
	case p.chance(p.cfg.Hang):
		f.status = 0
	}
	f.entry = &charge{running: true}
	if c.key != "" && !p.cfg.NoKeys {
		p.keys[c.key] = f.entry
	}
	return f
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

// settle charges, counts, and returns the number of the charge that the answer is about.
func (p *Provider) settle(c *call, f fate) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.status = f.status
	p.count(f)
	if f.replay != nil {
		return f.replay.number
	}
	if f.entry == nil {
		return 0
	}
	f.entry.running, f.entry.status = false, f.status
	if f.status == http.StatusPaymentRequired {
		return 0
	}
	f.entry.status = http.StatusOK // one that hangs too: who asks again is told
	p.charges++
	f.entry.number = p.charges
	p.counts.Charged++
	if who := p.ids[c.id]; who != nil { // nil after a reset
		who.charges++
		if who.charges == 2 {
			p.counts.ChargedTwice++
		}
	}
	return p.charges
}

func (p *Provider) count(f fate) {
	if f.replay != nil {
		p.counts.Replayed++
	}
	switch f.status {
	case 0:
		p.counts.Hung++
	case http.StatusOK:
		p.counts.OK++
	case http.StatusPaymentRequired:
		if f.replay == nil {
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
	}
}

func (p *Provider) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying--
}

var bodies = map[int]string{
	http.StatusPaymentRequired:     `{"error":{"code":"card_declined","message":"Your card was declined."}}`,
	http.StatusConflict:            `{"error":{"code":"idempotency_key_in_use","message":"The first request with this key is still running."}}`,
	http.StatusTooManyRequests:     `{"error":{"code":"rate_limit","message":"Too many requests."}}`,
	http.StatusInternalServerError: `{"error":{"code":"internal","message":"Something went wrong."}}`,
	http.StatusServiceUnavailable:  `{"error":{"code":"unavailable","message":"The service is down."}}`,
}

func answer(w http.ResponseWriter, f fate, number int) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if f.replay != nil {
		h.Set("Idempotent-Replayed", "true")
	}
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((f.retryAfter+time.Second-1)/time.Second)))
	}
	body, ok := bodies[f.status]
	if !ok {
		body = fmt.Sprintf(`{"id":"ch_%d","status":"succeeded"}`, number)
	}
	w.WriteHeader(f.status)
	_, _ = io.WriteString(w, body)
}
