package producer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"spillway/internal/job"
	"spillway/internal/pan"
)

// mostPlainDigits is the longest amount that is used as written.
const mostPlainDigits = 18

// Money returns the same as job.MoneyField, but much faster for the usual payload: an amount of plain digits, a
// currency of plain letters, and no JSON that this parser doesn't handle. Other payloads go to job.MoneyField.
func Money(payload json.RawMessage, field, currency string) string {
	amount, unit, ok := plainMoney(payload, field, currency)
	if !ok || currency != "" && !job.IsCurrency(unit) {
		return job.MoneyField(payload, field, currency)
	}
	return amount + " " + unit
}

// CheckAmount returns the same as job.AmountRule.Check, as fast as Money.
func CheckAmount(payload json.RawMessage, rule job.AmountRule) error {
	if rule.Field == "" {
		return nil
	}
	if amount, unit, ok := plainMoney(payload, rule.Field, rule.Currency); ok {
		if minor, err := strconv.ParseInt(amount, 10, 64); err == nil && rule.Allows(minor, unit) {
			return nil
		}
	}
	return rule.Check(payload)
}

// plainMoney reads money in the usual notation. unit is empty if no currency is asked for.
func plainMoney(payload json.RawMessage, field, currency string) (amount, unit string, ok bool) {
	p, _ := parsers.Get().(*parser)
	defer parsers.Put(p)
	if p.object(payload) != nil {
		return "", "", false
	}
	paid, name := p.head(field), p.head(currency)
	if amount, ok = plainAmount(paid.value(p)); !ok || currency == "" {
		return amount, "", ok
	}
	unit, ok = plainCurrency(name.value(p))
	return amount, unit, ok
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

// head is the start of a dotted path: a member of the outermost object, and the rest of the path.
type head struct {
	text   []byte // the member's value as written; nil if absent
	rest   string
	deeper bool
}

// head looks up the first name of path among the members parsed last.
func (p *parser) head(path string) head {
	key, rest, deeper := strings.Cut(path, ".")
	h := head{rest: rest, deeper: deeper}
	for _, m := range p.members {
		if string(m.key) == key {
			h.text = m.value
		}
	}
	return h
}

// value follows the rest of the path. It returns nil if there is no such value. Unless the rest is empty, it
// overwrites p's members.
func (h head) value(p *parser) []byte {
	if !h.deeper {
		return h.text
	}
	if p.object(h.text) != nil {
		return nil
	}
	return p.head(h.rest).value(p)
}

// plainAmount returns an amount that is a short unsigned number. JSON allows no leading zeros.
func plainAmount(value []byte) (string, bool) {
	if len(value) == 0 || len(value) > mostPlainDigits {
		return "", false
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return "", false
		}
	}
	return string(value), true
}

// plainCurrency returns three letters, in upper case.
func plainCurrency(value []byte) (string, bool) {
	if len(value) != len(`"EUR"`) || value[0] != '"' {
		return "", false
	}
	name := value[1 : len(value)-1]
	for _, c := range name {
		if c|0x20 < 'a' || c|0x20 > 'z' {
			return "", false
		}
	}
	return strings.ToUpper(string(name)), true
}

// cards applies the gateway's rule on card numbers: it refuses a job that contains one, or masks those in its
// payload.
func (r *Reader) cards(j job.Job) (job.Job, error) {
	rule := r.gateway.cards
	if rule.Then == job.CardsAllow {
		return j, nil
	}
	for i, text := range [...]string{j.ID, j.Batch, j.Lane, j.Route, j.Priority} {
		if pan.ContainsString(text) {
			name := [...]string{"id", "batch", "lane", "route", "priority"}[i]
			return job.Job{}, job.CardError(fmt.Sprintf("the %s has what looks like a card number in it: give the job another %s, which may be shown and logged", name, name))
		}
	}
	var err error
	if j.Payload, err = cardless(j.Payload, j.Gateway, rule); err != nil {
		return job.Job{}, err
	}
	return j, nil
}

// cardless returns the payload with its card numbers masked, if the rule says so, or why it is refused.
func cardless(payload json.RawMessage, gateway string, rule job.CardRule) (json.RawMessage, error) {
	if clean(payload) {
		return payload, nil
	}
	w := cardWalk{rule: rule}
	w.p.in = payload
	w.p.space()
	if err := w.value(0, false); err != nil || w.fields == 0 {
		return payload, err
	}
	if w.inKey || rule.Then != job.CardsMask {
		return nil, w.refusal(gateway)
	}
	return append(w.out, payload[w.copied:]...), nil
}

// clean reports that a payload has no card number. It does not parse the payload: in JSON, whatever follows a
// number ends it. A false result means that the fields must be searched.
func clean(payload []byte) bool {
	if bytes.IndexByte(payload, '\\') < 0 {
		return !pan.Contains(payload)
	}
	return !pan.Suspected(payload) && !mayHide(payload)
}

// mayHide reports whether a payload has an escape for a character that may be part of a card number, or an
// escape whose digits may hide the start of one.
func mayHide(payload []byte) bool {
	const escape = len(`\u0000`)
	var means [utf8.UTFMax]byte
	for {
		at := bytes.IndexByte(payload, '\\')
		switch {
		case at < 0 || at+1 == len(payload):
			return false
		case payload[at+1] == 't':
			return true
		case payload[at+1] != 'u':
			payload = payload[at+2:]
			continue
		}
		payload = payload[at:]
		if len(payload) < escape {
			return true // the parser reports the error
		}
		code, err := strconv.ParseUint(string(payload[2:escape]), 16, 16)
		if belongs, _ := pan.Belongs(utf8.AppendRune(means[:0], rune(code))); belongs || err != nil {
			return true
		}
		if payload = payload[escape:]; len(payload) > 0 {
			if _, digit := pan.Belongs(payload); digit {
				return true
			}
		}
	}
}

// Digest returns 16 hex digits of the SHA-256 of a payload's canonical form: keys sorted, white space removed,
// escapes resolved, numbers as written. Payloads that differ only in their notation have the same digest, but 1
// and 1.0 differ. An empty payload counts as {}. Text that is not JSON is hashed as it is.
func Digest(payload json.RawMessage) string {
	c, _ := canons.Get().(*canon)
	defer canons.Put(c)
	c.p.in, c.p.pos = payload, 0
	text, err := c.whole()
	if err != nil {
		text = payload
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

var canons = sync.Pool{New: func() any { return new(canon) }}

// canon writes canonical JSON.
type canon struct {
	p       parser
	out     []byte
	scratch []byte
	spans   []span // the members of the open objects, outermost first
}

// span is the position of one member in out. Its key ends at colon.
type span struct{ start, colon, end int }

func (c *canon) whole() ([]byte, error) {
	c.out, c.spans = c.out[:0], c.spans[:0]
	c.p.space()
	if c.p.pos == len(c.p.in) {
		return append(c.out, "{}"...), nil
	}
	if err := c.value(0); err != nil {
		return nil, err
	}
	c.p.space()
	if c.p.pos != len(c.p.in) {
		return nil, c.p.fail("something follows the value")
	}
	return c.out, nil
}

func (c *canon) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	switch c.p.peek() {
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case '"':
		raw, escaped, err := c.p.str()
		c.str(raw, escaped)
		return err
	}
	start := c.p.pos
	err := c.p.value(depth)
	c.out = append(c.out, c.p.in[start:c.p.pos]...)
	return err
}

func (c *canon) str(raw []byte, escaped bool) {
	if escaped {
		c.out = appendQuoted(c.out, []byte(unquote(raw)))
		return
	}
	c.out = append(c.out, raw...)
}

func (c *canon) array(depth int) error {
	c.out = append(c.out, '[')
	c.p.pos++
	c.p.space()
	for more := c.p.peek() != ']'; more; {
		err := c.value(depth + 1)
		if err != nil {
			return err
		}
		if more, err = c.p.more(']'); err != nil {
			return err
		} else if more {
			c.out = append(c.out, ',')
		}
	}
	c.p.pos++
	c.out = append(c.out, ']')
	return nil
}

func (c *canon) object(depth int) error {
	base, start := len(c.spans), len(c.out)+1
	c.out = append(c.out, '{')
	c.p.pos++
	c.p.space()
	for more := c.p.peek() != '}'; more; {
		m, err := c.member(depth)
		if err != nil {
			return err
		}
		c.spans = append(c.spans, m)
		if more, err = c.p.more('}'); err != nil {
			return err
		} else if more {
			c.out = append(c.out, ',')
		}
	}
	c.p.pos++
	c.sort(base, start)
	c.spans = c.spans[:base]
	c.out = append(c.out, '}')
	return nil
}

func (c *canon) member(depth int) (span, error) {
	m := span{start: len(c.out)}
	key, err := c.p.key()
	if err != nil {
		return m, err
	}
	c.out = appendQuoted(c.out, key)
	m.colon = len(c.out)
	c.out = append(c.out, ':')
	err = c.value(depth + 1)
	m.end = len(c.out)
	return m, err
}

// sort sorts the members from spans[base] on, written at start, by key.
func (c *canon) sort(base, start int) {
	mine := c.spans[base:]
	byKey := func(a, b span) int { return bytes.Compare(c.out[a.start:a.colon], c.out[b.start:b.colon]) }
	if slices.IsSortedFunc(mine, byKey) {
		return
	}
	slices.SortStableFunc(mine, byKey)
	c.scratch = c.scratch[:0]
	for i, m := range mine {
		if i > 0 {
			c.scratch = append(c.scratch, ',')
		}
		c.scratch = append(c.scratch, c.out[m.start:m.end]...)
	}
	copy(c.out[start:], c.scratch)
}

// appendQuoted appends s as a JSON string that escapes only what must be escaped.
func appendQuoted(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for len(s) > 0 {
		n := 0
		for n < len(s) && plain[s[n]] {
			n++
		}
		dst, s = append(dst, s[:n]...), s[n:]
		if len(s) == 0 {
			break
		}
		switch c := s[0]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		s = s[1:]
	}
	return append(dst, '"')
}
