package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// cell is a text of a merchants file as a node of the configuration: a column's name as a key, or a field of a
// line as a value.
type cell struct {
	*ast.StringNode
	where Position
}

func newCell(text string, where Position) *cell {
	return &cell{StringNode: &ast.StringNode{Value: text}, where: where}
}

// put returns a tree with a value at a path of keys. It does not change tree, which all merchants share.
func put(tree ast.Node, path []*cell, value *cell) ast.Node {
	if len(path) == 0 {
		return value
	}
	all := slices.Clone(pairs(tree))
	pair := &ast.MappingValueNode{Key: path[0]}
	if i := find(all, pair); i >= 0 {
		pair.Value = put(all[i].Value, path[1:], value)
		all[i] = pair
	} else {
		pair.Value = put(nil, path[1:], value)
		all = append(all, pair)
	}
	return &ast.MappingNode{Values: all}
}

// list returns the values of a cell in place of a list: 5/s, "5/s 100/m" or "[5/s, 100/m]".
func (c *cell) list() (all []ast.Node) {
	for _, one := range c.words() {
		all = append(all, newCell(one, c.where))
	}
	return all
}

func (c *cell) words() []string {
	text := strings.TrimSpace(c.Value)
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	return strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == ',' || c == ';' })
}

// subject is the gateway being read.
type subject struct {
	name string
	line *line // the line of the merchants file that defines it; nil: it is in the configuration itself
	pack packed
}

// ofSubject matches the placeholders for a gateway's name and for a column of its line.
var ofSubject = regexp.MustCompile(`\{(?:name|merchant\.([^{}]*))\}`)

// fill replaces {name} by the gateway's name, and {merchant.COLUMN} by the column of its line. It returns the
// position of the last one used in a merchants file, or the rule that the text breaks.
func (s *subject) fill(text string) (filled string, from Position, rule string) {
	if s == nil || !strings.Contains(text, "{name}") && !strings.Contains(text, "{merchant.") {
		return text, Position{}, ""
	}
	filled = ofSubject.ReplaceAllStringFunc(text, func(found string) string {
		if found == "{name}" {
			if s.line != nil {
				from = s.line.where(nameColumn)
			}
			return s.name
		}
		value, at, wrong := s.column(found[len("{merchant.") : len(found)-1])
		if rule == "" {
			from, rule = at, wrong
		}
		return value
	})
	return filled, from, rule
}

// column returns a column of the gateway's line.
func (s *subject) column(name string) (value string, at Position, rule string) {
	if s.line == nil {
		return "", at, fmt.Sprintf("has {merchant.%s} in it, and this gateway does not come from a merchants file: write {name} or the value itself", name)
	}
	columns := s.line.sheet.named
	if _, known := columns[name]; !known {
		hint := "name a column of the file's first line"
		if near, ok := job.Nearest(name, s.line.sheet.names()); ok {
			hint = "did you mean {merchant." + near + "}?"
		}
		return "", at, fmt.Sprintf("has {merchant.%s} in it, and %s has no such column: %s", name, s.line.sheet.file, hint)
	}
	value, at = s.line.text(name), s.line.where(name)
	switch {
	case value == "":
		rule = fmt.Sprintf("needs the column %s, which is empty in this line: fill it in", name)
	case strings.ContainsAny(value, "${}"):
		rule = fmt.Sprintf("needs the column %s, which has a $, { or } in it here: those have a meaning of their own, write such a value as a column of its key", name)
	}
	return value, at, rule
}
