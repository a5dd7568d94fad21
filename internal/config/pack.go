package config

import (
	"errors"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
	"spillway/internal/packs"
)

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
