package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// lookups is the path of look-ups.
const lookups = "/lookups/"

// serveLookup answers what became of a job, and charges nothing: 200 if it was charged, 404 if it was not, or if the charge is younger than
// LookupLag. A look-up uses up the limit like a call.
func (p *Provider) serveLookup(w http.ResponseWriter, r *http.Request, id string, at time.Time) {
	c := &call{at: p.reckoned(at), id: id, look: true, common: commons(r, p.Config().Limits)}
	o := p.arriveLookup(c)
	defer p.leave()
	sleep(o.service)
	number := p.settleLookup(c, &o)
	if o.status == 0 {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // as a call that hangs
	}
	if o.status != http.StatusOK {
		answer(w, o, number)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"id": fmt.Sprintf("ch_%d", number), "status": "succeeded", "job": id})
}

// arriveLookup counts a look-up, and decides whether it is answered.
func (p *Provider) arriveLookup(c *call) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.arrive(c, p.cfg.Limits, p.cfg.CountRefused)
	p.counts.Lookups++
	p.flying++
	p.counts.MaxInFlight = max(p.counts.MaxInFlight, p.flying)
	if c.over {
		p.counts.Over++
	}
	if o, refused := p.before(c, nil); refused {
		return o
	}
	switch {
	case p.cfg.Incident.Status == http.StatusInternalServerError && p.chance(p.cfg.Incident.share()), p.chance(p.cfg.LookupFail):
		return outcome{status: http.StatusInternalServerError, service: p.cfg.Service}
	case p.chance(p.cfg.LookupHang):
		return outcome{service: p.cfg.Service}
	}
	return outcome{status: http.StatusOK, service: p.cfg.Service}
}

// settleLookup finds the job, and returns the number of its charge.
func (p *Provider) settleLookup(c *call, o *outcome) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	number := 0
	if o.status == http.StatusOK {
		if who := p.ids[c.id]; who != nil && who.charges > 0 && time.Since(who.chargedAt) >= p.cfg.LookupLag {
			number = who.charge
		} else {
			o.status = http.StatusNotFound
		}
	}
	c.status = o.status
	switch o.status {
	case http.StatusOK:
		p.counts.LookupsFound++
	case http.StatusTooManyRequests:
		p.counts.TooMany++
	}
	return number
}

// notFound is the body of a look-up that finds nothing.
const notFound = `{"error":{"code":"resource_missing","message":"No such charge."}}`
