package config

import (
	"maps"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// placeholder matches the placeholders for a job's own values in the url and in headers.
var placeholder = regexp.MustCompile(`\{(id|lane|payload\.[^{}]*)\}`)

// headers reads both constant headers and headers with placeholders.
func (r *reader) headers(n node, q *Request) {
	q.Headers = map[string]Secret{}
	names := map[string]string{}
	for _, e := range r.entries(n) {
		if rule := checkHeaderName(e.key, names); rule != "" {
			r.places[e.value.path] = e.at
			r.fault(e.value.path, "%q %s", e.key, rule)
			continue
		}
		names[textproto.CanonicalMIMEHeaderKey(e.key)] = e.key
		var value Secret
		r.secret(&value, checkHeaderValue)(e.value)
		text, _ := r.filled(e.value)
		parts := r.headerParts(text)
		if parts == nil {
			q.Headers[e.key] = value
			continue
		}
		if q.JobHeaders == nil {
			q.JobHeaders = map[string][]HeaderPart{}
		}
		q.JobHeaders[e.key] = parts
		for _, field := range fieldsOf(parts) {
			if checkField(field) != "" {
				r.fault(e.value.path, "has the placeholder {payload.%s}, which names no field: write it with dots between the levels, like {payload.order.account}", field)
			}
		}
	}
}

// fieldsOf returns the payload fields that a header uses.
func fieldsOf(parts []HeaderPart) (fields []string) {
	for _, p := range parts {
		if field, ok := strings.CutPrefix(p.Place, "payload."); ok {
			fields = append(fields, field)
		}
	}
	return fields
}

// headerNames returns the names of all configured headers.
func (q Request) headerNames() []string {
	return slices.AppendSeq(slices.Collect(maps.Keys(q.Headers)), maps.Keys(q.JobHeaders))
}

// piece matches a part of a header's value that is not plain text.
var piece = regexp.MustCompile(reference.String() + `|` + placeholder.String())

// headerParts splits a header's value as in the file; nil if it has no placeholder. Braces in a variable's
// value are not placeholders.
func (r *reader) headerParts(text string) []HeaderPart {
	var parts []HeaderPart
	places := false
	for text != "" {
		at := piece.FindStringSubmatchIndex(text)
		if at == nil {
			parts = append(parts, HeaderPart{Text: Secret(text)})
			break
		}
		if at[0] > 0 {
			parts = append(parts, HeaderPart{Text: Secret(text[:at[0]])})
		}
		found := text[at[0]:at[1]]
		text = text[at[1]:]
		switch value, _, _ := expand(found, r.lookUp); {
		case at[2] >= 0:
			places = true
			parts = append(parts, HeaderPart{Place: strings.Trim(found, "{}")})
		case found == "$$":
			parts = append(parts, HeaderPart{Text: Secret(value)})
		default:
			parts = append(parts, HeaderPart{Variable: Secret(value)})
		}
	}
	if !places {
		return nil
	}
	return parts
}

// strip reads the fields to leave out of the body. An empty list resets what a template sets.
func (r *reader) strip(n node, q *Request) {
	if list, ok := n.tree.(*ast.SequenceNode); ok && len(list.Values) == 0 {
		return
	}
	q.Strip = r.words(n, "name the fields that are not sent, like [account]", checkField)
}

// checkStrip reports settings that contradict it.
func (r *reader) checkStrip(path string, q *Request) {
	if len(q.Strip) > 0 && bodiless(q.Method) {
		r.clash(path+".strip", path+".method", "a %s has no body that a field could be left out of: take strip out, or use POST", q.Method)
	}
	for _, field := range q.Strip {
		if key := q.Key.Name; q.Key.In == job.KeyInBody && (within(field, key) || within(key, field)) {
			r.clash(path+".strip", path+".key.name", "%q is left out of the body, and the idempotency key goes there as %q: keep one of them", field, key)
		}
	}
}

// within reports whether a dotted path equals another or leads through it.
func within(path, other string) bool { return strings.HasPrefix(path+".", other+".") }
