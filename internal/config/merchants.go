package config

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// maxMerchants is the largest merchants file, in bytes: enough for a hundred thousand lines.
const maxMerchants = 16 << 20

// nameColumn is the column with the gateway's name.
const nameColumn = "name"

// sheet is a merchants file: a gateway for each of its lines, based on a template.
type sheet struct {
	file      string
	separator rune
	base      ast.Node
	pack      packed // the pack with keys in base
	columns   []column
	named     map[string]int // columns by name
}

// column is a column. A name with a dot makes it a key of the gateway; others can be used in a template as
// {merchant.COLUMN}.
type column struct {
	name string
	path []*cell // empty: not a key
}

// line is one line of a merchants file.
type line struct {
	sheet *sheet
	cells []string
	at    []Position
}

func (l *line) text(column string) string    { return l.cells[l.sheet.named[column]] }
func (l *line) where(column string) Position { return l.at[l.sheet.named[column]] }

func (s *sheet) names() []string {
	all := make([]string, len(s.columns))
	for i, c := range s.columns {
		all[i] = c.name
	}
	return all
}

// merchants reads one merchants file, or a list of them.
func (r *reader) merchants(n node, l layers) []Gateway {
	each := []node{n}
	if _, list := n.tree.(*ast.SequenceNode); list {
		each = r.items(n, "write at least one, like [{like: base, file: merchants.csv}]")
	}
	var all []Gateway
	for _, one := range each {
		all = append(all, r.merchantsFile(one, l)...)
	}
	return all
}

func (r *reader) merchantsFile(n node, l layers) []Gateway {
	s, name, separator := &sheet{base: l.defaults, separator: ','}, "", ","
	at := node{path: join(n.path, "file")}
	r.object(n,
		field{"like", func(n node) {
			b := r.like(n, l)
			s.base, s.pack = overPack(b.below, b.above), b.pack
		}},
		field{"file", func(n node) { at = n; r.word(&name, checkFileName)(n) }},
		field{"separator", r.word(&separator, checkSeparator)},
	)
	if !r.written(at.path) {
		r.missing(at.path, "name the CSV file with a gateway in each line, like merchants.csv")
	}
	if name == "" || r.faulted[n.path] || r.faulted[join(n.path, "separator")] {
		return nil
	}
	s.file, s.separator = r.absolute(name), separators[separator]
	text, err := r.contents(name, maxMerchants)
	if err != nil {
		r.wrong(at, "can't be read: "+reason(err)+": name a file that the user of this command may read")
		return nil
	}
	return r.lines(s, bytes.TrimPrefix([]byte(text), []byte("\ufeff")))
}

// separators are the column separators, by name.
var separators = map[string]rune{",": ',', ";": ';', "|": '|', "tab": '\t'}

func checkSeparator(text string) string {
	if separators[text] != 0 {
		return ""
	}
	return "can't stand between columns: use , or ; or | or tab"
}

// lines reads the gateways of a merchants file.
func (r *reader) lines(s *sheet, text []byte) []Gateway {
	if fault := checkUTF8(s.file, text); fault != nil {
		r.faults = append(r.faults, fault)
		return nil
	}
	in := csv.NewReader(bytes.NewReader(text))
	in.Comma = s.separator
	first, err := r.line(in, s)
	if err != nil || !r.header(s, first) {
		if errors.Is(err, io.EOF) {
			r.faultAt(Position{s.file, 1, 1}, "", "the file is empty: its first line names the columns, like name,request.url,leak.limits")
		}
		return nil
	}
	var all []Gateway
	aside := r.aside()
	for {
		l, err := r.line(in, s)
		if err != nil {
			return all
		}
		if l != nil {
			all = append(all, r.merchant(l, aside)...)
		}
	}
}

// line reads the next line. It returns nil for a line with too few or too many columns, and an error at the end
// of the file or on a read error.
func (r *reader) line(in *csv.Reader, s *sheet) (*line, error) {
	cells, err := in.Read()
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		at := Position{s.file, bad.Line, max(bad.Column, 1)}
		if !errors.Is(err, csv.ErrFieldCount) {
			r.faultAt(at, "", "not valid CSV: %v: look at the quotes, and write one within quotes twice", bad.Err)
			return nil, err
		}
		r.faultAt(at, "", "the line has %d columns and the first one %d: give each column a value, an empty one where the template's holds", len(cells), len(s.columns))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := &line{sheet: s, cells: cells, at: make([]Position, len(cells))}
	for i := range cells {
		at, col := in.FieldPos(i)
		l.at[i] = Position{s.file, at, col}
		cells[i] = strings.TrimSpace(cells[i])
	}
	return l, nil
}

// header reads the names of the columns.
func (r *reader) header(s *sheet, l *line) bool {
	s.named = map[string]int{}
	faults := len(r.faults)
	for i, name := range l.cells {
		c := column{name: name}
		if strings.Contains(name, ".") {
			for _, key := range strings.Split(name, ".") {
				c.path = append(c.path, newCell(key, l.at[i]))
			}
		}
		switch _, twice := s.named[name]; {
		case name == "":
			r.faultAt(l.at[i], "", "a column has no name: give it one, or take it out")
		case twice:
			r.faultAt(l.at[i], "", "the column %q is there twice: keep one of them", name)
		}
		s.named[name] = i
		s.columns = append(s.columns, c)
	}
	if _, has := s.named[nameColumn]; !has {
		hint := "add one with the gateways' names"
		if len(l.cells) == 1 && strings.ContainsAny(l.cells[0], ";|\t,") {
			hint = `name what stands between the columns, like separator: ";"`
		}
		r.faultAt(l.at[0], "", "there is no column %q: %s", nameColumn, hint)
	}
	return len(r.faults) == faults
}

// merchant reads the gateway of one line, unless its name is missing or taken.
func (r *reader) merchant(l *line, aside *reader) []Gateway {
	name, at := l.text(nameColumn), l.where(nameColumn)
	path := join("gateways", name)
	if rule := checkGatewayName(name); rule != "" {
		r.faultAt(at, path, "%s", rule)
		return nil
	}
	if first, twice := r.places[path]; twice {
		r.faultAt(at, path, "the gateway is there twice, first in %s: keep one of them", first.seenFrom(at))
		return nil
	}
	r.places[path] = at
	tree := l.sheet.base
	for i, c := range l.sheet.columns {
		if len(c.path) > 0 && l.cells[i] != "" {
			tree = put(tree, c.path, newCell(l.cells[i], l.at[i]))
		}
	}
	if tree == nil {
		tree = &ast.MappingNode{}
	}
	g := aside.only(r, subject{name, l, l.sheet.pack}, node{tree: tree, path: path})
	g.Name, g.At = name, at
	return []Gateway{g}
}

// aside returns a reader for gateways that are not referred to later: it forgets the fields of one with the
// next.
func (r *reader) aside() *reader {
	return &reader{file: r.file, opt: r.opt, places: map[string]Position{}, faulted: map[string]bool{}, unset: map[string]bool{},
		pems: r.pems, pairs: r.pairs}
}

// only reads a gateway, and passes the faults on to another reader.
func (r *reader) only(to *reader, s subject, n node) Gateway {
	clear(r.places)
	clear(r.faulted)
	clear(r.unset)
	r.faults, r.files, r.subject = nil, to.files, &s
	r.places[n.path] = to.places[n.path]
	g := r.gateway(n)
	to.faults, to.files = append(to.faults, r.faults...), r.files
	for _, prefix := range []string{".request.idempotency_prefix", ".request.key.prefix"} {
		if at, written := r.places[n.path+prefix]; written { // used by the check of all gateways together
			to.places[n.path+prefix] = at
		}
	}
	return g
}

// seenFrom describes a position for a message about another one.
func (p Position) seenFrom(at Position) string {
	if p.File == at.File {
		return fmt.Sprintf("line %d", p.Line)
	}
	return fmt.Sprintf("%s line %d", p.File, p.Line)
}

// sorted returns the faults in file order: the configuration's own first, then those of the files that it
// names.
func (r *reader) sorted() Faults {
	slices.SortStableFunc(r.faults, func(a, b *Fault) int {
		if own, other := a.File == r.file, b.File == r.file; own != other {
			if own {
				return -1
			}
			return 1
		}
		return a.Position.compare(b.Position)
	})
	return r.faults.bounded()
}

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
