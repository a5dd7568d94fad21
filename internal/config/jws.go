package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// JWS configures a detached JWS.
type JWS struct {
	// KeyID is the protected header kid. Empty = none.
	KeyID string
	// Unencoded signs the content itself (RFC 7797, b64: false). Default false: its base64.
	Unencoded bool
	// Protected are further protected headers: texts with {timestamp} {method} {path} {query} {id} and {key}
	// filled in, json.Numbers, bools, and lists of these.
	Protected map[string]any
}

func (r *reader) jws(n node, s *Sign) {
	s.JWS = &JWS{}
	r.object(n,
		field{"key_id", r.word(&s.JWS.KeyID, checkKeyID)},
		field{"unencoded", r.truth(&s.JWS.Unencoded)},
		field{"protected", func(n node) { s.JWS.Protected = r.protected(n) }},
	)
}

func checkKeyID(text string) string {
	if text == "" {
		return "is empty: write the id that the gateway gave your key, or take the line out"
	}
	return ""
}

// ownOfJWS are the protected headers with configuration keys of their own.
var ownOfJWS = map[string]string{"alg": "sign.algorithm", "kid": "key_id", "b64": "unencoded"}

func (r *reader) protected(n node) map[string]any {
	all := map[string]any{}
	for _, e := range r.entries(n) {
		if key, own := ownOfJWS[e.key]; own {
			r.fault(e.value.path, "%s follows from %s: take it out here", e.key, key)
			continue
		}
		if list, ok := e.value.tree.(*ast.SequenceNode); ok {
			values := []any{}
			for i, tree := range list.Values {
				values = append(values, r.protectedValue(node{tree: tree, path: fmt.Sprintf("%s[%d]", e.value.path, i), optional: n.optional}))
			}
			all[e.key] = values
			continue
		}
		all[e.key] = r.protectedValue(e.value)
	}
	r.checkCritical(join(n.path, "crit"), all)
	return all
}

// protectedValue returns a number, true or false as in the file, or a text.
func (r *reader) protectedValue(n node) any {
	switch tree := n.tree.(type) {
	case *ast.BoolNode:
		return tree.Value
	case *ast.IntegerNode, *ast.FloatNode:
		if number := json.Number(tree.GetToken().Value); json.Valid([]byte(number)) {
			return number
		}
	}
	var text string
	r.word(&text, checkProtected)(n)
	return text
}

func checkProtected(text string) string {
	return strange(text, "{timestamp}", "{method}", "{path}", "{query}", "{id}", "{key}")
}

// checkCritical reports names that can't be critical: a reader of a JWS refuses it if it names a header that it
// lacks.
func (r *reader) checkCritical(path string, protected map[string]any) {
	crit, written := protected["crit"]
	names, isList := crit.([]any)
	if written && (!isList || len(names) == 0) {
		r.fault(path, "is not a list of names: write the protected headers that the gateway must understand, like [iat]")
	}
	for _, name := range names {
		text, _ := name.(string)
		if _, has := protected[text]; !has || text == "crit" {
			r.fault(path, "names %q, which is not among the protected headers: write it there too", text)
		}
	}
}

// tells reports whether a placeholder is used in a protected header, which the gateway sees.
func (j *JWS) tells(placeholder string) bool {
	if j == nil {
		return false
	}
	for _, value := range j.Protected {
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		if slices.ContainsFunc(list, func(v any) bool { text, _ := v.(string); return strings.Contains(text, placeholder) }) {
			return true
		}
	}
	return false
}

// checkJWS reports contradictory settings of a detached JWS.
func (r *reader) checkJWS(path string, s *Sign) {
	switch {
	case s.JWS == nil:
		return
	case !slices.Contains(keyAlgorithms, s.Algorithm):
		r.clash(path+".jws", path+".algorithm", "a JWS needs a private key, and %s%s has none: write algorithm: es256, or another one of private keys", s.Algorithm, r.defaulted(path+".algorithm"))
	case s.Algorithm == "es256-raw":
		r.fault(path+".algorithm", "in a JWS, es256 is always raw: write es256")
	}
	if r.written(path + ".encoding") {
		r.fault(path+".encoding", "a JWS has an encoding of its own, base64url: take encoding out")
	}
	if !r.written(path + ".content") {
		s.Content = "{body}"
	}
}
