package config

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
	"spillway/internal/packs"
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

// packed is the pack that a gateway uses. The zero packed: none.
type packed struct {
	name string
	at   Position // where the file names it; all of its keys get this position
}

// isPack reports whether a name in like is a pack's rather than a template's.
func isPack(name string) bool { return strings.Contains(name, "/") }

// pack returns a pack's keys for a gateway, at the position where the file first names it; nil if there is no
// such pack.
func (r *reader) pack(n node, name string) ast.Node {
	if known, ok := r.packs[name]; ok {
		return known.tree
	}
	at := r.at(n.tree)
	if r.packs == nil {
		r.packs = map[string]readPack{}
	}
	p, err := packs.Get(name)
	if err != nil {
		message := err.Error()
		if e, ok := errors.AsType[*job.Error](err); ok {
			message += ": " + e.Hint
		}
		r.packs[name] = readPack{nil, at}
		r.faultAt(at, n.path, "%s", message)
		r.faulted[parent(n.path)] = true // don't report as missing what the pack would have had
		return nil
	}
	tree := packTree(p)
	ast.Walk(moved(at), tree)
	r.packs[name] = readPack{tree, at}
	return tree
}

// readPack is a parsed pack; its tree is nil if it does not exist.
type readPack struct {
	tree ast.Node
	at   Position
}

func (r *reader) packed(name string) packed { return packed{name, r.packs[name].at} }

// packTree returns a pack's tree below gateway.
func packTree(p packs.Pack) ast.Node {
	body, err := parseTree(p.Name, p.Text())
	if err != nil {
		return nil // a test parses every pack
	}
	for _, pair := range pairs(body) {
		if key, _ := keyText(pair.Key); key == "gateway" {
			return pair.Value
		}
	}
	return nil
}

// PackLifetime returns how long a pack's gateway keeps keys, as it publishes; ok is false if it does not.
func PackLifetime(p packs.Pack) (lifetime time.Duration, ok bool) {
	request, _ := p.Gateway["request"].(map[string]any)
	text, _ := request["key_lifetime"].(string)
	lifetime, rule := job.ReadDuration(text)
	return lifetime, rule == "" && lifetime > 0
}

// PackTokenURL returns a pack's token endpoint; empty if it has none.
func PackTokenURL(p packs.Pack) string {
	request, _ := p.Gateway["request"].(map[string]any)
	oauth2, _ := request["oauth2"].(map[string]any)
	at, _ := oauth2["token_url"].(string)
	return at
}

// moved sets the position of all nodes that it visits, because messages are about the user's file.
type moved Position

func (m moved) Visit(n ast.Node) ast.Visitor {
	if t := n.GetToken(); t != nil && t.Position != nil {
		t.Position.Line, t.Position.Column = m.Line, m.Column
	}
	return m
}

// overPack merges a gateway's keys over those of its pack. The file's rules on answers precede the pack's,
// which remain.
func overPack(pack, upper ast.Node) ast.Node {
	if pack == nil || upper == nil || !isMapping(upper) {
		return over(pack, upper)
	}
	below, above := valueOf(valueOf(pack, "answers"), "rules"), valueOf(upper, "answers")
	theirs, ok := below.(*ast.SequenceNode)
	if !ok {
		return over(pack, upper)
	}
	ours, list := above.(*ast.SequenceNode)
	if !list {
		ours, list = valueOf(above, "rules").(*ast.SequenceNode)
	}
	if !list {
		return over(pack, upper)
	}
	both := &ast.SequenceNode{Values: append(append([]ast.Node{}, ours.Values...), theirs.Values...)}
	if !isMapping(above) {
		above = nil // only a list of rules
	}
	answers := over(above, single(keyNode(valueOf(pack, "answers"), "rules"), both))
	return over(over(pack, without(upper, "answers")), single(keyNode(upper, "answers"), answers))
}

// single returns a mapping of one key.
func single(key ast.MapKeyNode, value ast.Node) ast.Node {
	return &ast.MappingNode{Values: []*ast.MappingValueNode{{Key: key, Value: value}}}
}

func valueOf(tree ast.Node, key string) ast.Node {
	if pair := pairOf(tree, key); pair != nil {
		return pair.Value
	}
	return nil
}

func keyNode(tree ast.Node, key string) ast.MapKeyNode {
	if pair := pairOf(tree, key); pair != nil {
		return pair.Key
	}
	return nil
}

func pairOf(tree ast.Node, key string) *ast.MappingValueNode {
	for _, pair := range pairs(tree) {
		if k, _ := keyText(pair.Key); k == key {
			return pair
		}
	}
	return nil
}

func without(tree ast.Node, key string) ast.Node {
	var left []*ast.MappingValueNode
	for _, pair := range pairs(tree) {
		if k, _ := keyText(pair.Key); k != key {
			left = append(left, pair)
		}
	}
	return &ast.MappingNode{Values: left}
}
