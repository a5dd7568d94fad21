package httpapi

import (
	"errors"
	"io"
	"os"
	"sync"
)

// spoolMemory is how much of an answer waits in memory before a file takes the rest.
const spoolMemory = 256 << 10

// spool holds what the caller has not read yet of an answer that begins before its request has ended. Many clients read
// nothing before they have sent everything: if writing to them could block reading from them, both would wait for
// ever. It takes constant memory, and what is beyond that goes to a file without a name. Where there can be no file, Write waits.
type spool struct {
	mu      sync.Mutex
	changed sync.Cond
	memory  []byte
	file    *os.File // nil until it is needed
	nofile  bool     // there can be none
	put     int64    // where in file the next byte goes
	got     int64    // where in file the next byte comes from; after what is in memory
	closed  bool
	failed  error // the reader is gone
}

func newSpool() *spool {
	s := &spool{}
	s.changed.L = &s.mu
	return s
}

// Write adds p. It fails only when the reader is gone.
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
		if n, ok := s.toFile(p); ok {
			return n, nil
		}
		s.changed.Wait()
	}
	return 0, s.failed
}

func (s *spool) toFile(p []byte) (int, bool) {
	if s.file == nil && !s.nofile {
		s.file, s.nofile = unnamed()
	}
	if s.file == nil {
		return 0, false
	}
	n, err := s.file.WriteAt(p, s.put)
	if err != nil { // the disk is full, say: what is in the file already is still read
		return 0, false
	}
	s.put += int64(n)
	return n, true
}

// unnamed returns a file that is gone with the process.
func unnamed() (file *os.File, none bool) {
	f, err := os.CreateTemp("", "spillway-answer-*")
	if err != nil {
		return nil, true
	}
	_ = os.Remove(f.Name())
	return f, false
}

// Read waits for bytes; io.EOF comes behind the last ones, after Close.
func (s *spool) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	for len(s.memory) == 0 && s.got == s.put && !s.closed {
		s.changed.Wait()
	}
	switch {
	case len(s.memory) > 0:
		n := copy(p, s.memory)
		s.memory = append(s.memory[:0], s.memory[n:]...)
		return n, nil
	case s.got < s.put:
		return s.fromFile(p)
	}
	return 0, io.EOF
}

func (s *spool) fromFile(p []byte) (int, error) {
	n, err := s.file.ReadAt(p[:min(int64(len(p)), s.put-s.got)], s.got)
	if n == 0 {
		return 0, err
	}
	s.got += int64(n)
	if s.got == s.put {
		s.got, s.put = 0, 0
		_ = s.file.Truncate(0)
	}
	return n, nil
}

// empty says that a Read would wait.
func (s *spool) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.memory) == 0 && s.got == s.put
}

var errReaderGone = errors.New("the caller reads no more")

// leave says that nobody reads any more.
func (s *spool) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errReaderGone
	s.changed.Broadcast()
}

// end says that nothing more is written.
func (s *spool) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
}

// drop frees the file, once nobody writes or reads any more.
func (s *spool) drop() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
