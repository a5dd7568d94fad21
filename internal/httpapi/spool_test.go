package httpapi

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"time"

	"spillway/internal/testkit"
)

// A spool with a small file uses it as a ring, and waits while it is full.
func TestTheSpoolGivesBackWhatWasWritten(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{spoolMost, 10_000} {
		rng := rand.New(rand.NewPCG(1, 2))
		total := &budget{most: most}
		s := newSpool(total, time.Hour)
		s.most = most
		var all bytes.Buffer
		got := make(chan []byte)
		go func() {
			text, _ := io.ReadAll(iotest.HalfReader(s))
			got <- text
		}()
		for range 2_000 {
			piece := bytes.Repeat([]byte{byte(rng.IntN(256))}, 1+rng.IntN(4_000))
			all.Write(piece)
			if n, err := s.Write(piece); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
		all.WriteString("tail")
		s.end([]byte("tail"))
		if text := <-got; !bytes.Equal(text, all.Bytes()) {
			t.Errorf("%d bytes came back of %d", len(text), all.Len())
		}
		if s.drop(); total.used.Load() != 0 {
			t.Errorf("%d bytes are kept for nobody", total.used.Load())
		}
	}
}

// If nobody reads, the file of one spool is bounded, and so are the files of all spools. At the bound Write fails, and what was written can still be
// read.
func TestTheSpoolIsBounded(t *testing.T) {
	t.Parallel()
	const bound = 100_000
	for what, c := range map[string]struct{ most, total int64 }{"one": {bound, spoolsMost}, "all": {spoolMost, bound}} {
		s := newSpool(&budget{most: c.total}, time.Millisecond)
		s.most = c.most
		piece, put := bytes.Repeat([]byte("x"), 999), 0
		var err error
		for ; err == nil; _, err = s.Write(piece) {
			put++
		}
		info, statErr := s.file.Stat()
		if statErr != nil || info.Size() > bound || info.Size() < bound-int64(len(piece)) || !errors.Is(err, errUnread) {
			t.Errorf("%s: %d bytes in the file, %v, %v", what, info.Size(), statErr, err)
		}
		s.end(nil)
		if text, err := io.ReadAll(s); err != nil || len(text) != (put-1)*len(piece) {
			t.Errorf("%s: %d bytes of %d, %v", what, len(text), put*len(piece), err)
		}
		s.drop()
	}
}

// However much is written before anybody reads, the memory is bounded, and Write does not wait.
func TestTheSpoolKeepsLittleInMemory(t *testing.T) {
	t.Parallel()
	s := newSpool(&budget{most: spoolsMost}, time.Minute)
	defer s.drop()
	piece := bytes.Repeat([]byte("x"), 1000)
	for range 5_000 {
		if _, err := s.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.memory) > spoolMemory || s.put == 0 {
		t.Errorf("%d bytes in memory, %d in the file", len(s.memory), s.put)
	}
	s.end(nil)
	if text, err := io.ReadAll(s); len(text) != 5_000_000 || err != nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestWithoutAFileTheSpoolWaitsForItsReader(t *testing.T) {
	t.Parallel()
	s := newSpool(&budget{most: spoolsMost}, time.Minute)
	s.nofile = true
	piece := bytes.Repeat([]byte("x"), spoolMemory)
	written := make(chan error, 2)
	go func() {
		for range 2 {
			_, err := s.Write(piece)
			written <- err
		}
	}()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, len(piece))); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	go func() { _, err := s.Write(piece); written <- err }()
	s.leave()
	var left error
	testkit.Eventually(t, startWithin, "the writer to hear that nobody reads", func() bool {
		select {
		case left = <-written:
			return true
		default:
			return false
		}
	})
	if left == nil {
		t.Error("it wrote for nobody")
	}
}
