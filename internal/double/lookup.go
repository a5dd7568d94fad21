package double

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lookUp answers a question about payments. It moves nothing.
func (d *Double) lookUp(c *call) reply {
	e := c.endpoint
	switch e.Kind {
	case "get":
		p := d.byID[c.parts["id"]]
		if p == nil {
			return d.say(c, "not-found", nil)
		}
		return d.found("payment", e, d.words(c, p, d.now()))
	case "stored":
		return d.stored(c)
	}
	return d.list(c)
}

func (d *Double) found(name string, e *Endpoint, words map[string]string) reply {
	body := e.Body
	if body == "" {
		body = d.table.Payment
	}
	return reply{name: name, answer: answer{status: 200, body: fillIn(body, words)}}
}

var lastQuoted = regexp.MustCompile(`.*["']([^"']*)["']`)

// list answers with the payments that fit, newest first.
func (d *Double) list(c *call) reply {
	e, now := c.endpoint, d.now()
	wanted := c.query.Get(e.Param)
	if m := lastQuoted.FindStringSubmatch(wanted); m != nil {
		wanted = m[1] // of a query language
	}
	if e.Kind == "search" && wanted == "" {
		return d.say(c, "invalid", nil)
	}
	size, err := strconv.Atoi(c.query.Get(e.Size))
	if e.Size == "" || err != nil || size < 1 {
		size = 100
	}
	after, skipping := c.query.Get(e.After), e.After != "" && c.query.Get(e.After) != ""
	var shown []string
	for _, p := range slices.Backward(d.payments) {
		if skipping {
			skipping = p.id != after
			continue
		}
		lag := e.Lag
		if p.lags {
			lag = e.WorstLag
		}
		if now < p.made+instant(lag) || e.Kind == "search" && p.reference != wanted || len(shown) == size {
			continue
		}
		shown = append(shown, fillIn(d.table.Payment, d.words(c, p, d.now())))
	}
	words := d.words(c, nil, d.now())
	words["payments"] = strings.Join(shown, ",")
	return d.found(e.Kind, e, words)
}

// stored answers with the first answer to a key. While the first call runs there is none.
func (d *Double) stored(c *call) reply {
	rec := d.byKey(c.parts["key"])
	if rec == nil || rec.work != nil || c.at-rec.born >= instant(rec.life) {
		return d.say(c, "not-found", nil)
	}
	words := d.words(c, rec.payment, d.now())
	words["stored_status"], words["stored_text"], words["stored_body"] = strconv.Itoa(rec.first.status), quoted(rec.first.body), rec.first.body
	if rec.first.body == "" {
		words["stored_body"] = "null"
	}
	return d.found("stored", c.endpoint, words)
}

// byKey finds a record whatever its scope. It looks through all: people and look-ups come that way, payments don't.
func (d *Double) byKey(key string) *record {
	for identity, rec := range d.keys {
		if strings.Split(identity, "\x00")[1] == key {
			return rec
		}
	}
	return nil
}

// cancel undoes the payment of a key. It succeeds on nothing, and does not wait for a call that is still running.
func (d *Double) cancel(c *call) reply {
	if rec := d.byKey(c.text(c.endpoint.Param)); rec != nil && rec.payment != nil {
		rec.payment.become(d.now(), "canceled", d.table)
	}
	return d.say(c, c.endpoint.Answer, nil)
}
