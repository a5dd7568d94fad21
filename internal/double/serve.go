package double

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// maxBody bounds a request.
const maxBody = 4 << 20

// reply is the result of a call.
type reply struct {
	name string
	answer
	cut bool
	// wait is an execution that has to end first: the reply then follows from it.
	wait *execution
	// repeats is the record of the key that the call repeats, with wait.
	repeats *record
}

// ServeHTTP answers a call to the gateway, and what control does below /_double/.
func (d *Double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if what, ok := strings.CutPrefix(r.URL.Path, "/_double/"); ok {
		d.control(w, r, what)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		http.Error(w, "the body has more than 4 MB", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the caller has gone in the middle of the request: nothing was done
	}
	c := d.read(r, body)
	rep := d.arrive(c)
	for rep.wait != nil {
		if d.until(r.Context(), rep.wait.ends) != nil {
			d.leave(c)
			panic(http.ErrAbortHandler) // the work continues
		}
		rep = d.after(c, rep)
	}
	d.leave(c) // before the answer: a call that has its answer is not under way
	write(w, rep)
}

// arrive counts the call and decides its reply.
func (d *Double) arrive(c *call) reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	d.note(c.log)
	for _, s := range d.subjects(c) {
		d.flying[s]++
	}
	rep := d.decide(c)
	if rep.wait == nil {
		d.reckon(c, &rep)
	}
	return rep
}

// after returns the reply to a call that had to wait.
func (d *Double) after(c *call, before reply) reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	rep := before.wait.reply
	rep.cut = before.cut
	if before.repeats != nil {
		rep = d.repeat(c, before.repeats)
	}
	if rep.wait == nil {
		d.reckon(c, &rep)
	}
	return rep
}

// reckon logs the reply and adds the headers of every answer.
func (d *Double) reckon(c *call, rep *reply) {
	c.log.Answer = rep.name
	if rep.cut {
		return
	}
	c.log.Status = rep.status
	rep.headers = d.withTells(c, rep.headers)
}

func (d *Double) leave(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.subjects(c) {
		d.flying[s]--
	}
}

// write answers, or cuts the connection.
func write(w http.ResponseWriter, rep reply) {
	if rep.cut {
		panic(http.ErrAbortHandler) // net/http's way to close a connection without an answer
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	for name, value := range rep.headers {
		h.Set(name, value)
	}
	w.WriteHeader(rep.status)
	_, _ = io.WriteString(w, rep.body)
}

// decide goes through the layers of a gateway: limits, rights, and then the endpoint.
func (d *Double) decide(c *call) reply {
	if c.endpoint == nil {
		return d.say(c, "not-found", nil)
	}
	if c.endpoint.Kind == "token" {
		return d.token(c)
	}
	if c.endpoint.asks() {
		d.whose(c)
	}
	pays := c.endpoint.Kind == "pay" || c.endpoint.Kind == "step"
	if pays {
		d.fill(c)
	}
	if over := d.count(c); over != nil {
		return d.sayOver(c, over)
	}
	if !d.authorised(c) {
		return d.unauthorised(c)
	}
	switch c.endpoint.Kind {
	case "get", "search", "list", "stored":
		return d.look(c)
	case "cancel":
		return d.cancel(c)
	}
	return d.pay(c)
}

// pay handles a call that charges: first its key is checked, then the call is executed.
func (d *Double) pay(c *call) reply {
	if f := d.due(c, gateStage); f != nil {
		name := f.choose(d, f.plan.Gate)
		if name == "unauthorised" {
			return d.unauthorised(c)
		}
		return d.say(c, name, nil)
	}
	if bad := d.badKey(c); bad != "" {
		return d.say(c, bad, nil)
	}
	var target *payment
	if c.endpoint.Kind == "step" {
		if target = d.byID[c.parts["id"]]; target == nil {
			return d.say(c, "not-found", nil)
		}
	} else if wrong := d.badRequest(c); wrong != nil {
		rep := d.say(c, "invalid", nil)
		rep.headers = with(rep.headers, "X-Double-Reason", wrong.Error())
		return rep
	}
	if rec := d.known(c); rec != nil {
		return d.repeat(c, rec)
	}
	if target != nil {
		return d.step(c, target)
	}
	f := d.due(c, workStage)
	switch {
	case f != nil && f.plan.Cut == "before":
		return reply{name: "cut-before-charge", cut: true}
	case f != nil && f.plan.Foreign && c.rule != nil:
		return d.repeat(c, d.foreign(c, f))
	case d.guessesDouble(c):
		return d.say(c, d.table.Duplicates.Answer, nil)
	}
	return d.execute(c, f, nil)
}

// step handles the further call that charges a payment.
func (d *Double) step(c *call, p *payment) reply {
	if again := c.endpoint.Again; again != "" && p.paid {
		return d.say(c, again, p)
	}
	var f *armedFate
	if p.fate != nil && p.fate.plan.Step {
		f, p.fate = &armedFate{Fate: p.fate.Fate, plan: Plan{Cut: "after"}}, nil // once
		c.log.Fate = f.Name
	}
	return d.execute(c, f, p)
}

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
