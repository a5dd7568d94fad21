package producer

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"spillway/internal/job"
)

// Digest returns 16 hex digits of the SHA-256 of a payload's canonical form: keys sorted, white space removed,
// escapes resolved, numbers as written. Payloads that differ only in their notation have the same digest, but 1
// and 1.0 differ. An empty payload counts as {}. Text that is not JSON is hashed as it is.
func Digest(payload json.RawMessage) string {
	c, _ := canons.Get().(*canon)
	defer canons.Put(c)
	c.p.in, c.p.pos = payload, 0
	text, err := c.whole()
	if err != nil {
		text = payload
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

var canons = sync.Pool{New: func() any { return new(canon) }}

// canon writes canonical JSON.
type canon struct {
	p       parser
	out     []byte
	scratch []byte
	spans   []span // the members of the open objects, outermost first
}

// span is the position of one member in out. Its key ends at colon.
type span struct{ start, colon, end int }

func (c *canon) whole() ([]byte, error) {
	c.out, c.spans = c.out[:0], c.spans[:0]
	c.p.space()
	if c.p.pos == len(c.p.in) {
		return append(c.out, "{}"...), nil
	}
	if err := c.value(0); err != nil {
		return nil, err
	}
	c.p.space()
	if c.p.pos != len(c.p.in) {
		return nil, c.p.fail("something follows the value")
	}
	return c.out, nil
}

func (c *canon) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	switch c.p.peek() {
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case '"':
		raw, escaped, err := c.p.str()
		c.str(raw, escaped)
		return err
	}
	start := c.p.pos
	err := c.p.value(depth)
	c.out = append(c.out, c.p.in[start:c.p.pos]...)
	return err
}

func (c *canon) str(raw []byte, escaped bool) {
	if escaped {
		c.out = appendQuoted(c.out, []byte(unquote(raw)))
		return
	}
	c.out = append(c.out, raw...)
}

func (c *canon) array(depth int) error {
	c.out = append(c.out, '[')
	c.p.pos++
	c.p.space()
	for more := c.p.peek() != ']'; more; {
		err := c.value(depth + 1)
		if err != nil {
			return err
		}
		if more, err = c.p.more(']'); err != nil {
			return err
		} else if more {
			c.out = append(c.out, ',')
		}
	}
	c.p.pos++
	c.out = append(c.out, ']')
	return nil
}

func (c *canon) object(depth int) error {
	base, start := len(c.spans), len(c.out)+1
	c.out = append(c.out, '{')
	c.p.pos++
	c.p.space()
	for more := c.p.peek() != '}'; more; {
		m, err := c.member(depth)
		if err != nil {
			return err
		}
		c.spans = append(c.spans, m)
		if more, err = c.p.more('}'); err != nil {
			return err
		} else if more {
			c.out = append(c.out, ',')
		}
	}
	c.p.pos++
	c.sort(base, start)
	c.spans = c.spans[:base]
	c.out = append(c.out, '}')
	return nil
}

func (c *canon) member(depth int) (span, error) {
	m := span{start: len(c.out)}
	key, err := c.p.key()
	if err != nil {
		return m, err
	}
	c.out = appendQuoted(c.out, key)
	m.colon = len(c.out)
	c.out = append(c.out, ':')
	err = c.value(depth + 1)
	m.end = len(c.out)
	return m, err
}

// sort sorts the members from spans[base] on, written at start, by key.
func (c *canon) sort(base, start int) {
	mine := c.spans[base:]
	byKey := func(a, b span) int { return bytes.Compare(c.out[a.start:a.colon], c.out[b.start:b.colon]) }
	if slices.IsSortedFunc(mine, byKey) {
		return
	}
	slices.SortStableFunc(mine, byKey)
	c.scratch = c.scratch[:0]
	for i, m := range mine {
		if i > 0 {
			c.scratch = append(c.scratch, ',')
		}
		c.scratch = append(c.scratch, c.out[m.start:m.end]...)
	}
	copy(c.out[start:], c.scratch)
}

var (
	errNoKeys     = errors.New("its payload is sealed, and there is no key here to open it")
	errSealedText = errors.New("sealed must be the text that dlq export wrote")
	errTwoSources = errors.New("a line has a payload or a sealed one, not both")
)

// unseal opens a payload sealed by dlq export. It is called after the whole line is read, because the payload
// is bound to one job of one gateway.
func (r *Reader) unseal(j *job.Job) error {
	value := r.sealed
	r.sealed = nil
	switch {
	case r.paid:
		return errTwoSources
	case r.opt.Open == nil:
		return errNoKeys
	case value[0] != '"':
		return errSealedText
	}
	stored, err := base64.StdEncoding.DecodeString(unquote(value))
	if err != nil || len(stored) == 0 {
		return errSealedText
	}
	plain, err := r.opt.Open(j.Gateway, j.ID, stored)
	if err != nil {
		return fmt.Errorf("sealed: %w", err)
	}
	if err := checkText(plain); err != nil {
		return fmt.Errorf("sealed: %w", err)
	}
	if err := r.json.object(plain); err != nil {
		return fmt.Errorf("sealed: %w", err)
	}
	j.Payload = r.compact(plain)
	return nil
}
