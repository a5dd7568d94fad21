package httpapi

import (
	"io"
	"sync/atomic"
)

// budget is a number of bytes that requests share.
type budget struct {
	most int64
	used atomic.Int64
}

// take reserves n bytes, if that many are left.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.most {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }

const (
	// bodiesMost is the most bytes of request bodies in progress over all requests, as received. In memory a
	// job takes two to three times as much.
	bodiesMost = 48 << 20
	// heldMost bounds what counts for one request: a chunk of many jobs and the line after it. A longer line is
	// skipped, not held.
	heldMost = 4 << 20
	// manyLeast is what a POST of many jobs holds besides its jobs.
	manyLeast = spoolMemory
)

// held reads a body and counts what the request holds of it. If there is no memory for the body, reading ends
// with that problem.
type held struct {
	r   io.Reader
	of  *budget
	got int64
}

// Read implements io.Reader.
func (h *held) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if h.got+int64(n) > heldMost {
		return n, err
	}
	if !h.of.take(int64(n)) {
		return 0, crowded()
	}
	h.got += int64(n)
	return n, err
}

// hand returns the number of bytes held, which the caller must release.
func (h *held) hand() int64 {
	n := h.got
	h.got = 0
	return n
}

func (h *held) drop() { h.of.give(h.hand()) }

func crowded() *problem {
	return new(newProblem(codeUnavailable, "all that callers send at this moment is more than this dispatcher has memory for",
		"send the same again after Retry-After: "+knownByID))
}

// knownByID says why sending again is safe.
const knownByID = "a job that is in already is known by its id"
