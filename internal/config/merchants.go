package config

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
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
