package producer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spillway/internal/job"
)

// mapper is a gateway's map, prepared for use. Its targets are in payload order, which is the digest's order.
type mapper struct {
	targets  []target
	keep     bool
	currency string
	decimal  byte            // decimal mark; 0: not specified
	whose    string          // the gateway, for errors
	named    map[string]bool // fields of a record that Keep does not copy, because the map uses or sets them
	// items is reused for each record.
	items  []item
	number number
	canon  canon
	inner  parser
}

// target is a field of the payload.
type target struct {
	job.MapField
	names  []string // of its path
	keys   [][]byte // each name as a JSON key, with its colon
	fixed  cell     // the constant value
	column int      // in a CSV file
}

// cell is one value of a record: text, or other JSON as written. The zero cell is an absent value: an empty
// column, null or "".
type cell struct{ text, json []byte }

func (c cell) absent() bool { return len(c.text) == 0 && len(c.json) == 0 }

// item is a target with its value in the current record.
type item struct {
	*target
	cell
}

func newMapper(m *job.Map, opt Options) *mapper {
	p := &mapper{keep: m.Keep, currency: m.Currency, decimal: opt.Decimal, whose: cmp.Or(opt.Told, "the gateway's map"), named: map[string]bool{}}
	for _, f := range m.Fields {
		t := newTarget(f, strings.Split(f.To, "."))
		if f.Value == nil {
			p.named[f.From] = true
		}
		p.named[t.names[0]] = true
		p.targets = append(p.targets, t)
	}
	p.sort()
	return p
}

func newTarget(f job.MapField, names []string) target {
	t := target{MapField: f, names: names}
	for _, name := range names {
		t.keys = append(t.keys, append(appendQuoted(nil, []byte(name)), ':'))
	}
	if f.Value != nil {
		t.fixed = cellOf(f.Value)
	}
	return t
}

func (p *mapper) sort() {
	slices.SortFunc(p.targets, func(a, b target) int { return slices.CompareFunc(a.keys, b.keys, bytes.Compare) })
}

// bind looks up the columns of a CSV file. Columns that are kept become targets.
func (p *mapper) bind(columns []string, id int) error {
	for i := range p.targets {
		t := &p.targets[i]
		if t.column = slices.Index(columns, t.From); t.column < 0 && t.Value == nil {
			return fmt.Errorf("no column is named %q, from which %s takes %s", t.From, p.whose, t.To)
		}
	}
	if !p.keep {
		return nil
	}
	for i, name := range columns {
		if i != id && !p.named[name] {
			t := newTarget(job.MapField{To: name, From: name}, []string{name})
			t.column = i
			p.targets = append(p.targets, t)
		}
	}
	p.sort()
	return nil
}

// record makes the payload of a CSV record.
func (p *mapper) record(fields [][]byte) (json.RawMessage, error) {
	p.items = p.items[:0]
	for i := range p.targets {
		t := &p.targets[i]
		c := t.fixed
		if t.Value == nil {
			c.text = fields[t.column]
		}
		p.items = append(p.items, item{t, c})
	}
	return p.payload()
}

// object makes the payload of a parsed object. Its field id, if not empty, is kept only if the map names it.
func (p *mapper) object(in *parser, id string) (json.RawMessage, error) {
	p.items = p.items[:0]
	for i := range p.targets {
		t := &p.targets[i]
		c := t.fixed
		if t.Value == nil {
			c = p.find(in, t.From)
		}
		p.items = append(p.items, item{t, c})
	}
	if p.keep {
		for _, m := range in.members {
			if name := string(m.key); (name != id || id == "") && !p.named[name] {
				p.items = append(p.items, item{new(newTarget(job.MapField{To: name, From: name}, []string{name})), cellOf(m.value)})
			}
		}
		slices.SortFunc(p.items, func(a, b item) int { return slices.CompareFunc(a.keys, b.keys, bytes.Compare) })
	}
	return p.payload()
}

// find returns a field of an object: the one with exactly that name, or else the one at that dotted path.
func (p *mapper) find(in *parser, name string) cell {
	for _, m := range in.members {
		if string(m.key) == name {
			return cellOf(m.value)
		}
	}
	if !strings.Contains(name, ".") {
		return cell{}
	}
	return cellOf(in.head(name).value(&p.inner))
}

func cellOf(value []byte) cell {
	switch {
	case len(value) == 0 || string(value) == "null":
		return cell{}
	case value[0] != '"':
		return cell{json: value}
	case bytes.IndexByte(value, '\\') < 0:
		return cell{text: value[1 : len(value)-1]}
	}
	return cell{text: []byte(unquote(value))}
}

// payload writes the items. Items without a value are omitted.
func (p *mapper) payload() (json.RawMessage, error) {
	size := 2
	for _, it := range p.items {
		size += len(it.text) + len(it.json) + 4
		for _, key := range it.keys {
			size += len(key) + 2
		}
	}
	out, open := append(make([]byte, 0, size), '{'), []string(nil)
	var err error
	for _, it := range p.items {
		if it.absent() {
			continue
		}
		out, open = it.enter(out, open)
		if out, err = p.value(out, it); err != nil {
			return nil, err
		}
	}
	for range open {
		out = append(out, '}')
	}
	return append(out, '}'), nil
}

// enter writes what precedes the target's value, given the objects that are open. It returns the objects that
// are open afterwards.
func (t *target) enter(out []byte, open []string) ([]byte, []string) {
	parents, same := t.names[:len(t.names)-1], 0
	for same < min(len(open), len(parents)) && open[same] == parents[same] {
		same++
	}
	for range open[same:] {
		out = append(out, '}')
	}
	for i, key := range t.keys[same:] {
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(out, key...)
		if same+i < len(parents) {
			out = append(out, '{')
		}
	}
	return out, parents
}

func (p *mapper) value(out []byte, it item) ([]byte, error) {
	switch {
	case it.As == job.MapMinor:
		return p.minor(out, it)
	case it.As == job.MapNumber && !p.read(it):
		return nil, p.noNumber(it)
	case it.As == job.MapNumber:
		return p.number.appendPlain(out), nil
	case it.As == job.MapBoolean:
		return appendBoolean(out, it)
	case it.json != nil && it.As != job.MapPlain:
		return nil, fmt.Errorf("the field %s is not a text", show([]byte(it.From)))
	case it.json != nil:
		return p.canonical(out, it.json)
	case it.As == job.MapLower:
		return appendQuoted(out, bytes.ToLower(it.text)), nil
	case it.As == job.MapUpper:
		return appendQuoted(out, bytes.ToUpper(it.text)), nil
	}
	return appendQuoted(out, it.text), nil
}

// canonical appends a JSON value in the digest's canonical form.
func (p *mapper) canonical(out, value []byte) ([]byte, error) {
	p.canon.p.in, p.canon.p.pos = value, 0
	text, err := p.canon.whole()
	return append(out, text...), err
}

func (p *mapper) read(it item) bool {
	if it.json != nil {
		return p.number.read(it.json, '.')
	}
	return p.number.read(it.text, p.decimal)
}

func (p *mapper) minor(out []byte, it item) ([]byte, error) {
	digits, err := p.digits()
	if err != nil {
		return nil, err
	}
	if !p.read(it) {
		return nil, job.MoneyError(p.noNumber(it).Error())
	}
	out, ok := p.number.appendMinor(out, digits)
	if ok {
		return out, nil
	}
	hint := ""
	if !p.number.told && p.number.scale == 3 {
		hint = "; say --decimal ',' if the point stands between thousands"
	}
	return nil, job.MoneyError(fmt.Sprintf("the amount in the field %s has %d decimals, and its currency is divided into %d%s", show([]byte(it.From)),
		p.number.scale, digits, hint))
}

// digits returns the number of decimals of the record's currency.
func (p *mapper) digits() (int, error) {
	from := p.currency
	for _, it := range p.items {
		if it.To != p.currency {
			continue
		}
		if digits, listed := job.CurrencyDigits(string(it.text)); listed {
			return digits, nil
		}
		from = it.From
	}
	return 0, job.NoCurrency(from)
}

// traced adds, to an error that names a payload field, the source of that field in the record.
func (p *mapper) traced(err error) error {
	for _, t := range p.targets {
		if t.Value == nil && t.From != t.To && strings.Contains(err.Error(), strconv.Quote(t.To)) {
			return fmt.Errorf("%w; the map takes it from %s", err, show([]byte(t.From)))
		}
	}
	return err
}

// noNumber returns the error for an invalid number, without its value.
func (p *mapper) noNumber(it item) error {
	mark := cmp.Or(p.decimal, '.')
	other := map[byte]byte{'.': ',', ',': '.'}[mark]
	if p.decimal == 0 && bytes.IndexByte(it.text, ',') >= 0 {
		return fmt.Errorf("the field %s has a comma: say --decimal ',' if it stands before the decimals, or --decimal '.' if it stands between thousands",
			show([]byte(it.From)))
	}
	if it.json == nil && p.number.read(it.text, other) {
		return fmt.Errorf("the field %s is not a number with %q before its decimals: say --decimal '%c' if the file has %q there",
			show([]byte(it.From)), mark, other, other)
	}
	return fmt.Errorf("the field %s is not a number: write it like 1698%c81", show([]byte(it.From)), mark)
}

func appendBoolean(out []byte, it item) ([]byte, error) {
	word := it.json
	if word == nil {
		word = bytes.TrimSpace(it.text)
	}
	switch strings.ToLower(string(word)) {
	case "true", "yes", "1":
		return append(out, "true"...), nil
	case "false", "no", "0":
		return append(out, "false"...), nil
	}
	return nil, fmt.Errorf("the field %s is neither true nor false: write true, yes or 1, or false, no or 0", show([]byte(it.From)))
}

func (r *Reader) mapperOf(gateway string) *mapper {
	if r.opt.Map == nil {
		return nil
	}
	p, known := r.mappers[gateway]
	if known {
		return p
	}
	if m := r.opt.Map(gateway); m != nil {
		p = newMapper(m, r.opt)
	}
	if r.mappers == nil {
		r.mappers = map[string]*mapper{}
	}
	r.mappers[gateway] = p
	return p
}

// finished reads whether a line's payload is already mapped, as in the output of dlq export.
func (r *Reader) finished(value []byte) error {
	switch string(value) {
	case "true":
		r.mapped = true
	case "false", "null":
	default:
		return errMapped
	}
	return nil
}

// mapPayload maps the payload of a line in the wrapped form.
func (r *Reader) mapPayload(j *job.Job) error {
	if _, err := r.maxCost(j.Gateway); err != nil || r.gateway.mapper == nil {
		return err
	}
	if err := r.json.object(j.Payload); err != nil {
		return err
	}
	payload, err := r.gateway.mapper.object(&r.json, "")
	j.Payload = payload
	return err
}
