package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// layers are the keys that gateways have in common. What a gateway says itself goes before its template, and that before the defaults.
type layers struct {
	defaults  ast.Node // nil: there are none
	templates map[string]ast.Node
}

// layer reads keys of a gateway that others are to have. Which keys there are is looked at in each gateway that has them: only there the
// layer is complete.
func (r *reader) layer(n node) ast.Node {
	for _, pair := range pairs(n.tree) {
		if key, _ := keyText(pair.Key); key == "like" {
			r.faultAt(r.at(pair.Key), join(n.path, key), "only gateways and merchants are like a template: put what several templates share into defaults")
		}
	}
	if !isMapping(n.tree) {
		r.unfit(n, "a mapping", "write keys of a gateway below it, such as leak: {limits: [5/s]}")
		return nil
	}
	return n.tree
}

func (r *reader) templates(n node) map[string]ast.Node {
	all := map[string]ast.Node{}
	for _, e := range r.entries(n) {
		if !gatewayName.MatchString(e.key) {
			r.places[e.value.path] = e.at
			r.fault(e.value.path, "%q is not a template's name: use lower-case letters, digits, _ and -, starting with a letter or digit", e.key)
			continue
		}
		all[e.key] = r.layer(e.value)
	}
	return all
}

// layered returns a gateway's keys above those of its template and the defaults.
func (r *reader) layered(e entry, l layers) ast.Node {
	if !isMapping(e.value.tree) {
		return e.value.tree
	}
	base := l.defaults
	for _, pair := range pairs(e.value.tree) {
		if key, _ := keyText(pair.Key); key == "like" {
			base = r.like(node{tree: pair.Value, path: join(e.value.path, key)}, l)
			break
		}
	}
	return over(base, e.value.tree)
}

// like returns what gateways have that are like the template which a node names.
func (r *reader) like(n node, l layers) ast.Node {
	name, _ := raw(n)
	template, found := l.templates[name]
	if !found {
		hint := "the file has no templates, write it below templates"
		if names := slices.Sorted(maps.Keys(l.templates)); len(names) > 0 {
			hint = "it is one of " + strings.Join(names, ", ")
		}
		r.faultAt(r.at(n.tree), n.path, "there is no template %q: %s", name, hint)
		r.faulted[parent(n.path)] = true // what the template would have had is not missed
	}
	return over(l.defaults, template)
}

// over returns one layer above another: of two mappings the keys of both, of anything else the upper one.
func over(lower, upper ast.Node) ast.Node {
	if upper == nil || lower == nil || !isMapping(lower) || !isMapping(upper) {
		if upper == nil {
			return lower
		}
		return upper
	}
	below, all := pairs(lower), make([]*ast.MappingValueNode, 0, 16)
	for _, pair := range below {
		if find(pairs(upper), pair) < 0 {
			all = append(all, pair)
		}
	}
	for i, pair := range pairs(upper) {
		if k := find(below, pair); k >= 0 && find(pairs(upper), pair) == i {
			pair = &ast.MappingValueNode{Key: pair.Key, Value: over(below[k].Value, pair.Value)}
		}
		all = append(all, pair)
	}
	return &ast.MappingNode{Values: all}
}

// find returns where the first pair with the key of another one stands, or -1.
func find(all []*ast.MappingValueNode, like *ast.MappingValueNode) int {
	key, ok := keyText(like.Key)
	if !ok {
		return -1
	}
	return slices.IndexFunc(all, func(p *ast.MappingValueNode) bool { k, ok := keyText(p.Key); return ok && k == key })
}

func isMapping(tree ast.Node) bool {
	switch tree.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// pairs returns what a mapping holds; nothing of anything else.
func pairs(tree ast.Node) []*ast.MappingValueNode {
	switch tree := tree.(type) {
	case *ast.MappingNode:
		return tree.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{tree}
	}
	return nil
}
