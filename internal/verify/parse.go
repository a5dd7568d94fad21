package verify

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// call is one call received by the provider.
type call struct {
	at        int64 // µs since 1970
	gateway   string
	id, key   string // of the job
	status    int64  // 0: no answer, or unknown
	charged   answer
	amount    money
	reference string
	path      string
	headers   map[string]string
	look      bool
}

// answer is yes, no, or unknown.
type answer int64

const (
	unsaid answer = iota
	yes
	no
)

// money is an amount in minor units of a currency, in capitals.
type money struct {
	known    bool
	minor    int64
	currency string
}

// generation matches the suffix after the job's id in a key, from the second generation on.
var generation = regexp.MustCompile(`~[0-9]+$`)

func (c *checker) call(l *callLine) (k call, err error) {
	k = call{gateway: string(l.Gateway), id: string(l.ID), key: string(l.Key), reference: string(l.Reference), path: string(l.Path)}
	if k.at, err = micros("at", l.At); err != nil {
		return k, err
	}
	if k.at == 0 {
		return k, badLine("it does not say when the call came: at is missing")
	}
	if k.status, err = whole("status", l.Status); err != nil {
		return k, err
	}
	if k.charged, err = yesOrNo("charged", l.Charged); err != nil {
		return k, err
	}
	look, err := yesOrNo("look", l.Look)
	if err != nil {
		return k, err
	}
	k.look = look == yes
	if k.amount, err = amount(l.Amount, l.Currency); err != nil {
		return k, err
	}
	if k.id == "" {
		k.id = generation.ReplaceAllString(strings.TrimPrefix(k.key, c.KeyPrefix), "")
	}
	if len(l.Headers) > 0 {
		k.headers = make(map[string]string, len(l.Headers))
		for name, value := range l.Headers {
			k.headers[name] = string(value)
		}
	}
	return k, named(k.id, "neither id nor key says which job it was for")
}

// book is an exported job.
type book struct {
	gateway, id                  string
	batch, route, priority, lane string
	state, reason                string
	amount                       money
	status                       int64
	reference                    string
	replays                      int64
	accepted, called             int64 // µs since 1970; 0: never
	erased                       bool
	settledAs, settledBy         string
}

func (l *bookLine) book() (b book, err error) {
	b = book{gateway: string(l.Gateway), id: string(l.ID), batch: string(l.Batch), route: string(l.Route), priority: string(l.Priority), lane: string(l.Lane),
		state: string(l.State), reason: string(l.Reason), reference: string(l.Reference), erased: l.Erased != "", settledAs: string(l.Settled.As), settledBy: string(l.Settled.Who)}
	if err := named(b.id, "it has no id"); err != nil {
		return b, err
	}
	if b.state == "" || b.gateway == "" {
		return b, badLine("it has no state or no gateway, so it is no line of an export")
	}
	if b.amount, err = amount(l.Amount, l.Currency); err != nil {
		return b, err
	}
	for _, n := range []struct {
		name string
		from text
		to   *int64
		read func(string, text) (int64, error)
	}{{"status", l.Status, &b.status, whole}, {"replays", l.Replays, &b.replays, whole}, {"accepted_at", l.Accepted, &b.accepted, micros}, {"called_at", l.Called, &b.called, micros}} {
		if *n.to, err = n.read(n.name, n.from); err != nil {
			return b, err
		}
	}
	return b, nil
}

// named returns an error for an invalid id.
func named(id, why string) error {
	if id == "" {
		return badLine("%s", why)
	}
	if strings.ContainsRune(id, 0) {
		return badLine("the id has a NUL in it")
	}
	return nil
}

// Bounds of times in microseconds since 1970: from 1973 to 5138. Times in seconds, milliseconds or nanoseconds
// are outside.
const (
	leastMicros = 100_000_000_000_000
	mostMicros  = 100_000_000_000_000_000
)

// micros parses a time: whole microseconds since 1970, or RFC 3339. 0: none.
func micros(name string, t text) (int64, error) {
	if t == "" {
		return 0, nil
	}
	if n, err := strconv.ParseInt(string(t), 10, 64); err == nil {
		if n < leastMicros || n > mostMicros {
			return 0, badLine("%s is %d, which is no time in microseconds since 1970", name, n)
		}
		return n, nil
	}
	at, err := time.Parse(time.RFC3339Nano, string(t))
	if err != nil {
		return 0, badLine("%s is %q: write microseconds since 1970, or a time like 2026-11-30T18:00:00.123456Z", name, string(t))
	}
	return at.UnixMicro(), nil
}

// whole parses a number from 0 up. An empty text is 0.
func whole(name string, t text) (int64, error) {
	n, err := strconv.ParseInt(cmp.Or(string(t), "0"), 10, 64)
	if err != nil || n < 0 {
		return 0, badLine("%s is %q, and should be a whole number", name, string(t))
	}
	return n, nil
}

func yesOrNo(name string, t text) (answer, error) {
	switch strings.ToLower(string(t)) {
	case "":
		return unsaid, nil
	case "true", "yes", "1":
		return yes, nil
	case "false", "no", "0":
		return no, nil
	}
	return unsaid, badLine("%s is %q, and should be true or false", name, string(t))
}

func amount(minor, currency text) (m money, err error) {
	m.currency = strings.ToUpper(string(currency))
	if minor == "" {
		return m, nil
	}
	if m.minor, err = strconv.ParseInt(string(minor), 10, 64); err != nil {
		return m, badLine("the amount %q is no whole number of minor units", string(minor))
	}
	m.known = true
	return m, nil
}
