package incarnation

import (
	"slices"
	"strings"
)

const (
	// tolerance is how far data may go back before it counts as an old snapshot, in µs. A failover, or a crash with
	// appendfsync everysec, loses a few seconds, which the pacer's own quarantine handles. alive.lua uses the same
	// value for a silence.
	tolerance = 10_000_000
)

// Memory is what a process or a machine has seen of a gateway's data. The zero Memory has seen nothing.
type Memory struct {
	// Line is the incarnations, oldest first, separated by spaces; the last one is the current one. It includes those
	// seen before Redis was emptied: one that comes back is an old snapshot.
	Line string `json:"incarnations"`
	// At is the last sign of life, in µs on Redis's clock.
	At int64 `json:"seen_us"`
}

// span is a period, in µs.
type span struct{ from, to int64 }

// doubt is what was found missing.
type doubt struct {
	from int64  // the data covers nothing from this time on
	seen int64  // the last sign of life seen elsewhere
	line string // the incarnations known there
}

// data is what a gateway's data says about its own age; the fields of alive.lua.
type data struct {
	now, at int64
	beat    int64 // at, on the clock as it was set since
	back    int64 // by how much the clock was set back in all
	line    string
	v       string
	gaps    []span
	marks   string
	doubt   doubt  // the zero doubt: none
	moving  string // what is being done to the gateway (see Move.What)
	format  string // of all of the gateway's data; empty: older than the first version
}

// finding is the result of checking the data.
type finding string

const (
	fresh   finding = "fresh"   // a gateway that was never served
	calm    finding = "calm"    // what was seen is there
	silent  finding = "silent"  // it is, but no sign of life was given for some time
	missing finding = "missing" // it is not: the data is in doubt
	doubted finding = "doubted" // a doubt is recorded, which only an operator can settle
)

// judge compares what was seen with the data. A doubt is returned with the finding missing.
func judge(m Memory, d data) (finding, doubt) {
	lost, from := lacks(m, d)
	switch {
	case lost && !d.doubt.covers(m, from):
		return missing, doubt{from: from, seen: m.At, line: m.Line}
	case d.doubt.from > 0:
		return doubted, d.doubt
	case d.line == "":
		return fresh, doubt{}
	case d.now-d.at > tolerance:
		return silent, doubt{}
	}
	return calm, doubt{}
}

// judgeAll compares the data with what was seen of it under its own name and under others, because a snapshot may be
// older than the name. What was seen under other names can only add a doubt.
func judgeAll(own Memory, others []Memory, d data) (finding, doubt) {
	found, lacking := judge(own, d)
	for _, m := range others {
		if found == missing {
			break
		}
		if own.sees(d.line) && !m.sees(d.line) {
			continue // the name went to another gateway since, whose line begins with what was seen before
		}
		if f, more := judge(m, d); f == missing {
			return f, more
		}
	}
	return found, lacking
}

// lacks reports whether the data lacks something that was seen, and from when on it covers nothing.
func lacks(m Memory, d data) (bool, int64) {
	ours, theirs := strings.Fields(m.Line), strings.Fields(d.line)
	switch {
	case strangers(m, d):
		return false, 0
	case last(ours) == last(theirs):
		return wentBack(m.At, d)
	case slices.Contains(ours, last(theirs)):
		return true, d.earliest() // from before an earlier confirmed restore, or before Redis was emptied
	}
	return false, 0 // an operator has started a new incarnation since
}

// strangers reports whether what was seen and the data have nothing in common: nothing was seen yet, Redis was emptied
// since, or it is another Redis. Such data contains no job that was called before.
func strangers(m Memory, d data) bool {
	for name := range strings.FieldsSeq(d.line) {
		if slices.Contains(strings.Fields(m.Line), name) {
			return false
		}
	}
	return true
}

// linesMost is how many incarnations are remembered: for a Redis emptied every day, those of the last weeks.
const linesMost = 32

// with returns the memory after data with that line and sign of life was seen. What was seen before is kept.
func (m Memory) with(line string, at int64) Memory {
	if m.sees(line) {
		at = max(at, m.At)
	}
	ours, theirs := strings.Fields(m.Line), strings.Fields(line)
	all := append(slices.DeleteFunc(ours, func(name string) bool { return slices.Contains(theirs, name) }), theirs...)
	return Memory{Line: strings.Join(all[max(0, len(all)-linesMost):], " "), At: at}
}

// sees reports whether the current incarnation of that line is the last one seen.
func (m Memory) sees(line string) bool {
	ours, theirs := strings.Fields(m.Line), strings.Fields(line)
	return len(ours) > 0 && len(theirs) > 0 && last(ours) == last(theirs)
}

// wentBack checks whether the current incarnation lacks what was seen of it.
func wentBack(seen int64, d data) (bool, int64) {
	if d.at < seen-tolerance {
		return true, d.at
	}
	for _, g := range d.gaps {
		if g.from < seen-tolerance && seen < g.to {
			return true, g.from
		}
	}
	return false, 0
}

// earliest returns the last sign of life before the first silence still known.
func (d data) earliest() int64 {
	if len(d.gaps) > 0 {
		return min(d.gaps[0].from, d.at)
	}
	return d.at
}

// covers reports whether the recorded doubt includes this one.
func (b doubt) covers(m Memory, from int64) bool {
	if b.from == 0 || from < b.from {
		return false
	}
	known := strings.Fields(b.line)
	for _, name := range strings.Fields(m.Line) {
		if !slices.Contains(known, name) {
			return false
		}
	}
	return true
}

func last(line []string) string { return line[len(line)-1] }
