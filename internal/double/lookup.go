package double

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// finding is the result of a look-up, before any fate changes it.
type finding struct {
	shown []*payment
	last  *payment   // of a list's page
	rest  []*payment // what the list has after that
	rec   *record
}

// look answers a look-up, and logs the answer. It changes nothing.
func (d *Double) look(c *call) reply {
	f := d.due(c, lookStage)
	if f != nil && len(f.plan.Gate) > 0 {
		return d.say(c, f.choose(d, f.plan.Gate), nil)
	}
	found, bad := d.find(c)
	if bad != "" {
		return d.say(c, bad, nil)
	}
	if f == nil {
		return d.tell(c, found)
	}
	switch f.plan.Look {
	case "nothing":
		found = f.hide(d, found)
	case "another":
		found.shown = append([]*payment{d.somebodyElses(c, found.shown)}, found.shown...)
		if c.endpoint.Kind != "list" {
			found.shown = found.shown[:1]
		}
	}
	rep := d.tell(c, found)
	if rep.cut = f.plan.Cut != ""; rep.cut || f.plan.Look == "half" {
		c.log.Said, rep.body = "", rep.body[:len(rep.body)/2]
	}
	if f.plan.Delay {
		return reply{name: rep.name, wait: &execution{ends: d.now() + f.delay(), reply: rep}}
	}
	return rep
}

// whose finds the job of a look-up, and logs the truth about it. A list is about all jobs: its number draws its fates.
func (d *Double) whose(c *call) {
	c.log.Look = c.endpoint.Kind
	c.job, c.reference = "", ""
	switch c.endpoint.Kind {
	case "get":
		if p := d.byID[c.parts["id"]]; p != nil {
			c.reference = p.reference
			c.job = jobOf(p)
		}
	case "search":
		c.reference = d.wanted(c)
		c.job = c.reference
	case "stored":
		c.key = c.parts["key"]
		c.job = generation.ReplaceAllString(c.key, "")
		if rec := d.byKey(c.key); rec != nil && rec.payment != nil {
			c.job = jobOf(rec.payment)
		}
	}
	c.log.Job, c.log.Key = c.job, ""
	for _, b := range d.byJob[c.job] {
		c.log.Truth = strings.TrimSpace(c.log.Truth + " " + b.payment.stateAt(d.now()))
	}
	if c.endpoint.Kind == "list" {
		c.job = fmt.Sprintf("list %d", len(d.calls))
	}
}

// jobOf returns the caller's own id of a payment.
func jobOf(p *payment) string {
	if p.reference != "" {
		return p.reference
	}
	return generation.ReplaceAllString(p.key, "")
}

// somebodyElses returns a payment of another caller that is like the one that would have been shown.
func (d *Double) somebodyElses(c *call, shown []*payment) *payment {
	p := payment{n: len(d.payments) + 1, amount: "1", currency: c.currency, made: d.now(), state: d.table.Normal}
	if len(shown) > 0 {
		p = *shown[0]
	} else if d.table.Request.Unit != "minor" {
		p.amount = "1.00"
	}
	p.id, p.reference, p.key = strings.ReplaceAll(d.table.ID, "{n}", "9"+fmt.Sprintf("%08d", p.n)), "of-somebody-else", "of-somebody-else"
	p.amount = anotherAmount(p.amount)
	return &p
}

// find finds what a look-up asks for. bad is the answer if the look-up is invalid, or finds nothing.
func (d *Double) find(c *call) (found finding, bad string) {
	switch c.endpoint.Kind {
	case "get":
		if p := d.byID[c.parts["id"]]; p != nil {
			found.shown = []*payment{p}
		}
	case "stored": // the first answer to a key; while the first call runs there is none
		if rec := d.byKey(c.parts["key"]); rec != nil && rec.work == nil && c.at-rec.born < instant(rec.life) {
			found.rec = rec
			if rec.payment != nil {
				found.shown = []*payment{rec.payment}
			}
		}
	case "search":
		if d.wanted(c) == "" {
			return found, "invalid"
		}
		found.shown = d.visible(c, func(p *payment) bool { return p.reference == d.wanted(c) })
	case "list":
		return d.page(c)
	}
	return found, ""
}

// tell renders a finding.
func (d *Double) tell(c *call, found finding) reply {
	c.log.Said = "nothing"
	if len(found.shown) == 1 {
		c.log.Said = found.shown[0].stateAt(d.now()) + " " + found.shown[0].id
	} else if len(found.shown) > 1 {
		c.log.Said = fmt.Sprintf("%d payments", len(found.shown))
	}
	switch c.endpoint.Kind {
	case "get":
		if len(found.shown) == 0 {
			return d.say(c, "not-found", nil)
		}
		return d.found("payment", c.endpoint, d.words(c, found.shown[0], d.now()))
	case "stored":
		return d.stored(c, found)
	}
	item := d.table.Item
	if item == "" {
		item = d.table.Payment
	}
	var shown []string
	for _, p := range found.shown {
		shown = append(shown, fillIn(item, d.words(c, p, d.now())))
	}
	words := d.words(c, nil, d.now())
	words["payments"] = strings.Join(shown, ",")
	maps.Copy(words, d.next(c, found))
	return d.found(c.endpoint.Kind, c.endpoint, words)
}

func (d *Double) found(name string, e *Endpoint, words map[string]string) reply {
	body := e.Body
	if body == "" {
		body = d.table.Payment
	}
	return reply{name: name, answer: answer{status: 200, body: fillIn(body, words)}}
}

var lastQuoted = regexp.MustCompile(`.*["']([^"']*)["']`)

// wanted returns the own reference of a search.
func (d *Double) wanted(c *call) string {
	wanted := c.query.Get(c.endpoint.Param)
	if m := lastQuoted.FindStringSubmatch(wanted); m != nil {
		return m[1] // of a query language
	}
	return wanted
}

// visible returns the payments that fit and that a search or a list already finds, newest first.
func (d *Double) visible(c *call, fits func(*payment) bool) (all []*payment) {
	now := d.now()
	for _, p := range slices.Backward(d.payments) {
		if now >= p.made+d.lagOf(c.endpoint, p) && fits(p) {
			all = append(all, p)
		}
	}
	return all
}

// worstLag stands for as long as the documents admit to.
const worstLag instant = -1

// lagOf returns how long an endpoint does not find a payment.
func (d *Double) lagOf(e *Endpoint, p *payment) instant {
	switch {
	case p.lag != nil && *p.lag == worstLag:
		return max(instant(e.WorstLag), d.lag)
	case p.lag != nil:
		return *p.lag
	case d.lag > 0:
		return d.lag
	}
	return instant(e.Lag)
}

// page returns the requested part of a list. A list below one part of a path has the payments made there.
func (d *Double) page(c *call) (found finding, bad string) {
	e, since := c.endpoint, instant(0)
	if text := c.query.Get(e.Since); e.Since != "" && text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return found, "invalid"
		}
		since = at.Sub(d.began)
	}
	all := d.visible(c, func(p *payment) bool { return p.made >= since && within(p.parts, c.parts) })
	if e.Order != "" && c.query.Get(e.Order) == "ASC" {
		slices.Reverse(all)
	}
	size := d.size(c)
	if at := c.query.Get(e.After); e.After != "" && at != "" {
		i := slices.IndexFunc(all, func(p *payment) bool { return p.id == at })
		if i < 0 {
			return found, "invalid"
		}
		if !e.Inclusive {
			i++
		}
		all = all[i:]
	}
	if e.Page != "" {
		all = all[min((d.number(c)-1)*size, len(all)):]
	}
	n := min(size, len(all))
	found = finding{shown: slices.Clone(all[:n]), rest: all[n:]}
	if n > 0 {
		found.last = all[n-1]
	}
	return found, ""
}

// within reports whether the parts that two paths have in common are equal.
func within(paid, asked map[string]string) bool {
	for name, value := range asked {
		if paid[name] != "" && paid[name] != value {
			return false
		}
	}
	return true
}

// size returns how many payments a page has.
func (d *Double) size(c *call) int {
	most := c.endpoint.Most
	if most == 0 {
		most = 100
	}
	size, err := strconv.Atoi(c.query.Get(c.endpoint.Size))
	if c.endpoint.Size == "" || err != nil || size < 1 {
		return most
	}
	return min(size, most)
}

// number returns the number of the page, from 1.
func (d *Double) number(c *call) int {
	n, err := strconv.Atoi(c.query.Get(c.endpoint.Page))
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// next returns the words that say where a list continues.
func (d *Double) next(c *call, found finding) map[string]string {
	e := c.endpoint
	words := map[string]string{"more": "false", "next_cursor": "null", "next_page": "null", "next_url": "null", "next_link": "null"}
	if len(found.rest) == 0 {
		return words
	}
	words["more"] = "true"
	query := maps.Clone(c.query)
	if e.Page != "" {
		number := strconv.Itoa(d.number(c) + 1)
		words["next_page"] = number
		query.Set(e.Page, number)
	}
	if e.After != "" {
		at := found.last
		if e.Inclusive {
			at = found.rest[0]
		}
		words["next_cursor"] = `"` + quoted(at.id) + `"`
		query.Set(e.After, at.id)
	}
	url := `"` + quoted("http://"+c.host+c.path+"?"+query.Encode()) + `"`
	words["next_url"], words["next_link"] = url, `{"href":`+url+`}`
	return words
}

// stored answers with the first answer to a key.
func (d *Double) stored(c *call, found finding) reply {
	if found.rec == nil {
		return d.say(c, "not-found", nil)
	}
	first, words := found.rec.first.answer, d.words(c, found.rec.payment, d.now())
	if len(found.shown) > 0 && found.shown[0] != found.rec.payment { // somebody else's
		first.body = fillIn(d.table.Payment, d.words(c, found.shown[0], d.now()))
	}
	words["stored_status"], words["stored_text"], words["stored_body"] = strconv.Itoa(first.status), quoted(first.body), first.body
	if first.body == "" {
		words["stored_body"] = "null"
	}
	return d.found("stored", c.endpoint, words)
}

// byKey finds a record in any scope. It searches all of them, which is good enough for people and look-ups.
func (d *Double) byKey(key string) *record {
	for identity, rec := range d.keys {
		if strings.Split(identity, "\x00")[1] == key {
			return rec
		}
	}
	return nil
}

// cancel undoes the payment of a key. It succeeds also if there is none, and does not wait for a running call.
func (d *Double) cancel(c *call) reply {
	if rec := d.byKey(c.text(c.endpoint.Param)); rec != nil && rec.payment != nil {
		rec.payment.become(d.now(), "canceled", d.table)
	}
	return d.say(c, c.endpoint.Answer, nil)
}
