package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The kinds of lines about one job, in the order in which they are checked.
const (
	fromBooks byte = iota
	fromJobs
	fromLog
)

// place returns the place of a line in a numbered file.
func (c *checker) place(file int, line int64) Place { return Place{c.files[file], line} }

// file returns the number of a file.
func (c *checker) file(name string) int {
	c.files = append(c.files, name)
	return len(c.files) - 1
}

// read reads all files except the audit trail.
func (c *checker) read(ctx context.Context) error {
	for _, in := range c.Books {
		if err := c.readBooks(ctx, in); err != nil {
			return err
		}
	}
	if len(c.named) == 0 {
		return &WrongUse{"the books have no job", "write them with dispatcher export or batch NAME --export, as NDJSON or CSV; see docs/verify.md"}
	}
	if c.Jobs != nil {
		if err := c.readJobs(ctx, *c.Jobs); err != nil {
			return err
		}
	}
	for _, in := range c.Logs {
		if err := c.readLog(ctx, in); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.named)) {
		if c.means(name) && !c.covered[name] {
			return &WrongUse{fmt.Sprintf("the books have jobs of %s, and there is no log of that provider", name),
				"name it with --provider-log " + name + "=FILE, or leave the gateway out with -g"}
		}
	}
	return nil
}

// put stores a line about one job.
func (c *checker) put(gateway, id string, from byte, at int64, p Place, file int, value packed) error {
	key := packed(append(append(append(append([]byte(gateway), 0), id...), 0), from))
	return c.jobs.put(key.sorted(at).sorted(int64(file)).sorted(p.Line), value)
}

func (c *checker) readBooks(ctx context.Context, in Input) error {
	file := c.file(in.Name)
	return lines[bookLine]{column: (*bookLine).column, bad: c.unreadable, must: []string{"id", "gateway", "state"}, take: func(at Place, l *bookLine) error {
		b, err := l.book()
		if err != nil {
			return err
		}
		if c.named[b.gateway] = true; !c.means(b.gateway) {
			return nil
		}
		return c.put(b.gateway, b.id, fromBooks, 0, at, file, b.pack())
	}}.read(ctx, in)
}

func (c *checker) readLog(ctx context.Context, in Input) error {
	file := c.file(in.Name)
	if one, err := c.gatewayOf(in, ""); err == nil {
		c.covered[one] = true // even without calls
	}
	return lines[callLine]{column: (*callLine).column, bad: c.unreadable, must: []string{"at"}, take: func(at Place, l *callLine) error {
		k, err := c.call(l)
		if err != nil {
			return err
		}
		if k.gateway, err = c.gatewayOf(in, k.gateway); err != nil {
			return err
		}
		if c.covered[k.gateway] = true; !c.means(k.gateway) {
			return nil
		}
		if err := c.stamped(k, stamp{at: k.at, line: at.Line, file: file}); err != nil {
			return err
		}
		return c.put(k.gateway, k.id, fromLog, k.at, at, file, k.pack())
	}}.read(ctx, in)
}

// gatewayOf returns the gateway of a line.
func (c *checker) gatewayOf(in Input, line string) (string, error) {
	switch {
	case line != "":
		return line, nil
	case in.Gateway != "":
		return in.Gateway, nil
	case len(c.Gateways) == 1:
		return c.Gateways[0], nil
	case len(c.named) == 1:
		for name := range c.named {
			return name, nil
		}
	}
	return "", &WrongUse{fmt.Sprintf("%s does not say of which gateway it is, and the books have %s", in.Name, strings.Join(slices.Sorted(maps.Keys(c.named)), ", ")),
		"name it, like --provider-log stripe=" + in.Name + ", or look at one alone with -g"}
}

// jobLine is a line of a billing file: all of its fields by name.
type jobLine map[string]any

// UnmarshalJSON keeps numbers as written.
func (l *jobLine) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode((*map[string]any)(l))
}

func (c *checker) readJobs(ctx context.Context, in Input) error {
	file, field := c.file(in.Name), c.IDField
	if field == "" {
		field = "id"
	}
	columns := map[string]*text{}
	return lines[jobLine]{must: []string{field}, bad: c.unreadable,
		column: func(_ *jobLine, name string) *text {
			if columns[name] == nil {
				columns[name] = new(text)
			}
			return columns[name]
		},
		take: func(at Place, l *jobLine) error {
			id, of := l.text(field), l.text("gateway")
			if *l == nil { // CSV
				id = string(*columns[field])
				if t := columns["gateway"]; t != nil {
					of = string(*t)
				}
			}
			if err := named(id, "it has no "+field); err != nil {
				return err
			}
			gateway, err := c.gatewayOf(in, of)
			if err != nil {
				return err
			}
			if !c.means(gateway) {
				return nil
			}
			return c.put(gateway, id, fromJobs, 0, at, file, nil)
		}}.read(ctx, in)
}

// text returns the field at a dotted path, as text.
func (l jobLine) text(path string) string {
	var v any = map[string]any(l)
	for _, name := range strings.Split(path, ".") {
		fields, _ := v.(map[string]any)
		v = fields[name]
	}
	switch v := v.(type) {
	case nil, map[string]any, []any:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

func (b book) pack() packed {
	p := packed(nil).text(b.batch).text(b.route).text(b.priority).text(b.lane).text(b.state).text(b.reason)
	p = b.amount.pack(p).int(b.status).text(b.reference).int(b.replays).int(b.accepted).int(b.called)
	erased := int64(0)
	if b.erased {
		erased = 1
	}
	return p.int(erased).text(b.settledAs).text(b.settledBy)
}

func bookOf(p packed) book {
	b := book{batch: p.takeText(), route: p.takeText(), priority: p.takeText(), lane: p.takeText(), state: p.takeText(), reason: p.takeText()}
	b.amount = moneyOf(&p)
	b.status, b.reference, b.replays, b.accepted, b.called = p.takeInt(), p.takeText(), p.takeInt(), p.takeInt(), p.takeInt()
	b.erased, b.settledAs, b.settledBy = p.takeInt() == 1, p.takeText(), p.takeText()
	return b
}

func (k call) pack() packed {
	look := int64(0)
	if k.look {
		look = 1
	}
	return k.amount.pack(packed(nil).text(k.key).int(k.status).int(int64(k.charged))).text(k.reference).int(look)
}

func callOf(p packed) call {
	k := call{key: p.takeText(), status: p.takeInt(), charged: answer(p.takeInt())}
	k.amount = moneyOf(&p)
	k.reference, k.look = p.takeText(), p.takeInt() == 1
	return k
}

func (m money) pack(p packed) packed {
	known := int64(0)
	if m.known {
		known = 1
	}
	return p.int(known).int(m.minor).text(m.currency)
}

func moneyOf(p *packed) money {
	return money{known: p.takeInt() == 1, minor: p.takeInt(), currency: p.takeText()}
}
