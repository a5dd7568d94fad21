package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
)

// Verified is the result of verifying a trail.
type Verified struct {
	Gateway string `json:"gateway"`
	OK      bool   `json:"ok"`
	Entries int64  `json:"entries"` // of the trail
	// Before is how many of them are older than the chain. Unchained is how many have no link yet: the last
	// ones, written by scripts.
	Before    int64    `json:"before"`
	Unchained int64    `json:"unchained"`
	Head      Head     `json:"head"`
	Faults    int64    `json:"faults"`
	Findings  []string `json:"findings"` // the first ones
}

// mostFaults is how many faults are named.
const mostFaults = 100

func (v *Verified) fault(format string, args ...any) {
	if v.Faults++; len(v.Findings) < mostFaults {
		v.Findings = append(v.Findings, fmt.Sprintf(format, args...))
	}
}

// verifyTries is how often the trail is read again because someone wrote to it meanwhile.
const verifyTries = 5

// Verify checks the trail against its chain, and the chain against its own hashes. known is a head that was
// recorded earlier; the zero Head: none. It names each link and entry that was changed, removed or moved. In
// its findings, entries and links count from 1.
func (s *Store) Verify(ctx context.Context, known Head) (v Verified, err error) {
	for range verifyTries {
		if v, err = s.verify(ctx, known); err != nil || v.OK {
			return v, err
		}
		if now, err := s.Head(ctx); err == nil && now == v.Head {
			break
		}
	}
	return v, nil
}

func (s *Store) verify(ctx context.Context, known Head) (Verified, error) {
	v := Verified{Gateway: s.gateway, Findings: []string{}}
	head, links, entries, err := s.ends(ctx)
	if err != nil {
		return v, err
	}
	v.Entries = entries
	if v.Head, err = parseHead(head); err != nil {
		v.fault("%v", err)
	}
	c := newChainCheck(&v, known)
	if err := s.lines(ctx, s.keys.Journal(), links, c.link); err != nil {
		return v, err
	}
	c.end()
	if err := s.lines(ctx, s.keys.Trail(), v.Entries, func(at int64, line string) { c.entry(at, formOf(line)) }); err != nil {
		return v, err
	}
	c.missing()
	v.OK = v.Faults == 0
	return v, nil
}

// lines reads the first n lines of a list, page by page.
func (s *Store) lines(ctx context.Context, key string, n int64, each func(at int64, line string)) error {
	for from := int64(0); from < n; from += page {
		lines, err := s.c.LRange(ctx, key, from, min(from+page, n)-1).Result()
		if err != nil {
			return s.noTrail(err)
		}
		for i, line := range lines {
			each(from+int64(i), line)
		}
	}
	return nil
}

// chainCheck checks a chain, and then the trail.
type chainCheck struct {
	v        *Verified
	known    Head
	expected int64  // number of the next link
	hash     string // of the last link
	torn     bool   // the last link lacks the hash of the one before it
	last     map[int64]string
	places   map[string]int64 // of entries, by hash
	entries  int64            // with a link
	gone     int64            // entries missing before the current one
}

func newChainCheck(v *Verified, known Head) chainCheck {
	return chainCheck{v: v, known: known, expected: 1, last: map[int64]string{}, places: map[string]int64{}}
}

func (c *chainCheck) link(at int64, line string) {
	var l Link
	if err := json.Unmarshal([]byte(line), &l); err != nil || l.N < 1 || l.Place < 0 {
		c.v.fault("link %d of the chain can't be read: it was changed", c.expected)
		c.expected, c.hash, c.torn = c.expected+1, hashOf([]byte(line)), true
		return
	}
	moved := l.N != c.expected
	switch {
	case l.N > c.expected:
		c.v.fault("%s of the chain: link %d follows link %d", span("link", c.expected, l.N-1), l.N, c.expected-1)
	case moved:
		c.v.fault("link %d of the chain stands behind link %d: it was put there", l.N, c.expected-1)
	}
	torn := l.Prev != c.hash
	if torn && !moved && !c.torn {
		c.v.fault("link %d of the chain was changed: link %d was made behind another one", max(l.N-1, 1), l.N)
	}
	c.expected, c.hash, c.torn = l.N+1, hashOf([]byte(line)), torn || moved
	if l.N == c.known.Links && c.hash != c.known.Hash {
		c.v.fault("link %d of the chain has the hash %s, and not %s as it had: what is in Redis is not what was written, or an older snapshot was restored and written on", l.N, c.hash, c.known.Hash)
	}
	c.last[l.Place] = l.Entry
	c.places[l.Entry] = l.Place
	c.entries = max(c.entries, l.Place+1)
	if l.Before {
		c.v.Before++
	}
}

// span names a range of missing numbers.
func span(what string, from, to int64) string {
	if from == to {
		return fmt.Sprintf("%s %d is missing", what, from)
	}
	return fmt.Sprintf("%s %d to %d are missing", map[string]string{"link": "links", "entry": "entries"}[what], from, to)
}

// end compares the chain's end with the head.
func (c *chainCheck) end() {
	h := c.v.Head
	switch {
	case c.expected <= h.Links:
		c.v.fault("%s at the end of the chain", span("link", c.expected, h.Links))
	case c.expected > h.Links+1:
		c.v.fault("the chain has %d links, and its head says %d: links or the head were put there", c.expected-1, h.Links)
	case c.hash != h.Hash && !c.torn:
		c.v.fault("link %d of the chain, the last one, was changed, or the head was", h.Links)
	}
	if c.known.Links >= c.expected {
		c.v.fault("%s of the chain: what is in Redis ends before the head that was written down, so it was cut off or restored from before", span("link", c.expected, c.known.Links))
	}
	c.entries = max(c.entries, h.Entries)
}

// form is an entry of the trail in its forms.
type form struct {
	hash string
	// begun returns the hash that the entry had when its act began; empty if the entry can't be parsed, or its
	// act has not done anything yet.
	begun func() string
}

func formOf(line string) form {
	return form{hashOf([]byte(line)), func() string {
		var act Act
		if err := json.Unmarshal([]byte(line), &act); err != nil {
			return ""
		}
		whole, _ := json.Marshal(act) // it came from JSON
		act.Deed, act.Ended = Deed{}, nil
		first, _ := json.Marshal(act)
		if string(whole) != line || string(first) == line {
			return ""
		}
		return hashOf(first)
	}}
}

// entry compares an entry of the trail with its link.
func (c *chainCheck) entry(at int64, f form) {
	place := at + c.gone
	want, chained := c.last[place]
	if place >= c.entries {
		c.v.Unchained++
		return
	}
	hash := f.hash
	if hash == want {
		return
	}
	home, known := c.places[hash]
	switch {
	case !chained:
		c.v.fault("entry %d of the trail has no link: it was put there, or its link was removed", place+1)
	case known && home > place && c.last[home] == hash:
		c.v.fault("%s of the trail, or in another place: entry %d stands there", span("entry", place+1, home), home+1)
		c.gone += home - place
	case known:
		c.v.fault("entry %d of the trail is not what was written: what stands there was entry %d, or an earlier form of it", place+1, home+1)
	case f.begun() == want:
		c.v.fault("entry %d of the trail was changed in its counts and its end alone, without a link: by a program from before the chain, or by somebody who passes for one; who, what, why and which jobs stand as they were chained", place+1)
	default:
		c.v.fault("entry %d of the trail was changed", place+1)
	}
}

// missing finds entries missing at the end.
func (c *chainCheck) missing() {
	if have := c.v.Entries + c.gone; have < c.entries {
		c.v.fault("%s at the end of the trail", span("entry", have+1, c.entries))
	}
}
