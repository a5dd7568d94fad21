package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// layers are keys shared by gateways. A gateway's own keys precede its template, which precedes the defaults.
type layers struct {
	defaults  ast.Node // nil: none
	templates map[string]ast.Node
}

// layer reads shared keys. They are checked in each gateway that uses them, because only there they are
// complete. A template may use a pack.
func (r *reader) layer(n node, template bool) ast.Node {
	for _, pair := range pairs(n.tree) {
		if key, _ := keyText(pair.Key); key == "like" {
			at := node{tree: pair.Value, path: join(n.path, key)}
			if name, _ := raw(at); template && isPack(name) {
				r.pack(at, name)
				continue
			}
			r.faultAt(r.at(pair.Key), at.path, "only gateways and merchants are like a template: put what several templates share into defaults")
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
		all[e.key] = r.layer(e.value, true)
	}
	return all
}

// layered returns a gateway's keys merged over those of its template, the defaults and its pack, and the pack's
// name.
func (r *reader) layered(e entry, l layers) (tree ast.Node, pack packed) {
	if !isMapping(e.value.tree) {
		return e.value.tree, packed{}
	}
	b := base{above: l.defaults}
	if like := valueOf(e.value.tree, "like"); like != nil {
		b = r.like(node{tree: like, path: join(e.value.path, "like")}, l)
	}
	return overPack(b.below, over(b.above, e.value.tree)), b.pack
}

// base is what a gateway's own keys are merged with.
type base struct {
	above ast.Node // keys of the template and the defaults
	below ast.Node // keys of the pack; nil: none
	pack  packed
}

// like returns the base of gateways that use the template or pack named by a node.
func (r *reader) like(n node, l layers) base {
	name, _ := raw(n)
	if isPack(name) {
		tree := r.pack(n, name)
		return base{l.defaults, tree, r.packed(name)}
	}
	template, found := l.templates[name]
	if !found {
		hint := "the file has no templates, write it below templates, or name a pack, as dispatcher packs list has them"
		if names := slices.Sorted(maps.Keys(l.templates)); len(names) > 0 {
			hint = "it is one of " + strings.Join(names, ", ")
		}
		r.faultAt(r.at(n.tree), n.path, "there is no template %q: %s", name, hint)
		r.faulted[parent(n.path)] = true // don't report as missing what the template would have had
	}
	b := base{above: over(l.defaults, template)}
	if like := valueOf(template, "like"); like != nil {
		if of, _ := raw(node{tree: like}); isPack(of) {
			b.below = r.pack(node{tree: like, path: n.path}, of)
			b.pack = r.packed(of)
		}
	}
	return b
}

// over merges one layer over another: two mappings are merged by key; otherwise the upper one wins.
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

// find returns the index of the pair with the same key as another, or -1.
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

// pairs returns the pairs of a mapping, or nil for any other node.
func pairs(tree ast.Node) []*ast.MappingValueNode {
	switch tree := tree.(type) {
	case *ast.MappingNode:
		return tree.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{tree}
	}
	return nil
}
