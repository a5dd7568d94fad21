package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Written returns the gateways with these names, or all, as YAML in expanded form: the defaults, the template,
// the gateway's own keys and its line of a merchants file merged. Keys that are in none of them are omitted.
// Variables are not expanded, and secrets are shown as <secret>.
func Written(path string, names []string) ([]byte, error) {
	var all yaml.MapSlice
	_, err := Load(path, Options{written: func(name string, keys any) {
		if len(names) == 0 || slices.Contains(names, name) {
			all = append(all, yaml.MapItem{Key: name, Value: keys})
		}
	}})
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(yaml.MapSlice{{Key: "gateways", Value: all}})
}

// AsJSON returns the same document as one line of JSON.
func AsJSON(document []byte) ([]byte, error) { return yaml.YAMLToJSON(document) }

// secrets are the keys of a gateway whose text may be secret even without a variable.
var secrets = []string{"request.headers.", "request.proxy", "request.sign.secret", "request.sign.private_key", "request.oauth2.client_secret"}

// inRoute matches the start of the path of a route's key.
var inRoute = regexp.MustCompile(`^routes\.[^.]+\.`)

// writtenOut returns a node as a value for YAML, with the gateway's values filled in.
func (r *reader) writtenOut(n node) any {
	switch tree := n.tree.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		all := yaml.MapSlice{}
		for _, pair := range pairs(tree) {
			key, _ := keyText(pair.Key)
			if path := strings.TrimPrefix(n.path+"."+key, "."); path != "like" {
				all = append(all, yaml.MapItem{Key: key, Value: r.writtenOut(node{tree: pair.Value, path: path})})
			}
		}
		return all
	case *ast.SequenceNode:
		all := make([]any, len(tree.Values))
		for i, one := range tree.Values {
			all[i] = r.writtenOut(node{tree: one, path: n.path})
		}
		return all
	}
	return r.writtenScalar(n)
}

func (r *reader) writtenScalar(n node) any {
	switch tree := n.tree.(type) {
	case *ast.IntegerNode:
		return tree.GetValue()
	case *ast.FloatNode:
		return tree.GetValue()
	case *ast.BoolNode:
		return tree.Value
	case *ast.NullNode, nil:
		return nil
	}
	text, _ := r.filled(n)
	path := inRoute.ReplaceAllString(n.path, "")
	if slices.ContainsFunc(secrets, func(key string) bool { return strings.HasPrefix(path, key) }) && text != "" {
		if refs := variable.FindAllString(text, -1); len(refs) > 0 {
			return strings.Join(refs, "")
		}
		return mask
	}
	if strings.Contains(text, "://") || strings.HasPrefix(path, "lookup.") && strings.HasSuffix(path, ".url") {
		return RedactURL(text)
	}
	if c, ok := n.tree.(*cell); ok && strings.HasSuffix(n.path, "limits") {
		return c.words()
	}
	return text
}
