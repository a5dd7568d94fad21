package reconcile

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"spillway/internal/job"
)

// comparison is a comparison in progress.
type comparison struct {
	p Params
	*Result

	lines   *parts[Line]   // of the report, by job id
	records *parts[Record] // by job id
	// If the report's ids are not job ids: its lines, and the names that it may use for each job.
	foreign *parts[Line]
	names   *parts[name]
}

// name is one of a job's names at the gateway.
type name struct{ Name, ID string }

const (
	// mostStatuses is how many statuses of ignored lines are told apart.
	mostStatuses = 20
	others       = "others"
	// mostLines is how many lines of a difference, and how many jobs that will be called again, are listed.
	mostLines = 10
)

func (c *comparison) translates() bool { return cmp.Or(c.p.Report.opt.IDs, IDIsJob) != IDIsJob }

func (c *comparison) open(context.Context) (err error) {
	if c.lines, err = newParts[Line](c.p.Dir); err != nil {
		return err
	}
	if c.records, err = newParts[Record](c.p.Dir); err != nil || !c.translates() {
		return err
	}
	if c.foreign, err = newParts[Line](c.p.Dir); err != nil {
		return err
	}
	c.names, err = newParts[name](c.p.Dir)
	return err
}

func (c *comparison) close() {
	c.lines.close()
	c.records.close()
	c.foreign.close()
	c.names.close()
}

// readReport distributes the report's lines over the parts.
func (c *comparison) readReport(ctx context.Context) error {
	into := c.lines
	if c.translates() {
		into = c.foreign
	}
	for {
		line, err := c.p.Report.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		c.Lines++
		switch {
		case line.Err != nil:
			c.Bad++
			if c.p.Bad != nil {
				c.p.Bad(line.Number, line.Err)
			}
			if line.ID == "" {
				c.Nameless = true
				continue
			}
			line.Err, line.Unclear = nil, true
		case line.PassedOver:
			c.passOver(line.Status)
			line.Unclear = true
		case line.Refund:
			c.Refunds++
			line.Unclear = true
		}
		if err := into.put(line.ID, line); err != nil {
			return err
		}
	}
}

func (c *comparison) passOver(status string) {
	if _, known := c.PassedOver[status]; !known && len(c.PassedOver) >= mostStatuses {
		status = others
	}
	c.PassedOver[status]++
}

// readRecords distributes the records over the parts.
func (c *comparison) readRecords(ctx context.Context) error {
	for r, err := range c.p.Records {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		c.Records++
		if err := c.records.put(r.ID, r); err != nil {
			return err
		}
		for _, n := range c.namesOf(r) {
			if err := c.names.put(n, name{n, r.ID}); err != nil {
				return err
			}
		}
	}
	return nil
}

// namesOf returns the names that the report may use for a job.
func (c *comparison) namesOf(r Record) []string {
	switch {
	case c.p.Report.opt.IDs == IDIsKey:
		return r.Keys
	case c.p.Report.opt.IDs == IDIsReference && r.Reference != "":
		return []string{r.Reference}
	}
	return nil
}

// translate replaces the gateway's ids of lines by job ids. A name shared by several jobs goes to the first of
// them, in id order, and settles none of them.
func (c *comparison) translate(ctx context.Context) error {
	if !c.translates() {
		return nil
	}
	for part := range partsOf {
		ids, others := map[string]string{}, map[string][]string{}
		err := c.names.each(part, func(n name) error {
			id, known := ids[n.Name]
			if known && id != n.ID {
				others[n.Name] = append(others[n.Name], max(id, n.ID))
				n.ID = min(id, n.ID)
			}
			ids[n.Name] = n.ID
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		err = c.foreign.each(part, func(l Line) error {
			l.Foreign = l.ID
			if id, known := ids[l.ID]; known {
				l.ID = id
			} else {
				l.Nobodys = true
			}
			for _, other := range others[l.Foreign] {
				l.Shared = true
				if err := c.lines.put(other, Line{ID: other, Unclear: true}); err != nil {
					return err
				}
			}
			return c.lines.put(l.ID, l)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pair is one job on both sides.
type pair struct {
	record   *Record
	charges  int
	charge   *Line // the first one
	refusal  *Line // the last one
	unclear  bool  // a line says, or may say, something about the job other than the charge and the refusals
	lines    []int // the first ones
	reported job.Amounts
}

// side is the key of a pair: lines without a job are kept apart from a job with the same id.
type side struct {
	id      string
	nobodys bool
}

// compare compares the parts of both sides.
func (c *comparison) compare(ctx context.Context) error {
	for part := range partsOf {
		pairs := map[side]*pair{}
		at := func(s side) *pair {
			if pairs[s] == nil {
				pairs[s] = &pair{}
			}
			return pairs[s]
		}
		if err := c.records.each(part, func(r Record) error { at(side{id: r.ID}).record = &r; return ctx.Err() }); err != nil {
			return err
		}
		if err := c.lines.each(part, func(l Line) error { at(side{l.ID, l.Nobodys}).add(l); return ctx.Err() }); err != nil {
			return err
		}
		ids := slices.SortedFunc(maps.Keys(pairs), func(a, b side) int { return cmp.Compare(a.id, b.id) })
		for _, s := range ids {
			if err := c.settle(s.id, pairs[s]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pair) add(l Line) {
	p.unclear = p.unclear || l.Unclear || l.Shared || p.otherReference(&l)
	if l.Unclear {
		return
	}
	if len(p.lines) < mostLines {
		p.lines = append(p.lines, l.Number)
	}
	if l.Refused {
		p.refusal = &l
		return
	}
	if p.charges++; p.charge == nil {
		p.charge = &l
	}
	if a := amountOf(l.Money); a != nil {
		p.reported.Add(job.Money{Minor: a.Minor, Currency: a.Currency})
	}
}

// settle counts one job, and reports a difference.
func (c *comparison) settle(id string, p *pair) error {
	kind := p.kind()
	if kind == "" {
		return nil
	}
	d := p.difference(kind, id)
	if kind == Agree {
		recorded := d.Recorded
		if p.charges == 0 { // both say that it was refused: neither has money for it
			recorded = nil
		}
		c.Agree.add(p.reported, recorded)
		if p.charges > 0 && d.Reported != nil && d.Recorded == nil {
			c.Uncompared++
		}
		return nil
	}
	c.Differences[kind].add(p.reported, d.Recorded)
	if kind == ChargedNotDone {
		where := p.record.where()
		if c.ByState[where] == nil {
			c.ByState[where] = &Sum{}
		}
		c.ByState[where].add(p.reported, d.Recorded)
	}
	if d.GoesOn {
		c.GoesOn.add(p.reported, d.Recorded)
		if len(c.GoOn) < mostLines {
			c.GoOn = append(c.GoOn, id)
		}
	}
	if clear, is := c.clears(kind, p); is {
		c.Clear = append(c.Clear, clear)
	}
	if c.p.Found == nil {
		return nil
	}
	return c.p.Found(d)
}

// kind returns the result of the comparison; empty if the report need not have the job.
func (p *pair) kind() Kind {
	r := p.record
	switch {
	case r == nil && p.charges == 0 && p.refusal == nil:
		return "" // only lines without information
	case r == nil:
		return NotOurs
	case p.charges > 1, p.charges == 1 && r.State == job.Done && p.otherReference(p.charge):
		return ChargedTwice
	case p.charges == 1 && r.State != job.Done:
		return ChargedNotDone
	case p.charges == 1:
		return compared(amountOf(p.charge.Money), amountOf(r.Money))
	case r.Expected:
		return DoneNotCharged
	case p.refusal != nil && r.State == job.Parked && r.InDoubt:
		return RefusedInDoubt
	case p.refusal != nil:
		return Agree
	}
	return ""
}

// otherReference reports whether a line has another reference than the record.
func (p *pair) otherReference(l *Line) bool {
	return p.record != nil && l.Reference != "" && p.record.Reference != "" && l.Reference != p.record.Reference
}

func (p *pair) difference(kind Kind, id string) Difference {
	d := Difference{Kind: kind, ID: id, Lines: p.lines}
	if line := cmp.Or(p.charge, p.refusal); line != nil {
		d.Reported, d.Reference = amountOf(line.Money), line.Reference
	}
	if r := p.record; r != nil {
		d.Batch, d.State, d.Recorded, d.RecordReference = r.Batch, r.State, amountOf(r.Money), r.Reference
		if r.State == job.Parked {
			d.Reason = r.Reason
		}
		d.GoesOn = p.charges > 0 && r.GoesOn
	}
	return d
}

// clears reports whether the report settles a parked job in doubt. All lines of the job must agree: it was
// charged once, with the money in its record; or it was refused, its only call is the one with its current key,
// and no line may belong to another of its calls.
func (c *comparison) clears(kind Kind, p *pair) (Clear, bool) {
	r := p.record
	if r == nil || r.State != job.Parked || !r.InDoubt || p.unclear {
		return Clear{}, false
	}
	switch kind {
	case ChargedNotDone:
		if p.refusal != nil || !same(amountOf(p.charge.Money), amountOf(r.Money)) {
			return Clear{}, false
		}
		reference := p.charge.Reference
		if reference == "" && c.p.Report.opt.IDs == IDIsReference {
			reference = p.charge.Foreign
		}
		return Clear{ID: r.ID, ParkedAt: r.ParkedAt, Done: true, Line: p.charge.Number, Reference: reference}, true
	case RefusedInDoubt:
		present := len(r.Keys) > 0 && p.refusal.Foreign == r.Keys[len(r.Keys)-1]
		return Clear{ID: r.ID, ParkedAt: r.ParkedAt, Line: p.refusal.Number}, r.Calls == 1 && (r.FirstKey || present) && !c.Nameless
	}
	return Clear{}, false
}
