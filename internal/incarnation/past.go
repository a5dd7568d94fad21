package incarnation

import (
	"slices"
	"strings"
	"sync"
)

// Past is what this machine has seen of the data of all gateways of one Redis. It is safe for concurrent use.
type Past struct {
	mu    sync.Mutex
	seen  map[string]Memory
	named map[string][]string // by incarnation: the gateways in whose data it was seen, sorted by name
}

// NewPast returns a Past with what was seen of each gateway.
func NewPast(seen map[string]Memory) *Past {
	p := &Past{seen: map[string]Memory{}, named: map[string][]string{}}
	for gateway, m := range seen {
		p.Put(gateway, m)
	}
	return p
}

// Of returns what was seen of a gateway, and whether anything was.
func (p *Past) Of(gateway string) (m Memory, known bool) {
	if p == nil {
		return m, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m, known = p.seen[gateway]
	return m, known
}

// Put replaces what was seen of a gateway.
func (p *Past) Put(gateway string, m Memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range strings.Fields(p.seen[gateway].Line) {
		p.named[name] = slices.DeleteFunc(p.named[name], func(of string) bool { return of == gateway })
	}
	p.seen[gateway] = m
	for _, name := range strings.Fields(m.Line) {
		at, _ := slices.BinarySearch(p.named[name], gateway)
		p.named[name] = slices.Insert(p.named[name], at, gateway)
	}
}

// others returns what was seen, under names other than the gateway's, of data with one of these incarnations: a renamed
// gateway had one of them. Memories without any of them say nothing about the data.
func (p *Past) others(gateway, line string) []Memory {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for name := range strings.FieldsSeq(line) {
		names = append(names, p.named[name]...)
	}
	slices.Sort(names)
	var all []Memory
	for _, of := range slices.Compact(names) {
		if of != gateway {
			all = append(all, p.seen[of])
		}
	}
	return all
}
