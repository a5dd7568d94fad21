package deadletter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// TrailLine is one line of an export of audit trails: everything that VerifyFile needs without Redis.
type TrailLine struct {
	Gateway string `json:"gateway"`
	Kind    string `json:"kind"` // link, entry or head; the head is the last line of its gateway
	// N counts links and entries from 1. An entry that was updated during the export comes again, and the later
	// line counts. 0 for the head.
	N int64 `json:"n,omitempty"`
	// Text is the line exactly as stored in Redis. For the head it is the numbers of links and entries and the
	// hash, and empty if there is no chain.
	Text string `json:"text,omitempty"`
	// Base64 replaces Text if that is not UTF-8, because another program wrote to Redis.
	Base64 []byte `json:"base64,omitempty"`
	// SHA256 is the hash of the text: of a link, the next link's prev; of an entry, the last link's entry.
	SHA256 string `json:"sha256,omitempty"`
}

// The values of TrailLine.Kind.
const (
	trailLink  = "link"
	trailEntry = "entry"
	trailHead  = "head"
)

func (s *Store) trailLine(kind string, n int64, text string) TrailLine {
	l := TrailLine{Gateway: s.gateway, Kind: kind, N: n}
	if n > 0 {
		l.SHA256 = hashOf([]byte(text))
	}
	if l.Text = text; !utf8.ValidString(text) {
		l.Text, l.Base64 = "", []byte(text)
	}
	return l
}

func (l TrailLine) text() string {
	if l.Base64 != nil {
		return string(l.Base64)
	}
	return l.Text
}

// ExportTrail calls each with every line of the trail and its chain, while others may add to it. The last line
// is the head. An error of each ends it.
func (s *Store) ExportTrail(ctx context.Context, each func(TrailLine) error) error {
	var links, entries int64
	for {
		head, n, length, err := s.ends(ctx)
		if err != nil {
			return err
		}
		again, err := s.exportLinks(ctx, links, n, entries, each)
		if err != nil {
			return err
		}
		for _, place := range again {
			line, err := s.c.LIndex(ctx, s.keys.Trail(), place).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return s.noTrail(err)
			}
			if err == nil {
				if err := each(s.trailLine(trailEntry, place+1, line)); err != nil {
					return err
				}
			}
		}
		if err := s.exportList(ctx, s.keys.Trail(), trailEntry, entries, length, each); err != nil {
			return err
		}
		links, entries = max(links, n), max(entries, length)
		if now, _, _, err := s.ends(ctx); err != nil {
			return err
		} else if now == head { // no write since, so each entry matches its last link
			return each(s.trailLine(trailHead, 0, head))
		}
	}
}

// ends reads the head, and then the numbers of links and entries, which may exceed those in the head but never
// fall short of them. If the same head is found later, nothing was written in between. It uses no transaction,
// because a full Redis begins none.
func (s *Store) ends(ctx context.Context) (head string, links, entries int64, err error) {
	var h *redis.StringCmd
	var l, e *redis.IntCmd
	if _, err := s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		h, l, e = p.Get(ctx, s.keys.Head()), p.LLen(ctx, s.keys.Journal()), p.LLen(ctx, s.keys.Trail())
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return "", 0, 0, s.noTrail(err)
	}
	return h.Val(), l.Val(), e.Val(), nil
}

func (s *Store) noTrail(err error) error {
	return fmt.Errorf("read the trail of %s: %w", s.gateway, err)
}

// exportLinks exports links, and returns the places before known of their entries, each once.
func (s *Store) exportLinks(ctx context.Context, from, to, known int64, each func(TrailLine) error) (again []int64, err error) {
	err = s.exportList(ctx, s.keys.Journal(), trailLink, from, to, func(l TrailLine) error {
		var link Link
		if json.Unmarshal([]byte(l.text()), &link) == nil && link.Place < known && !slices.Contains(again, link.Place) {
			again = append(again, link.Place)
		}
		return each(l)
	})
	return again, err
}

func (s *Store) exportList(ctx context.Context, key, kind string, from, to int64, each func(TrailLine) error) error {
	for ; from < to; from += page {
		lines, err := s.c.LRange(ctx, key, from, min(from+page, to)-1).Result()
		if err != nil {
			return s.noTrail(err)
		}
		for i, line := range lines {
			if err := each(s.trailLine(kind, from+int64(i)+1, line)); err != nil {
				return err
			}
		}
	}
	return nil
}

// mostTrailLine bounds a line of an export, in bytes: an entry contains a typed text and ids.
const mostTrailLine = 64 << 20

// VerifyFile verifies exported trails without Redis. It checks what Verify checks, and that nothing was cut
// off. known is as for Verify, for an export of one gateway. An error names the line that does not belong to an
// export.
func VerifyFile(r io.Reader, known Head) (all []Verified, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, mostTrailLine)
	var f *trailFile
	for n := 1; lines.Scan(); n++ {
		var l TrailLine
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil || l.Gateway == "" || l.N < 0 {
			return nil, notExported(n)
		}
		if f == nil || f.v.Gateway != l.Gateway {
			all = f.closed(all)
			f = newTrailFile(l.Gateway, known)
		}
		if !f.read(l) {
			return nil, notExported(n)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	all = f.closed(all)
	if len(all) == 0 {
		return nil, &job.Error{Code: job.CodeUsage, Message: "there is nothing in it", Hint: "write it with dispatcher trail export"}
	}
	return all, nil
}

func notExported(n int) error {
	return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("line %d is not a line of an export of trails", n), Hint: "write it with dispatcher trail export, and change nothing in it"}
}

// trailFile is the part of an export for one gateway.
type trailFile struct {
	v       *Verified
	c       chainCheck
	entries []form
	whole   bool
}

func newTrailFile(gateway string, known Head) *trailFile {
	f := &trailFile{v: &Verified{Gateway: gateway, Findings: []string{}}}
	f.c = newChainCheck(f.v, known)
	return f
}

// read takes a line, and reports whether it is valid at this place.
func (f *trailFile) read(l TrailLine) bool {
	switch {
	case f.whole || l.Kind != trailHead && l.N == 0:
		return false
	case l.Kind == trailLink:
		f.c.link(l.N-1, l.text())
	case l.Kind == trailEntry && l.N <= int64(len(f.entries)):
		f.entries[l.N-1] = fixedForm(l.text())
	case l.Kind == trailEntry && l.N == int64(len(f.entries))+1:
		f.entries = append(f.entries, fixedForm(l.text()))
	case l.Kind == trailEntry: // lines before it were removed: the chain names them
		f.entries = append(f.entries, fixedForm(l.text()))
	case l.Kind == trailHead:
		var err error
		if f.v.Head, err = parseHead(l.text()); err != nil {
			f.v.fault("%v", err)
		}
		f.whole = true
	default:
		return false
	}
	return true
}

// fixedForm is formOf without keeping the line, because there may be millions.
func fixedForm(line string) form {
	f := formOf(line)
	begun := f.begun()
	f.begun = func() string { return begun }
	return f
}

// closed appends the result. f may be nil.
func (f *trailFile) closed(all []Verified) []Verified {
	if f == nil {
		return all
	}
	if !f.whole {
		f.v.fault("the file ends before the head of this trail: it was cut off")
		f.v.Head = Head{Links: f.c.expected - 1, Entries: f.c.entries, Hash: f.c.hash}
	}
	f.v.Entries = int64(len(f.entries))
	f.c.end()
	for i, e := range f.entries {
		f.c.entry(int64(i), e)
	}
	f.c.missing()
	f.v.OK = f.v.Faults == 0
	return append(all, *f.v)
}
