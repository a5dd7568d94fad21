package double

import (
	"encoding/json"
	"maps"
	"regexp"
	"strconv"
	"strings"
)

// answer is an answer that is ready to be sent.
type answer struct {
	status  int
	headers map[string]string
	body    string
}

// with returns the headers with one more. It does not change the given ones, which saved answers share.
func with(headers map[string]string, name, value string) map[string]string {
	all := maps.Clone(headers)
	if all == nil {
		all = map[string]string{}
	}
	all[name] = value
	return all
}

var word = regexp.MustCompile(`\{[a-z_]+\}`)

// fillIn replaces words in braces. Unknown ones stay: they are JSON.
func fillIn(text string, words map[string]string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if value, known := words[strings.Trim(w, "{}")]; known {
			return value
		}
		return w
	})
}

// quoted returns a text as JSON has it between quotes.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // texts can be written
	}
	return string(b[1 : len(b)-1])
}

// bodyWords are the words that every template knows.
var bodyWords = []string{"id", "n", "reference", "amount", "currency", "key", "status", "host", "unix", "retry_after", "payments", "more", "next_cursor", "next_page", "next_url", "next_link", "stored_status", "stored_text", "stored_body"}

// words returns the words of a payment at a moment, as a body has them. Without a payment they are those of the call.
func (d *Double) words(c *call, p *payment, at instant) map[string]string {
	w := map[string]string{"id": "", "n": "0", "reference": c.reference, "amount": c.amount, "currency": c.currency, "key": c.key, "status": "", "host": c.host,
		"retry_after": "1", "unix": "0"}
	if p != nil {
		w["id"], w["n"], w["reference"], w["amount"], w["currency"], w["key"] = p.id, strconv.Itoa(p.n), p.reference, p.amount, p.currency, p.key
		w["status"] = d.table.Words[p.stateAt(at)]
		w["unix"] = strconv.FormatInt(d.date(p.made).Unix(), 10)
	}
	if w["amount"] == "" {
		w["amount"] = "0"
	}
	for name, value := range w {
		w[name] = quoted(value)
	}
	return w
}

// say renders an answer of the table's.
func (d *Double) say(c *call, name string, p *payment) reply {
	return d.sayWith(name, p, d.words(c, p, d.now()))
}

func (d *Double) sayWith(name string, p *payment, words map[string]string) reply {
	a := d.table.Answers[name]
	rep := reply{name: name, answer: answer{status: a.Status}}
	for header, value := range a.Headers {
		rep.headers = with(rep.headers, header, fillIn(value, words))
	}
	switch {
	case a.Body != nil:
		rep.body = fillIn(*a.Body, words)
	case p != nil && a.Status < 300:
		rep.body = fillIn(d.table.Payment, words)
	}
	return rep
}

// show renders a payment as it is now.
func (d *Double) show(c *call, p *payment) reply {
	state := p.stateAt(d.now())
	if _, ok := d.table.Answers[state]; ok {
		return d.say(c, state, p)
	}
	return reply{name: state, answer: answer{status: 200, body: fillIn(d.table.Payment, d.words(c, p, d.now()))}}
}
