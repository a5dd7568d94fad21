package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"spillway/internal/job"
)

// reader walks the tree of one file and collects what is wrong with it.
type reader struct {
	file     string
	opt      Options
	faults   Faults
	places   map[string]Position // where each field of the file stands, by its path
	faulted  map[string]bool     // fields of which a fault was reported
	unset    map[string]bool     // fields with an unset variable that does not matter
	files    []string            // that ${file:PATH} names
	subject  *subject            // the gateway that is read; nil: none is
	pems     map[string]string   // PEM files that were found right, by the key that names them and their path: many gateways name the same
	pairs    map[TLS]error       // what came of certificates and their keys
	packs    map[string]readPack // by their names
	scopes   []scoped            // of the rules that were read of this gateway
	ofARoute bool                // the gateway that is read is one as a route has it
}

// node is one value of the file.
type node struct {
	tree ast.Node
	path string
	// hidden: the value may be a secret, so no message shows it.
	hidden bool
	// optional: an unset variable in it does not matter.
	optional bool
}

// entry is one key of a mapping with its value.
type entry struct {
	key   string
	at    Position // of the key
	value node
}

// fault reports what is wrong with a field: at its place or, where the file has no such field, at that of the nearest
// one around it.
func (r *reader) fault(path, format string, args ...any) {
	r.faultAt(r.place(path), path, format, args...)
}

// faultAt reports what is wrong at a place.
func (r *reader) faultAt(at Position, path, format string, args ...any) {
	r.faulted[path] = true
	r.faults = append(r.faults, &Fault{Position: at, Field: path, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) place(path string) Position {
	for p := path; p != ""; p = parent(p) {
		if at, ok := r.places[p]; ok {
			return at
		}
	}
	return Position{r.file, 1, 1}
}

// missing reports a required field, unless something around it is wrong already.
func (r *reader) missing(path, hint string) {
	for p := path; ; p = parent(p) {
		if r.faulted[p] {
			return
		}
		if p == "" {
			break
		}
	}
	r.fault(path, "is missing: %s", hint)
}

// written reports whether the file has a value for that field.
func (r *reader) written(path string) bool {
	_, ok := r.places[path]
	return ok
}

// plainKey says that a key reads well in a path.
func plainKey(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
}

// join returns the path of a key. A key that would not read well in a path is quoted.
func join(path, key string) string {
	switch {
	case !plainKey(key):
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// parent returns the path around a path.
func parent(path string) string {
	if strings.HasSuffix(path, "\"]") {
		if i := strings.LastIndex(path, "[\""); i >= 0 {
			return path[:i]
		}
	}
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// entries returns what a mapping holds, in the order of the file, each key once.
func (r *reader) entries(n node) []entry {
	var pairs []*ast.MappingValueNode
	switch tree := n.tree.(type) {
	case *ast.MappingNode:
		pairs = tree.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{tree}
	default:
		r.unfit(n, "a mapping", "write its keys below it, each as key: value")
		return nil
	}
	var all []entry
	for _, pair := range pairs {
		if e, ok := r.entry(n, pair); ok {
			all = append(all, e)
		}
	}
	return all
}

// entry reads one key. The first of two equal keys stands; the second is a fault.
func (r *reader) entry(n node, pair *ast.MappingValueNode) (entry, bool) {
	at := r.at(pair.Key)
	key, ok := keyText(pair.Key)
	if !ok {
		r.faults = append(r.faults, &Fault{Position: at, Field: n.path,
			Message: "this is not a plain key: write key: value, and write shared parts (<<) out in full"})
		return entry{}, false
	}
	path := join(n.path, key)
	if first, twice := r.places[path]; twice {
		r.faults = append(r.faults, &Fault{Position: at, Field: path,
			Message: fmt.Sprintf("the key is there twice, first in line %d: keep one of them", first.Line)})
		return entry{}, false
	}
	r.places[path] = at
	value := node{tree: pair.Value, path: path, hidden: n.hidden, optional: n.optional}
	if at, ok := r.atScalar(pair.Value); ok {
		r.places[path] = at
	}
	return entry{key, at, value}, true
}

func keyText(key ast.MapKeyNode) (string, bool) {
	switch k := key.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *cell:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return key.GetToken().Value, true
	}
	return "", false
}

// scalarToken returns the token at which a scalar begins. The parser gives that of a text over several lines the
// position of its end, so for such a one, as for all that is not a scalar, it returns nil: its key is the better place.
func scalarToken(n ast.Node) *token.Token {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.LiteralNode, nil:
		return nil
	}
	t := n.GetToken()
	if t == nil || strings.Contains(strings.TrimSpace(t.Origin), "\n") {
		return nil
	}
	return t
}

// atScalar returns where a scalar that was written begins.
func (r *reader) atScalar(tree ast.Node) (Position, bool) {
	if c, ok := tree.(*cell); ok {
		return c.where, true
	}
	t := scalarToken(tree)
	if t == nil || t.Type == token.ImplicitNullType {
		return Position{}, false
	}
	return r.position(t), true
}

// at returns where a node stands.
func (r *reader) at(tree ast.Node) Position {
	if c, ok := tree.(*cell); ok {
		return c.where
	}
	if tree == nil {
		return r.position(nil)
	}
	return r.position(tree.GetToken())
}

func (r *reader) position(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{r.file, 1, 1}
	}
	return Position{r.file, max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// field is a key that a mapping may have, and what reads it.
type field struct {
	key  string
	read func(node)
}

// object reads a mapping whose keys are known.
func (r *reader) object(n node, fields ...field) {
	for _, e := range r.entries(n) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == e.key })
		if i >= 0 {
			fields[i].read(e.value)
			continue
		}
		known := make([]string, len(fields))
		for k, f := range fields {
			known[k] = f.key
		}
		r.unknown(e, known)
	}
}

func (r *reader) unknown(e entry, known []string) {
	hint := "use one of " + strings.Join(known, ", ")
	if near, ok := job.Nearest(e.key, known); ok {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	r.places[e.value.path] = e.at
	r.fault(e.value.path, "unknown key: %s", hint)
}

// items returns what a list holds.
func (r *reader) items(n node, hint string) []node {
	var values []ast.Node
	switch list := n.tree.(type) {
	case *ast.SequenceNode:
		values = list.Values
	case *cell:
		values = list.list()
	default:
		r.unfit(n, "a list", hint)
		return nil
	}
	if len(values) == 0 {
		r.fault(n.path, "the list is empty: %s", hint)
	}
	var all []node
	for i, tree := range values {
		item := node{tree: tree, path: fmt.Sprintf("%s[%d]", n.path, i), hidden: n.hidden, optional: n.optional}
		r.places[item.path] = r.itemPlace(tree, n.path)
		all = append(all, item)
	}
	return all
}

func (r *reader) itemPlace(tree ast.Node, list string) Position {
	if c, ok := tree.(*cell); ok {
		return c.where
	}
	if t := scalarToken(tree); t != nil {
		return r.position(t)
	}
	if m, ok := tree.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return r.at(m.Values[0].Key)
	}
	return r.place(list)
}

// unfit reports a value of another kind than is wanted.
func (r *reader) unfit(n node, wanted, hint string) {
	switch n.tree.(type) {
	case nil, *ast.NullNode:
		r.fault(n.path, "there is no value: %s, or take the line out", hint)
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		r.fault(n.path, "anchors, aliases and tags (& * !) are not read here: write the value out, or in double quotes")
	default:
		r.fault(n.path, "this is not %s: %s", wanted, hint)
	}
}
