package config

import (
	"strings"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

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
