package httpapi

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds on waiting answers, in bytes.
const (
	spoolMemory = 256 << 10 // of one answer in memory; the rest goes to a file
	spoolMost   = 64 << 20  // of one answer, in its file
	spoolsMost  = 256 << 20 // in all files
)

// spool holds the unread part of an answer that begins before its request has ended. Many clients read nothing
// before they have sent everything: if writing to them could block reading from them, both sides would wait
// forever. It uses constant memory; more goes to an unlinked file, up to a bound. When that is full, Write
// waits for the reader.
type spool struct {
	total *budget // of all spools' files
	most  int64   // of this one's file
	// patience is how long Write waits while nothing is read.
	patience time.Duration

	mu      sync.Mutex
	changed sync.Cond
	memory  []byte
	file    *os.File // nil until needed; a ring of most bytes
	nofile  bool     // a file is not possible
	size    int64    // of file, reserved from total
	put     int64    // bytes ever written to file: where the next byte goes
	got     int64    // bytes ever read from it: where the next byte comes from, after those in memory
	reads   int64    // number of reads
	tail    []byte   // after everything else
	closed  bool
	failed  error // set when the reader is gone
}

func newSpool(total *budget, patience time.Duration) *spool {
	s := &spool{total: total, most: spoolMost, patience: patience}
	s.changed.L = &s.mu
	return s
}

// errUnread says that there is no room because nothing is read.
var errUnread = errors.New("the answer is not read")

// Write adds all of p, or nothing. It fails if the reader is gone, and with errUnread if there is no room and
// nothing was read for a while.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	for s.failed == nil {
		inFile := s.put > s.got
		if !inFile && (len(s.memory) == 0 || len(s.memory)+len(p) <= spoolMemory) {
			s.memory = append(s.memory, p...)
			return len(p), nil
		}
		if s.toFile(p) {
			return len(p), nil
		}
		if err := s.await(); err != nil {
			return 0, err
		}
	}
	return 0, s.failed
}

// await waits until something is read.
func (s *spool) await() error {
	late := false
	alarm := time.AfterFunc(s.patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.changed.Broadcast()
	})
	defer alarm.Stop()
	for reads := s.reads; s.failed == nil && s.reads == reads; s.changed.Wait() {
		if late {
			return errUnread
		}
	}
	return nil
}

func (s *spool) toFile(p []byte) bool {
	n := int64(len(p))
	if s.put-s.got+n > s.most {
		return false
	}
	if s.file == nil && !s.nofile {
		s.file, s.nofile = unnamed()
	}
	grown := max(min(s.put+n, s.most)-s.size, 0)
	if s.file == nil || !s.total.take(grown) {
		return false
	}
	s.size += grown
	at := s.put % s.most
	first := min(n, s.most-at)
	_, err := s.file.WriteAt(p[:first], at)
	if err == nil && first < n {
		_, err = s.file.WriteAt(p[first:], 0)
	}
	if err != nil { // for example, the disk is full: what is in the file is still read
		return false
	}
	s.put += n
	return true
}

// unnamed returns an unlinked file, which disappears with the process.
func unnamed() (file *os.File, none bool) {
	f, err := os.CreateTemp("", "spillway-answer-*")
	if err != nil {
		return nil, true
	}
	_ = os.Remove(f.Name())
	return f, false
}

// Read waits for bytes. After end, it returns io.EOF after the last one.
func (s *spool) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	for len(s.memory) == 0 && s.got == s.put && !s.closed {
		s.changed.Wait()
	}
	s.reads++
	switch {
	case len(s.memory) > 0:
		n := copy(p, s.memory)
		s.memory = append(s.memory[:0], s.memory[n:]...)
		return n, nil
	case s.got < s.put:
		return s.fromFile(p)
	case len(s.tail) > 0:
		n := copy(p, s.tail)
		s.tail = s.tail[n:]
		return n, nil
	}
	return 0, io.EOF
}

func (s *spool) fromFile(p []byte) (int, error) {
	at := s.got % s.most
	n, err := s.file.ReadAt(p[:min(int64(len(p)), s.put-s.got, s.most-at)], at)
	if n == 0 {
		return 0, err
	}
	s.got += int64(n)
	if s.got == s.put {
		s.got, s.put = 0, 0
		if s.file.Truncate(0) == nil {
			s.giveBack()
		}
	}
	return n, nil
}

func (s *spool) giveBack() {
	s.total.give(s.size)
	s.size = 0
}

// empty reports whether a Read would wait.
func (s *spool) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.memory) == 0 && s.got == s.put
}

var errReaderGone = errors.New("the caller reads no more")

// leave says that the reader is gone.
func (s *spool) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errReaderGone
	s.changed.Broadcast()
}

// end says that nothing more is written but tail, for which there is always room.
func (s *spool) end(tail []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.tail = true, tail
	s.changed.Broadcast()
}

// drop frees the file when neither side uses it any more.
func (s *spool) drop() {
	if s.file != nil {
		_ = s.file.Close()
	}
	s.giveBack()
}

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
