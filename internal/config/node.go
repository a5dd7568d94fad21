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

// reader walks the tree of one file and collects faults.
type reader struct {
	file     string
	opt      Options
	faults   Faults
	places   map[string]Position // position of each field of the file, by path
	faulted  map[string]bool     // fields with a reported fault
	unset    map[string]bool     // fields with an allowed unset variable
	files    []string            // named by ${file:PATH}
	subject  *subject            // the gateway being read; nil: none
	pems     map[string]string   // valid PEM files, by key and path, because many gateways name the same
	pairs    map[TLS]error       // check results of certificates with keys
	packs    map[string]readPack // by name
	scopes   []scoped            // of this gateway's rules read so far
	ofARoute bool                // the gateway is being read as seen by a route
}

// node is one value of the file.
type node struct {
	tree ast.Node
	path string
	// hidden: the value may be secret, so messages must not show it.
	hidden bool
	// optional: unset variables are allowed in it.
	optional bool
}

// entry is one key of a mapping with its value.
type entry struct {
	key   string
	at    Position // of the key
	value node
}

// fault reports a fault of a field, at its position or, if the file does not have it, at that of the nearest
// enclosing field.
func (r *reader) fault(path, format string, args ...any) {
	r.faultAt(r.place(path), path, format, args...)
}

// faultAt reports a fault at a position.
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

// missing reports a missing required field, unless an enclosing field is already at fault.
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

// plainKey reports whether a key needs no quotes in a path.
func plainKey(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
}

// join appends a key to a path, quoted if necessary.
func join(path, key string) string {
	switch {
	case !plainKey(key):
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// parent returns the enclosing path.
func parent(path string) string {
	if strings.HasSuffix(path, "\"]") {
		if i := strings.LastIndex(path, "[\""); i >= 0 {
			return path[:i]
		}
	}
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// entries returns the entries of a mapping in file order, each key once.
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

// entry reads one key. Of two equal keys the first counts, and the second is a fault.
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

// scalarToken returns the token at which a scalar begins. For a text over several lines, the parser records the
// position of its end. For such a text, and for anything but a scalar, it returns nil, and the key's position
// is used.
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

// atScalar returns the position of a scalar.
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

// at returns the position of a node.
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

// field is a permitted key of a mapping, with the function that reads it.
type field struct {
	key  string
	read func(node)
}

// object reads a mapping with known keys.
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

// items returns the items of a list.
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

// unfit reports a value of the wrong kind.
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
