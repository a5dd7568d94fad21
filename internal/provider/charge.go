package provider

import (
	"net/http"
	"path"
	"regexp"
	"slices"
	"time"
)

// charge is what is known of one idempotency key.
type charge struct {
	running bool
	status  int // of the first answer
	number  int // of the charge
	// retryAfter came with the first answer.
	retryAfter time.Duration
}

// payer is what is known of one job id.
type payer struct {
	number  int // of the job ids that work was begun for, from 1
	charges int
	charge  int // the number of the last one
	// chargedAt is when that was.
	chargedAt time.Time
	declined  bool // by DeclineEvery: once, so that a replay with a new key goes through
	failed    bool // by FailEvery, once
}

var generation = regexp.MustCompile(`~[0-9]+$`)

// jobID is the job that a key belongs to: the key without its generation.
func jobID(key string) string { return generation.ReplaceAllString(key, "") }

// newCall reads who calls. Without an idempotency key the job's id is looked for in X-Job-Id, the query's id, and the
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

// outcome is what will become of a call, decided when it arrives.
type outcome struct {
	status     int // 0: it will hang
	replay     *charge
	entry      *charge // of its key, to be settled at the end of the service time; nil where nothing is kept
	charges    bool
	service    time.Duration
	retryAfter time.Duration
	unmarked   bool // though it is given again
}

// serveCharge answers one call.
func (p *Provider) serveCharge(w http.ResponseWriter, r *http.Request, at time.Time) {
	c := p.newCall(r, at)
	o := p.arrive(c)
	defer p.leave()
	// The whole body is read, or net/http would notice neither the next request nor that the caller has gone.
	c.paid = p.paid(r)
	sleep(o.service)
	number := p.settle(c, o)
	if o.status == 0 {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // net/http's way to close a connection without an answer
	}
	answer(w, o, number)
}

// sleep is the time that the work takes. It goes on when the caller has hung up: his card is charged all the same.
func sleep(d time.Duration) {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		<-t.C
	}
}

// arrive counts the call and decides what becomes of it.
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

// before is what answers before the keys are looked at: who is down, limited or barred knows of no key.
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

// begin starts work on a key that is new, or whose calls so far left nothing behind.
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

// execute draws what comes of the work.
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

// keeps says whether the key keeps the answer. Of those that leave no charge behind, only a decline and a redirection are kept.
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

// settle charges, counts, and returns the number of the charge that the answer is about.
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
			o.entry.status = http.StatusOK // who asks again is told
		}
	}
	return number
}

// book moves the money, and returns the number of the charge.
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
