package config

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// mapping reads how a record of a billing file becomes a payload: the payload's fields, and "rest". It returns
// nil if the map is invalid, so that nothing more is reported about it.
func (r *reader) mapping(n node) *job.Map {
	m, faults := &job.Map{}, len(r.faults)
	for _, e := range r.entries(n) {
		if _, word := raw(e.value); e.key == "rest" && word {
			rest := ""
			r.word(&rest, choice("a way with the rest", "keep", "drop"))(e.value)
			m.Keep = rest == "keep"
			continue
		}
		if rule := checkField(e.key); rule != "" {
			r.places[e.value.path] = e.at
			r.fault(e.value.path, "%q %s", e.key, rule)
			continue
		}
		m.Fields = append(m.Fields, r.mapField(e))
	}
	if len(m.Fields) == 0 && !m.Keep && len(r.faults) == faults {
		r.fault(n.path, "there are no fields, so every payload would be empty: write at least one, like amount: {from: Betrag, minor: true}")
	}
	if len(r.faults) > faults {
		return nil
	}
	return m
}

func (r *reader) mapField(e entry) job.MapField {
	f, path := job.MapField{To: e.key, From: e.key}, e.value.path
	if _, null := e.value.tree.(*ast.NullNode); null {
		r.fault(path, "there is no value: write {} to take the field from the column of its own name, or take the line out")
		return f
	}
	fields := []field{{"from", r.word(&f.From, checkColumn)}, {"value", func(n node) { f.Value = r.constant(n) }}}
	for _, way := range job.MapWays() {
		fields = append(fields, field{string(way), func(n node) { r.way(n, way, &f.As) }})
	}
	r.object(e.value, fields...)
	if r.written(path + ".value") {
		if r.written(path + ".from") {
			r.clash(path+".value", path+".from", "value is a constant, and from names a column: keep one of them")
		}
		if f.As != job.MapPlain {
			r.clash(path+"."+string(f.As), path+".value", "value goes out as it stands here, so there is nothing to make of it: take %s or value out", f.As)
		}
	}
	return f
}

// way reads a conversion. A field can have only one.
func (r *reader) way(n node, way job.MapAs, as *job.MapAs) {
	yes := false
	r.truth(&yes)(n)
	switch {
	case !yes:
	case *as != job.MapPlain:
		r.fault(n.path, "a field can't be both %s and %s: keep one of them", *as, way)
	default:
		*as = way
	}
}

// constant reads a text, a number, true or false, or a list of them.
func (r *reader) constant(n node) json.RawMessage {
	switch tree := n.tree.(type) {
	case *ast.SequenceNode:
		var all [][]byte
		for _, item := range r.items(n, "write at least one value, like [card]") {
			all = append(all, r.constant(item))
		}
		return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]"))
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		text := tree.GetToken().Value
		if !json.Valid([]byte(text)) {
			r.wrong(n, "is neither a number nor a word of JSON: write it like 1050, 10.5 or true, or in quotes to send a text")
			return nil
		}
		return json.RawMessage(text)
	}
	text, ok := r.text(n)
	if !ok {
		return nil
	}
	quoted, _ := json.Marshal(text) // a string can always be encoded
	return quoted
}

func checkColumn(name string) string {
	if name == "" {
		return "is empty: write the column's name as it stands in the header row"
	}
	return ""
}

// checkMap reports contradictions within a map, and with the gateway's amount or url.
func (r *reader) checkMap(path string, g *Gateway) {
	for _, f := range g.Map.Fields {
		at := join(path+".map", f.To)
		for _, other := range g.Map.Fields {
			if strings.HasPrefix(other.To, f.To+".") {
				r.fault(at, "%s can't have a value of its own, as %s stands within it: take one of them out", f.To, other.To)
				break
			}
		}
		if f.As == job.MapMinor {
			r.checkMinor(at+".minor", g)
		}
	}
	for _, used := range placeholder.FindAllStringSubmatch(g.Request.URLText, -1) {
		if field, inPayload := strings.CutPrefix(used[1], "payload."); inPayload && !makes(g.Map, field) {
			r.clash(path+".request.url", path+".map", "the url takes the payload's field %q, and the map does not make it: name it there", field)
		}
	}
	for name, parts := range g.Request.JobHeaders {
		for _, field := range fieldsOf(parts) {
			if !makes(g.Map, field) {
				r.clash(join(path+".request.headers", name), path+".map", "the header takes the payload's field %q, and the map does not make it: name it there", field)
			}
		}
	}
	for key, field := range map[string]string{"field": g.Amount.Field, "currency": g.Amount.Currency} {
		told := key == "currency" && g.Map.Currency != "" // checkMinor does that
		if field != "" && !told && !makes(g.Map, field) {
			r.clash(path+".amount."+key, path+".map", "the map makes no field %q: name it there, or name another field here", field)
		}
	}
}

// checkMinor reports an amount whose currency, and so the number of decimals, is unknown.
func (r *reader) checkMinor(at string, g *Gateway) {
	g.Map.Currency = g.Amount.Currency
	named := slices.ContainsFunc(g.Map.Fields, func(f job.MapField) bool { return f.To == g.Amount.Currency })
	switch {
	case g.Amount.Currency == "":
		r.fault(at, "the currency says how many minor units there are, and amount.currency does not say which field has it: "+
			"write amount: {field: amount, currency: currency}")
	case !named && (!g.Map.Keep || strings.Contains(g.Amount.Currency, ".")):
		r.fault(at, "the currency says how many minor units there are, and the map does not make %q, which amount.currency names: add it", g.Amount.Currency)
	}
}

// makes reports whether a payload of the map can have a field.
func makes(m *job.Map, field string) bool {
	return m.Keep || slices.ContainsFunc(m.Fields, func(f job.MapField) bool { return f.To == field || strings.HasPrefix(field, f.To+".") })
}
