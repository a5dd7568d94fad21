package httpapi

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"spillway/internal/testkit"
)

func TestTheSpoolGivesBackWhatWasWritten(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	s := newSpool()
	defer s.drop()
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
	s.end()
	if text := <-got; !bytes.Equal(text, all.Bytes()) {
		t.Errorf("%d bytes came back of %d", len(text), all.Len())
	}
}

// However much is written before anybody reads, it takes no more memory, and writing does not wait.
func TestTheSpoolKeepsLittleInMemory(t *testing.T) {
	t.Parallel()
	s := newSpool()
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
	s.end()
	if text, err := io.ReadAll(s); len(text) != 5_000_000 || err != nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestWithoutAFileTheSpoolWaitsForItsReader(t *testing.T) {
	t.Parallel()
	s := newSpool()
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
