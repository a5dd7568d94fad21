package verify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// settledBy is who settled jobs, and as what: done, not_done or discarded. For discarded jobs the export does
// not say who.
type settledBy struct{ gateway, as, who string }

// settledJobs is their number, with the first of them.
type settledJobs struct {
	jobs  int64
	where []Place
}

// settle counts a job that an operator has settled or discarded.
func (c *checker) settle(a *account) {
	by := settledBy{a.gateway, a.book.settledAs, a.book.settledBy}
	if a.book.state == stateDiscarded {
		by.as, by.who = stateDiscarded, ""
	}
	if by.as == "" {
		return
	}
	if c.settled[by] == nil {
		c.settled[by] = &settledJobs{}
	}
	s := c.settled[by]
	if s.jobs++; len(s.where) < mostPlaces {
		s.where = append(s.where, a.booked[0])
	}
}

// trailLine is a line of an exported audit trail.
type trailLine struct {
	Gateway string `json:"gateway"`
	Kind    string `json:"kind"`
	N       int64  `json:"n"`
	Text    string `json:"text"`
	Base64  []byte `json:"base64"`
	SHA256  string `json:"sha256"`
}

func (l trailLine) bytes() []byte {
	if l.Base64 != nil {
		return l.Base64
	}
	return []byte(l.Text)
}

// trailLink is a link of the chain.
type trailLink struct {
	N     int64  `json:"n"`
	Place int64  `json:"place"`
	Entry string `json:"entry"`
	Prev  string `json:"prev"`
}

// act is the content of an entry.
type act struct {
	Who   string `json:"who"`
	What  string `json:"what"`
	Jobs  int64  `json:"jobs"`
	Ended any    `json:"ended"`
}

// entry is the latest version of an entry.
type entry struct {
	hash string
	act  act
	at   Place
}

// trail is one gateway's audit trail.
type trail struct {
	c       *checker
	gateway string
	links   int64
	hash    string
	last    map[int64]string // hash of an entry, by its place, from its last link
	entries map[int64]*entry
	ended   bool
	at      Place
}

// judgeTrail checks the chain of each audit trail, and that it has an act for everything that operators did by
// the export.
func (c *checker) judgeTrail(ctx context.Context) error {
	if c.Trail == nil {
		return nil
	}
	trails := map[string]*trail{}
	err := lines[trailLine]{bad: c.unreadable, take: func(at Place, l *trailLine) error {
		if l.Gateway == "" || l.Kind == "" {
			return badLine("it is no line of an export of trails")
		}
		if !c.means(l.Gateway) {
			return nil
		}
		if trails[l.Gateway] == nil {
			trails[l.Gateway] = &trail{c: c, gateway: l.Gateway, last: map[int64]string{}, entries: map[int64]*entry{}}
		}
		return trails[l.Gateway].take(at, l)
	}}.read(ctx, *c.Trail)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(trails)) {
		trails[name].close()
	}
	c.judgeSettled(trails)
	return nil
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (t *trail) fault(at Place, format string, args ...any) {
	t.c.found(Finding{Kind: Trail, Gateway: t.gateway, Text: fmt.Sprintf(format, args...), Where: []Place{at}})
}

func (t *trail) take(at Place, l *trailLine) error {
	hash := hashOf(l.bytes())
	t.at = at
	switch l.Kind {
	case "link":
		return t.link(at, l, hash)
	case "entry":
		e := &entry{hash: hash, at: at}
		if l.SHA256 != hash {
			t.fault(at, "entry %d has the hash %.12s…, and the export says %.12s…: it was changed", l.N, hash, l.SHA256)
		}
		if err := json.Unmarshal(l.bytes(), &e.act); err != nil {
			t.fault(at, "entry %d can't be read", l.N)
		}
		t.entries[l.N-1] = e
	case "head":
		t.head(at, string(l.bytes()))
	default:
		return badLine("a line of a trail is a link, an entry or a head, and not %q", l.Kind)
	}
	return nil
}

func (t *trail) link(at Place, l *trailLine, hash string) error {
	var link trailLink
	if err := json.Unmarshal(l.bytes(), &link); err != nil {
		return badLine("link %d can't be read: %v", l.N, err)
	}
	switch t.links++; {
	case link.N != t.links:
		t.fault(at, "link %d stands where link %d should be", link.N, t.links)
		t.links = link.N
	case link.Prev != t.hash:
		t.fault(at, "link %d was made behind another one than link %d: one of the two was changed", link.N, link.N-1)
	}
	t.hash = hash
	t.last[link.Place] = link.Entry
	return nil
}

func (t *trail) head(at Place, text string) {
	t.ended = true
	if text == "" {
		if t.links > 0 {
			t.fault(at, "there is a chain of %d links, and no head", t.links)
		}
		return
	}
	var links, entries int64
	var hash string
	if _, err := fmt.Sscanf(text, "%d %d %s", &links, &entries, &hash); err != nil {
		t.fault(at, "the head of the chain can't be read")
		return
	}
	if links != t.links || hash != t.hash {
		t.fault(at, "the head says %d links, the last with the hash %.12s…; there are %d, the last with %.12s…", links, hash, t.links, t.hash)
	}
}

// close compares the entries with the chain.
func (t *trail) close() {
	if !t.ended {
		t.fault(t.at, "the trail ends without its head: it was cut off")
	}
	for _, place := range slices.Sorted(maps.Keys(t.last)) {
		e := t.entries[place]
		switch {
		case e == nil:
			t.fault(t.at, "entry %d is in the chain, and is not there", place+1)
		case e.hash != t.last[place]:
			t.fault(e.at, "entry %d is not what the chain has: %s by %s", place+1, e.act.What, somebody(e.act.Who))
		}
	}
	for _, e := range t.entries {
		if strings.HasPrefix(e.act.What, "limit set") || strings.HasPrefix(e.act.What, "limit reset") {
			t.c.changed++
		}
	}
}

// did returns how many jobs acts of the trail affected. An act without an end may have affected more than it
// says.
func (t *trail) did(by settledBy) (jobs int64, all bool) {
	verb := map[string]string{stateDone: "resolve", "not_done": "resolve", stateDiscarded: "discard"}[by.as]
	for _, e := range t.entries {
		if strings.HasPrefix(e.act.What, verb) && (by.who == "" || by.who == e.act.Who) {
			jobs, all = jobs+e.act.Jobs, all || e.act.Ended == nil
		}
	}
	return jobs, !all
}

// judgeSettled looks for the acts by which operators settled jobs.
func (c *checker) judgeSettled(trails map[string]*trail) {
	for _, by := range slices.SortedFunc(maps.Keys(c.settled), func(a, b settledBy) int {
		return cmp.Or(cmp.Compare(a.gateway, b.gateway), cmp.Compare(a.as, b.as), cmp.Compare(a.who, b.who))
	}) {
		s, written, whole := c.settled[by], int64(0), true
		if t := trails[by.gateway]; t != nil {
			written, whole = t.did(by)
		}
		if written >= s.jobs || !whole {
			continue
		}
		as := map[string]string{stateDone: "settled as done", "not_done": "settled as not done", stateDiscarded: "discarded"}[by.as]
		c.found(Finding{Kind: Unwritten, Gateway: by.gateway, Where: s.where,
			Text: fmt.Sprintf("%s %s by %s, and the trail has acts of %d", counted(s.jobs, "job"), as, somebody(by.who), written)})
	}
}
