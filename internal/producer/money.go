package producer

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"spillway/internal/job"
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
