package bucket

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// books is how the pacer's state in Redis stands as a whole. Moments are µs on Redis's clock; reserve.lua's head comment
// explains the fields that are named there.
type books struct {
	last    int64 // the latest slot ever given to anybody
	root    int64 // the life that the state belongs to; 0 = there is no state
	id      int64 // another one whenever the lists were made anew
	units   int64 // granted so far, less those given back at once
	before  int64 // of these, those before the slot since; it never changes any more
	since   int64
	dearest int64 // the dearest job's cost
	loss    int64 // the mark that the last loss left, 0 = none
	told    int64 // until when it is known what was granted before that loss
}

// booksOf reads s, o, u and w of the pace. What isn't there is 0.
func booksOf(v []any) (b books, err error) {
	for i, to := range [][]*int64{{&b.last}, {&b.root, &b.id}, {&b.units, &b.before, &b.since, &b.dearest}, {&b.loss, &b.told}} {
		var words []string
		switch x := v[i].(type) {
		case nil:
		case string:
			words = strings.Fields(x)
		default:
			words = []string{fmt.Sprint(x)}
		}
		for j, w := range words[:min(len(words), len(to))] {
			if *to[j], err = strconv.ParseInt(w, 10, 64); err != nil {
				return books{}, err
			}
		}
	}
	return b, nil
}

// memory is what one process knows of the windows that are charged after a loss of unknown size: who was granted what, in any
// process, from the last look at Redis's lists on. Every answer of Redis says how much has been granted so far, so that the
// difference to the answer before lies between the two.
type memory struct {
	plan  *plan
	books books
	now   int64  // Redis's time of the newest answer
	past  []past // one for each window from plan.long on
}

// past is what was granted within one window, up to memory.books.since.
type past struct {
	span  int64 // what lies no further apart is one part
	keep  int64 // how long a part counts
	parts []part
}

// part is some units whose slots are not later than edge.
type part struct{ from, edge, units int64 }

// pastParts is how many parts a window is remembered in, about.
const pastParts = subBuckets

func newPast(w window) past {
	return past{span: w.ready / pastParts, keep: w.ready + w.width}
}

func (p *past) add(edge, units, now int64) {
	if units > 0 {
		p.join(edge, units)
	}
	gone := 0
	for gone < len(p.parts) && p.parts[gone].edge+p.keep <= now {
		gone++
	}
	p.parts = slices.Delete(p.parts, 0, gone)
}

func (p *past) join(edge, units int64) {
	if n := len(p.parts); n > 0 && edge-p.parts[n-1].from <= p.span {
		last := &p.parts[n-1]
		last.edge, last.units = max(last.edge, edge), last.units+units
		return
	}
	p.parts = append(p.parts, part{edge, edge, units})
}

// trim takes the newest units away: those that are counted from now on.
func (p *past) trim(units int64) {
	for n := len(p.parts) - 1; n >= 0 && units > 0; n-- {
		taken := min(units, p.parts[n].units)
		units -= taken
		if p.parts[n].units -= taken; p.parts[n].units == 0 {
			p.parts = p.parts[:n]
		}
	}
}

// heed takes in an answer about the same books.
func (m *memory) heed(b books, now int64) {
	if b.since > m.books.since {
		for i := range m.past {
			m.past[i].add(b.since, b.before-m.books.before, now)
		}
	}
	m.books, m.now = b, now
}

// until is the moment up to which the memory knows of every slot that was granted: later ones lay behind both.
func (m *memory) until() int64 { return max(m.now, m.books.last) }

// told returns what is remembered of the window with that place in past, as seed.lua reads it. In an exact window, a call may
// have been written late after its slot, and its report be lost.
func (m *memory) told(i int) []any {
	var late int64
	if m.plan.windows[m.plan.long+i].width == 0 {
		late = m.plan.tooLate
	}
	parts := slices.Clone(m.past[i].parts)
	if open := m.books.units - m.books.before; open > 0 {
		parts = append(parts, part{edge: m.books.last, units: open})
	}
	args := []any{len(parts)}
	for _, p := range parts {
		args = append(args, p.edge+late, p.units)
	}
	return args
}

// read takes in how the books stand. What was remembered from before a loss is kept as testimony, until Redis knows as much. What was
// read of the lists after it is none: that is the charge, and not what was granted.
func (k *knowledge) read(b books, now int64) {
	if now < k.at {
		return // an answer that was overtaken by a newer one
	}
	k.at = now
	if k.memory != nil && b.loss != 0 && b.loss != k.memory.books.loss && k.memory.books.id != b.id {
		k.testimony = k.memory
	}
	if k.testimony != nil && k.testimony.until() <= b.told {
		k.testimony = nil
	}
	if k.memory != nil && k.memory.books.id != b.id {
		k.memory = nil
	}
	if k.memory != nil {
		k.memory.heed(b, now)
	}
	if b.root != 0 {
		k.root = b.root
	}
	k.books = b
}

// forget drops what Redis's clock, set forward or back, has made worthless.
func (k *knowledge) forget() { k.at, k.memory, k.testimony = 0, nil, nil }
