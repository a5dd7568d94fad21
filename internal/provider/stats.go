package provider

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Stats is what the provider saw.
type Stats struct {
	Calls        int `json:"calls"`         // arrivals, refused ones too; look-ups apart
	Lookups      int `json:"lookups"`       // look-ups, refused ones too
	LookupsFound int `json:"lookups_found"` // those that found a charge
	FirstCalls   int `json:"first_calls"`   // those of jobs that had never been called
	OK           int `json:"ok"`            // answers 200, repeated ones too
	Charged      int `json:"charged"`       // charges: with idempotency keys, distinct keys charged
	ChargedTwice int `json:"charged_twice"` // job ids (keys without ~generation) charged more than once
	Declined     int `json:"declined"`      // first answers 402
	Failed       int `json:"failed"`        // answers 500
	Down         int `json:"down"`          // answers 503
	TooMany      int `json:"too_many"`      // answers 429, to look-ups too
	Conflicts    int `json:"conflicts"`     // answers 409: the first call with the key was still running
	Other        int `json:"other"`         // answers with any other status, by a fate or an incident
	Hung         int `json:"hung"`          // never answered
	Replayed     int `json:"replayed"`      // first answers given again for a used key
	Over         int `json:"over"`          // calls above a limit when they arrived
	MaxInFlight  int `json:"max_in_flight"` // calls under way at once, at most
	// Fates has those that met a job so far, in the order of their texts.
	Fates []FateStats `json:"fates"`
	// Limits are those in force; MaxInWindow has, in their order, the most arrivals in any rolling window, refused ones too.
	Limits      []string `json:"limits"`
	MaxInWindow []int    `json:"max_in_window"`
	// Utilisation is the rate over the middle 80 % of the run as a share of the limit over all calls that allows least a second.
	// 0 without a limit.
	Utilisation float64    `json:"utilisation"`
	Rate        float64    `json:"rate"` // calls a second from the first to the last
	FirstAt     *time.Time `json:"first_at"`
	LastAt      *time.Time `json:"last_at"`
}

// FateStats is what was seen of the jobs of one fate.
type FateStats struct {
	Fate  string `json:"fate"`  // as ParseFate reads it
	Calls int    `json:"calls"` // arrivals, whatever became of them
	Jobs  int    `json:"jobs"`  // first calls among them
}

// Stats returns what was seen so far.
func (p *Provider) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.counts
	s.Limits, s.MaxInWindow, s.Fates = []string{}, []int{}, []FateStats{}
	for _, text := range slices.Sorted(maps.Keys(p.fates)) {
		s.Fates = append(s.Fates, *p.fates[text])
	}
	most := p.log.mostIn(p.cfg.Limits)
	for _, l := range p.cfg.Limits {
		s.Limits = append(s.Limits, l.String())
		s.MaxInWindow = append(s.MaxInWindow, most[l])
	}
	times := p.log.times()
	if len(times) == 0 {
		return s
	}
	first, last := time.Unix(0, times[0]), time.Unix(0, times[len(times)-1])
	s.FirstAt, s.LastAt = &first, &last
	if run := last.Sub(first).Seconds(); run > 0 {
		s.Rate = float64(len(times)-1) / run
	}
	s.Utilisation = utilisation(times, slices.DeleteFunc(slices.Clone(p.cfg.Limits), func(l Limit) bool { return l.By != "" }))
	return s
}

// utilisation looks at the middle of the run: at its ends work is still, or no longer, missing.
func utilisation(times []int64, limits []Limit) float64 {
	run := times[len(times)-1] - times[0]
	if len(limits) == 0 || run == 0 {
		return 0
	}
	least := slices.MinFunc(limits, func(a, b Limit) int {
		if a.rate() < b.rate() {
			return -1
		}
		return 1
	})
	from, to := times[0]+run/10, times[len(times)-1]-run/10
	i, _ := slices.BinarySearch(times, from)
	j, _ := slices.BinarySearch(times, to)
	return float64(j-i) / (time.Duration(to-from).Seconds() * least.rate())
}

func (p *Provider) serveStats(w http.ResponseWriter, r *http.Request) {
	if allowed(w, r, http.MethodGet) {
		writeJSON(w, p.Stats())
	}
}

func (p *Provider) serveReset(w http.ResponseWriter, r *http.Request) {
	if allowed(w, r, http.MethodPost) {
		p.Reset()
		w.WriteHeader(http.StatusNoContent)
	}
}

// CallLine is a line of GET /calls.
type CallLine struct {
	At     int64  `json:"at"`              // when its first byte came in, µs since 1970
	Key    string `json:"key"`             // its idempotency key, or its job id without one
	Status int    `json:"status"`          // 0: not answered, or not yet
	First  bool   `json:"first,omitempty"` // no call of its job came before
	Look   bool   `json:"look,omitempty"`  // it only asked; its key is the job's id
	// Charged says that it moved money. Reference is what the answer calls the charge then; Amount, in minor units, and Currency are as Config reads them.
	Charged   bool   `json:"charged"`
	Reference string `json:"reference,omitempty"`
	Amount    *int64 `json:"amount,omitempty"`
	Currency  string `json:"currency,omitempty"`
	// Path and Headers are there where a limit counts by them.
	Path    string            `json:"path,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Calls returns the arrivals that are kept, in their order.
func (p *Provider) Calls() []CallLine {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := make([]CallLine, len(p.log.calls))
	for i, c := range p.log.calls {
		lines[i] = c.line()
	}
	return lines
}

func (c *call) line() CallLine {
	l := CallLine{At: c.at / 1000, Key: c.key, Status: c.status, First: c.first, Look: c.look, Charged: c.charge > 0, Path: c.common[ByPath]}
	if c.key == "" {
		l.Key = c.id
	}
	if l.Charged {
		l.Reference, l.Currency = fmt.Sprintf("ch_%d", c.charge), c.paid.currency
		if c.paid.known {
			l.Amount = &c.paid.minor
		}
	}
	for by, value := range c.common {
		if name, is := strings.CutPrefix(by, ByHeader); is {
			if l.Headers == nil {
				l.Headers = map[string]string{}
			}
			l.Headers[name] = value
		}
	}
	return l
}

func (p *Provider) serveCalls(w http.ResponseWriter, r *http.Request) {
	if !allowed(w, r, http.MethodGet) {
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	for _, line := range p.Calls() {
		if encoder.Encode(line) != nil {
			return // the reader has gone
		}
	}
	_ = out.Flush()
}

// allowed answers 405 to other methods.
func allowed(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	http.Error(w, "use "+methods[0], http.StatusMethodNotAllowed)
	return false
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the reader may have gone
}
